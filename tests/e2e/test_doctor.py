"""``rsscloud-broker doctor``, with real brokers, one of them behind a real nginx."""

from __future__ import annotations

import json

from tests.e2e.fixture import Broker, EndToEndTestCase, run, until
from tests.e2e.installed import nginx_recipe, replaced
from tests.e2e.test_behind_nginx import EGRESS, BehindNginxTestCase


def examined(broker: Broker, *options: object) -> tuple[int, dict[str, list[dict[str, str]]]]:
    """Run the doctor; its exit status, and its results by name."""
    done = run(
        "rsscloud-broker",
        *("doctor", "--json", *broker.where),
        *("--listen", f"tcp:{broker.port}:interface=127.0.0.1", *options),
    )
    assert done.stdout, done.stderr
    results: dict[str, list[dict[str, str]]] = {}
    for result in json.loads(done.stdout)["results"]:
        results.setdefault(result["name"], []).append(result)
    return done.returncode, results


class DirectTests(EndToEndTestCase):
    def test_well(self) -> None:
        broker = self.running_broker()
        until(lambda: "Sign in as" in broker.log, "the link to sign in")
        before, said = sorted(broker.data.iterdir()), broker.log
        status, results = examined(broker, "--local", "--time-url", f"{broker.url}/")
        bad = [each for found in results.values() for each in found if each["level"] == "fail"]
        self.assertEqual((status, bad), (0, []))
        for name in ("data", "database", "integrity", "backup", "public URL", "proxy", "clock"):
            self.assertEqual([each["level"] for each in results[name]], ["ok"], results[name])
        self.assertEqual(sorted(broker.data.iterdir()), before)
        self.assertEqual(broker.log, said, "the doctor leaves no trace in the log")


class NginxTests(BehindNginxTestCase):
    def test_the_recipe_of_the_manual(self) -> None:
        trusted = '[http]\ntrusted_proxies = ["127.0.0.1"]\n'
        broker = Broker(self.directory(), f"{EGRESS}{trusted}", ())
        upstream = {"unix:/run/rsscloud-broker.sock": f"127.0.0.1:{broker.port}"}
        self.proxied(broker, replaced(nginx_recipe(), upstream))
        options = ("--public-url", self.url, "--cacert", self.certificate)
        status, results = examined(broker, *options)
        failed = any(each["level"] == "fail" for found in results.values() for each in found)
        self.assertEqual(status, int(failed))
        self.assertEqual([each["level"] for each in results["public URL"]], ["ok"], results)
        (proxy,) = results["proxy"]
        self.assertEqual(proxy["level"], "ok", proxy)
        self.assertIn("learns the addresses of callers", proxy["found"])
        (certificate,) = results["certificate"]
        self.assertEqual(certificate["level"], "warn")  # that of the tests is good for a day
        self.assertIn("is valid only until", certificate["found"])
