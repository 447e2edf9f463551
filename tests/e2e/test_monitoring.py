"""Metrics and health of a broker that runs, as programs that watch it see them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlencode

from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.fixture import Broker, EndToEndTestCase, request, until
from tests.e2e.programs import program
from tests.e2e.servers import HttpPostReceiver
from tests.processes import TIMEOUT, Process, free_port
from tests.test_monitoring_examples import dashboard_expressions

TOP = Path(__file__).parents[2]
EXAMPLES = TOP / "docs" / "examples" / "monitoring"
DOCKERFILE = TOP / "tap" / "Dockerfile"

TOKEN = "a-token-of-the-operator"
PROXIED = "[http]\ntrusted_proxies = ['127.0.0.1']\n"

#: Metrics with a series for each other server that the configuration names.
OF_OTHERS = re.compile("rsscloud_(relayed|followed)")


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
        broker, feed = self.running_broker(), self.origin().feed()
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
        broker = self.running_broker()
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

    def test_the_check_of_the_image(self) -> None:
        """It succeeds at a broker of a public URL, which trusts no request of its own machine."""
        broker = self.running_broker("public_url = 'https://broker.example'\n")
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
        broker = self.running_broker(listen)
        for path in ("/metrics", "/health/live", "/health/ready"):
            self.assertEqual(request(own + path).status, 200)
            self.assertEqual(request(broker.url + path).status, 404)
        self.assertEqual(request(f"{own}/changes.xml").status, 404)
        # Nobody can have the broker read them for him.
        answer = broker.ping(f"{own}/metrics")
        self.assertIn('success="false"', answer.text)


class PrometheusTests(EndToEndTestCase):
    def test_prometheus_reads_them(self) -> None:
        """Prometheus itself, with the token and the alerts of the manual."""
        broker = self.running_broker(f"{PROXIED}[metrics]\ntoken = '{TOKEN}'\n")
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
