"""Metrics, health and the access log of a broker that runs, as programs that watch it see them."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.fixture import Answer, Broker, EndToEndTestCase, post_form, request, run, until
from tests.e2e.programs import program
from tests.e2e.servers import HttpPostReceiver
from tests.processes import TIMEOUT, Process, free_port
from tests.test_monitoring_examples import dashboard_expressions

TOP = Path(__file__).parents[2]
EXAMPLES = TOP / "docs" / "examples" / "monitoring"
DOCKERFILE = TOP / "tap" / "Dockerfile"

TOKEN = "a-token-of-the-operator"
PROXIED = "[http]\ntrusted_proxies = ['127.0.0.1']\n"
STRANGER = {"X-Forwarded-For": "203.0.113.9"}

#: Metrics with a series for each other server that the configuration names.
OF_OTHERS = re.compile("rsscloud_(relayed|followed)")


def health(broker: Broker, which: str = "ready") -> tuple[int, Mapping[str, Any]]:
    """The status of an answer, and the states of the parts."""
    answer = request(f"{broker.url}/health/{which}")
    return answer.status, json.loads(answer.body)["parts"]


def metrics(url: str, **headers: str) -> dict[tuple[str, str], float]:
    """The samples of a broker: the value of each, by its name and the value of its label."""
    answer = request(f"{url}/metrics", headers=headers)
    return {
        (sample.name, " ".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


class MetricsTests(EndToEndTestCase):
    def promtool(self, exposition: bytes) -> None:
        """Have Prometheus's own tool read an exposition, and check names and units."""
        done = subprocess.run(
            [program("promtool"), "check", "metrics"],
            check=False,
            input=exposition,
            capture_output=True,
            timeout=TIMEOUT,
        )
        said = done.stdout + done.stderr
        self.assertEqual((done.returncode, said), (0, b""), said.decode())

    def test_promtool_finds_nothing(self) -> None:
        broker, feed = self.own_broker(), self.origin().feed()
        broker.start()
        receiver = self.served(HttpPostReceiver())
        self.subscribed(broker, receiver, feed)
        broker.ping(feed)
        request(f"{broker.url}/nowhere")
        answer = request(f"{broker.url}/metrics")
        self.assertEqual(answer.status, 200)
        self.promtool(answer.body)
        samples = metrics(broker.url)
        self.assertEqual(samples["rsscloud_http_responses_total", "404"], 1.0)
        self.assertGreater(samples["rsscloud_store_transaction_operations_count", ""], 0)
        self.assertGreater(samples["process_resident_memory_bytes", ""], 1e6)
        until(
            lambda: metrics(broker.url)["rsscloud_database_size_bytes", "main"] > 4096,
            "the size of the database",
        )
        until(
            lambda: metrics(broker.url)["rsscloud_event_loop_delay_seconds_count", ""] > 0,
            "the delay of the event loop",
        )

    def without_samples(self, broker: Broker) -> list[str]:
        """The metrics that have no sample, of those that every broker has."""
        families = text_string_to_metric_families(request(f"{broker.url}/metrics").text)
        empty = [each.name for each in families if not each.samples]
        return [name for name in empty if not OF_OTHERS.search(name)]

    def test_every_metric_is_there_from_the_start(self) -> None:
        """Of counters with labels, too: else the first increase is not seen."""
        broker = self.own_broker()
        broker.start()
        samples = metrics(broker.url)
        for name, labels in (
            ("notifications_total", "delivered http-post"),
            ("notifications_given_up_total", "websub"),
            ("fetches_total", "failed"),
            ("limited_requests_total", "pings"),
            ("http_responses_total", "503"),
            ("missed_events_total", "dropped event_log"),
        ):
            self.assertEqual(samples[f"rsscloud_{name}", labels], 0.0)
        # What is read from the database follows when the first reading has ended.
        until(lambda: self.without_samples(broker) == [], "a sample of each metric")

    def test_tokens_of_accounts(self) -> None:
        """The recipe of the manual for a Prometheus with an account of its own."""
        broker = self.own_broker(PROXIED)
        options = ("--config", broker.configuration, "--data", broker.data)
        account = ("rsscloud-broker", "account")
        self.assertEqual(
            run(*account, "add", "prometheus", "--no-password", *options).returncode, 0
        )
        made = run(*account, "token", "add", "prometheus", "--scope", "metrics", *options)
        (token,) = re.findall(r"rsb_\S+", made.stdout)
        broker.start()
        for sent, status in ((token, 200), (f"{token}x", 401)):
            headers = STRANGER | {"Authorization": f"Bearer {sent}"}
            for path in ("/metrics", "/health/live", "/health/ready"):
                self.assertEqual(request(broker.url + path, headers=headers).status, status)

    def test_the_check_of_the_image(self) -> None:
        """It succeeds at a broker of a public URL, which trusts no request of its own machine."""
        broker = self.own_broker("public_url = 'https://broker.example'\n")
        broker.start()
        self.assertEqual(request(f"{broker.url}/health/ready").status, 401)
        [check] = re.findall(r"^HEALTHCHECK .*\n *CMD (.*)", DOCKERFILE.read_text(), re.MULTILINE)
        places = {"'/data/": f"'{broker.data}/", "http://127.0.0.1:5337": broker.url}
        words = [sys.executable, *json.loads(check)[1:]]
        for place, other in places.items():
            words = [word.replace(place, other) for word in words]
        done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=TIMEOUT)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_endpoints_of_their_own(self) -> None:
        port = free_port()
        own = f"http://127.0.0.1:{port}"
        listen = f"[metrics]\nlisten = ['tcp:{port}:interface=127.0.0.1']\n"
        broker = self.own_broker(listen)
        broker.start()
        for path in ("/metrics", "/health/live", "/health/ready"):
            self.assertEqual(request(own + path).status, 200)
            self.assertEqual(request(broker.url + path).status, 404)
        for path in ("/", "/changes.xml", "/RPC2"):
            for method in ("GET", "POST"):
                self.assertEqual(request(own + path, method, b"<methodCall/>").status, 404)
        self.assertIn(" endpoints (2)", health_text(request(f"{own}/health/ready"), "listeners"))
        # Nobody can have the broker read them for him.
        answer = broker.ping(f"{own}/metrics")
        self.assertIn('success="false"', answer.text)
        options = ("--config", broker.configuration, "--data", broker.data)
        done = run("rsscloud-broker", "check-config", *options)
        self.assertIn(f"metrics      tcp:{port}:interface=127.0.0.1", done.stdout + done.stderr)


