"""``rsscloud-broker doctor`` and the page ``/doctor``, with real brokers behind a real nginx."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from tests.e2e.fixture import Broker, EndToEndTestCase, request, run, until
from tests.e2e.installed import nginx_recipe, replaced
from tests.e2e.nginx import Nginx
from tests.e2e.test_behind_nginx import EGRESS, BehindNginxTestCase

FORWARDED = "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;"


def examined(broker: Broker, *options: object) -> tuple[int, dict[str, list[dict[str, str]]]]:
    """Run the doctor; its exit status, and its results by name."""
    done = run(
        *("rsscloud-broker", "doctor", "--json", "--config", broker.configuration),
        *("--data", broker.data, "--listen", f"tcp:{broker.port}:interface=127.0.0.1", *options),
    )
    assert done.stdout, done.stderr
    results: dict[str, list[dict[str, str]]] = {}
    for result in json.loads(done.stdout)["results"]:
        results.setdefault(result["name"], []).append(result)
    return done.returncode, results


class DirectTests(EndToEndTestCase):
    def test_well(self) -> None:
        broker = self.own_broker()
        broker.start()
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
    def behind(self, recipe: Mapping[str, str], trusted: str) -> dict[str, list[dict[str, str]]]:
        """The doctor's results for a broker on loopback behind nginx.

        :param recipe: what to change in the recipe of the manual.
        :param trusted: the proxies that the broker trusts.
        """
        broker = Broker(self.directory(), f"{EGRESS}[http]\ntrusted_proxies = [{trusted}]\n", ())
        changes = {"unix:/run/rsscloud-broker.sock": f"127.0.0.1:{broker.port}", **recipe}
        self.proxied(broker, replaced(nginx_recipe(), changes))
        options = ("--public-url", self.url, "--cacert", self.certificate)
        status, results = examined(broker, *options)
        failed = any(each["level"] == "fail" for found in results.values() for each in found)
        self.assertEqual(status, int(failed))
        self.assertEqual([each["level"] for each in results["public URL"]], ["ok"], results)
        return results

    def assert_proxy(self, results: Mapping[str, Any], level: str, part: str) -> None:
        (result,) = results["proxy"]
        self.assertEqual(result["level"], level, result)
        self.assertIn(part, f"{result['found']}; {result['advice']}")

    def test_the_recipe_of_the_manual(self) -> None:
        results = self.behind({}, '"127.0.0.1"')
        self.assert_proxy(results, "ok", "learns the addresses of callers")
        (certificate,) = results["certificate"]
        self.assertEqual(certificate["level"], "warn")  # that of the tests is good for a day
        self.assertIn("is valid only until", certificate["found"])

    def test_a_proxy_that_is_not_trusted(self) -> None:
        results = self.behind({FORWARDED: "proxy_set_header X-Forwarded-For 198.51.100.7;"}, "")
        self.assert_proxy(results, "fail", 'trusted_proxies = ["127.0.0.1"]')


class FeedTests(EndToEndTestCase):
    """The page and the command say the same about a feed that a real nginx serves."""

    def setUp(self) -> None:
        super().setUp()
        self.nginx = Nginx(self.directory())
        self.nginx.start()
        self.addCleanup(self.nginx.stop)
        self.broker = self.own_broker()
        self.broker.start()

    def test_a_feed(self) -> None:
        elements = (
            f'<cloud domain="127.0.0.1" port="{self.broker.port}" path="/rsscloud/pleaseNotify"'
            ' registerProcedure="" protocol="http-post"/>'
            '<link xmlns="http://www.w3.org/2005/Atom" rel="hub"'
            f' href="{self.nginx.url("/no-hub")}"/>'
        )
        feed = self.nginx.write(
            "/feed.xml",
            f"<rss version='2.0'><channel><title>t</title>{elements}</channel></rss>".encode(),
        )
        page = request(f"{self.broker.url}/doctor?{urlencode({'url': feed})}")
        self.assertEqual(page.status, 200)
        for part in (
            "the server answered 304",
            "The server compresses the feed",
            f"The hub {self.nginx.url('/no-hub')} answers with status 404",
            "Content-Type: application/rss+xml",
        ):
            self.assertIn(part, page.text)
        done = run(
            *("rsscloud-broker", "doctor", feed),
            *("--broker", f"http://127.0.0.1:{self.broker.port}"),
        )
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("ok    cloud: The cloud", done.stdout)
        self.assertIn("is this broker, which takes registrations by http-post", done.stdout)
        self.assertIn("fail  hub: The hub", done.stdout)
        until(lambda: self.nginx.logged("/feed.xml", 304), "both conditional requests")
        self.assertEqual(len(self.nginx.logged("/feed.xml", 304)), 2)
