"""Pings that another broker passes on come with their origin, by every protocol."""

from __future__ import annotations

from urllib.parse import urlencode

from rsscloud_broker.wire import soap, xmlrpc
from tests.front_doors.exchange import FORM, Answer
from tests.front_doors.fixture import FEED, NOON, PUBLIC_URL, House, HouseTestCase

FIRST = "http://first.example"
#: A minute before noon.
TIME = "2026-09-29T11:59:00.250000Z"

SITE = ("A site", "http://site.example/")


class PassedPingTests(HouseTestCase):
    def post(self, path: str, body: bytes, kind: str, **headers: str) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.house.ask("POST", path, body, {"content-type": kind, **named})

    def ways(self) -> dict[str, tuple[str, bytes, str]]:
        """A request for a ping by each protocol."""
        published = {"hub.mode": "publish", "hub.url": FEED}
        site = {"weblogname": SITE[0], "weblogurl": SITE[1]}
        return {
            "xml-rpc": ("/RPC2", xmlrpc.encode_call("weblogUpdates.ping", SITE), "text/xml"),
            "soap": ("/weblogUpdates", soap.encode_call("ping", site), "text/xml"),
            "form": ("/pingSiteForm", urlencode({"name": SITE[0], "url": SITE[1]}).encode(), FORM),
            "rsscloud": ("/rsscloud/ping", urlencode({"url": FEED}).encode(), FORM),
            "rsscloud xml-rpc": ("/RPC2", xmlrpc.encode_call("rssCloud.ping", [FEED]), "text/xml"),
            "rsscloud soap": ("/rssCloud", soap.encode_call("ping", {"url": FEED}), "text/xml"),
            "websub": ("/websub", urlencode(published).encode(), FORM),
        }

    def test_origin_is_stored(self) -> None:
        """And the time, unless the ping only says that a topic is to be fetched now."""
        for way, (path, body, kind) in self.ways().items():
            self.house = House(self)
            answer = self.post(path, body, kind, ping_via=FIRST, ping_time=TIME)
            self.assertIn(answer.status, (200, 202), way)
            (ping,) = self.house.pings()
            self.assertEqual(ping.origin, FIRST, way)
            if way in {"xml-rpc", "soap", "form"}:
                self.assertEqual(ping.received_at, NOON - 59.75, way)

    def test_ping_that_has_passed_here_is_thanked_for_and_ignored(self) -> None:
        for way, (path, body, kind) in self.ways().items():
            made_here = self.post(path, body, kind)
            self.house = House(self)
            answer = self.post(path, body, kind, ping_via=f"{PUBLIC_URL} {FIRST}")
            self.assertEqual((answer.status, answer.body), (made_here.status, made_here.body), way)
            self.assertEqual(self.house.pings(), [], way)

    def test_origin_that_cannot_be_used_is_refused(self) -> None:
        for way, (path, body, kind) in self.ways().items():
            answer = self.post(path, body, kind, ping_via="varnish")
            self.assertIn(b"not the URL of a broker", answer.body, way)
            self.assertEqual(self.house.pings(), [], way)