class PrometheusTests(EndToEndTestCase):
    def test_prometheus_reads_them(self) -> None:
        """Prometheus itself, with the token and the alerts of the manual."""
        broker = self.own_broker(f"{PROXIED}[metrics]\ntoken = '{TOKEN}'\n")
        broker.start()
        directory, port = self.directory(), free_port()
        text = (EXAMPLES / "prometheus.yml").read_text("utf-8")
        for manual, here in {
            "scheme: https": "scheme: http\n    scrape_interval: 1s\n    scrape_timeout: 1s",
            "of-16-characters-or-more": TOKEN,
            "broker.example": f"127.0.0.1:{broker.port}",
            "alerts.yml": str(EXAMPLES / "alerts.yml"),
        }.items():
            self.assertIn(manual, text)
            text = text.replace(manual, here)
        (directory / "prometheus.yml").write_text(text, "utf-8")
        Process(
            self,
            [
                program("prometheus"),
                f"--config.file={directory}/prometheus.yml",
                f"--storage.tsdb.path={directory}/data",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
        )

        def value(query: str) -> str:
            """The value of a query; empty as long as there is none."""
            asked = urlencode({"query": query})
            try:
                answer = request(f"http://127.0.0.1:{port}/api/v1/query?{asked}")
            except OSError:
                return ""
            found = json.loads(answer.body)["data"]["result"] if answer.status == 200 else []
            return str(found[0]["value"][1]) if found else ""

        until(lambda: value('up{job="rsscloud-broker"}') == "1", "Prometheus to read the metrics")
        self.assertEqual(value('rsscloud_build_info{database="sqlite"}'), "1")
        self.assertEqual(value("rsscloud_pings_total"), "0")
        self.assertEqual(value('rsscloud_notifications_total{outcome="gone"}'), "0")
        rules = json.loads(request(f"http://127.0.0.1:{port}/api/v1/rules").body)["data"]
        self.assertNotIn("err", {each["health"] for each in rules["groups"][0]["rules"]})
        # Panels of what this broker does not do stay empty.
        wanted = [each for each in dashboard_expressions() if not OF_OTHERS.search(each)]
        self.assertGreater(len(wanted), 20)
        until(lambda: all(map(value, wanted)), "data in every panel of the dashboard")


def health_text(answer: Answer, part: str) -> str:
    text: str = json.loads(answer.body)["parts"][part]["text"]
    return text


class HealthTests(EndToEndTestCase):
    def test_a_database_that_somebody_locks(self) -> None:
        broker = self.own_broker()
        broker.start()
        status, parts = health(broker)
        self.assertEqual((status, {part["status"] for part in parts.values()}), (200, {"ok"}))
        path = broker.data / "broker.sqlite"
        with closing(sqlite3.connect(path, timeout=TIMEOUT, isolation_level=None)) as locking:
            locking.execute("BEGIN IMMEDIATE")
            status, parts = health(broker)
            self.assertEqual((status, parts["database"]["status"]), (503, "failed"))
            self.assertIn("another process that holds a lock", parts["database"]["text"])
            # These need no database.
            status, parts = health(broker, "live")
            self.assertEqual((status, list(parts)), (200, ["event_loop"]))
            age = metrics(broker.url)["rsscloud_store_transaction_age_seconds", ""]
            self.assertGreater(age, 1.0)
            until(lambda: health(broker)[1]["writer"]["status"] == "failed", "a stuck writer")
            locking.execute("ROLLBACK")
        until(lambda: health(broker)[0] == 200, "the broker to be ready again")
        until(
            lambda: metrics(broker.url)["rsscloud_store_transaction_age_seconds", ""] == 0.0,
            "the writer to end its work",
        )


class AccessLogTests(EndToEndTestCase):
    def test_a_file_its_rotation_and_another_one(self) -> None:
        directory = self.directory()
        access, rotated, other = (directory / name for name in ("a.log", "a.log.1", "b.log"))
        broker = self.own_broker(f"{PROXIED}[log]\naccess = '{access}'\n")
        broker.start()
        post_form(f"{broker.url}/rsscloud/ping?x=hidden", {"url": "hidden"}, **STRANGER)
        until(lambda: access.exists() and "203.0.113.9" in access.read_text(), "a line")
        line = access.read_text().splitlines()[-1]
        self.assertRegex(
            line, r'^203\.0\.113\.9 - - \[.* \+0000\] "POST /rsscloud/ping HTTP/1\.1" '
        )
        self.assertNotIn("hidden", access.read_text())
        access.rename(rotated)
        os.kill(broker.pid, signal.SIGUSR1)
        until(access.exists, "the file to be opened again")
        request(f"{broker.url}/after-rotation")
        until(lambda: "/after-rotation" in access.read_text(), "a line in the new file")
        self.assertNotIn("/after-rotation", rotated.read_text())
        said = broker.reload(f"{PROXIED}[log]\naccess = '{other}'\n")
        self.assertIn("Changed: [log] access.", said)
        request(f"{broker.url}/in-the-other")
        broker.stop()  # which writes what waits
        self.assertIn("/in-the-other", other.read_text())
