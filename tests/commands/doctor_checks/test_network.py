"""Checks of the network: with a name server of the tests, and prepared answers."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import formatdate

from rsscloud_broker.client.feed_requests import FeedAnswer
from rsscloud_broker.commands.doctor_checks import network
from rsscloud_broker.config import Egress, Metrics
from rsscloud_broker.outbound import resolver
from tests.commands.doctor_checks.cases import DoctorTestCase
from tests.name_server import NameServer

THERE = "http://time.example/"


class ClockTests(DoctorTestCase):
    headers: Mapping[str, str] | None = None

    async def ask(self, url: str, headers: Mapping[str, str]) -> FeedAnswer:
        if self.headers is None:
            return await super().ask(url, headers)
        return FeedAnswer(url, 200, self.headers, at=self.clock.wall_seconds())

    async def test_differences(self) -> None:
        for seconds, expected in ((0, "ok"), (-60, "warn"), (60, "warn"), (4000, "fail")):
            date = formatdate(self.clock.wall_seconds() - seconds, usegmt=True)
            self.headers = {"date": date}
            context = self.context(time_url=THERE)
            text = await self.assert_only(network.clock, expected, context=context)
            self.assertEqual("NTP" in text, expected != "ok")

    async def test_nobody_tells_the_time(self) -> None:
        await self.assert_only(
            network.clock, "warn", "no connection", context=self.context(time_url=THERE)
        )
        self.headers = {}
        await self.assert_only(
            network.clock, "warn", "no Date header", context=self.context(time_url=THERE)
        )

    async def test_not_compared(self) -> None:
        await self.assert_only(network.clock, "ok", "--time-url")


class NamesTests(DoctorTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.patch(resolver, "TRIES", 1)
        names = {"broker.example": ["192.0.2.1"], "silent.example": None, "example.com": []}
        self.server = NameServer(names)
        self.server.start()
        self.addCleanup(self.server.stop)

    async def looked_up(self, url: str, *servers: str) -> list[tuple[str, str, str]]:
        self.change(public_url=url, egress=Egress(name_servers=servers or (self.server.place,)))
        return await self.results(network.names)

    async def test_well(self) -> None:
        results = await self.looked_up("https://broker.example")
        self.assertEqual(
            [(level, found) for level, found, _ in results],
            [
                ("ok", f"the name server {self.server.place} answers"),
                ("ok", "broker.example has the address 192.0.2.1"),
            ],
        )

    async def test_no_such_name(self) -> None:
        results = await self.looked_up("https://other.example")
        self.assertEqual([level for level, _, _ in results], ["ok", "fail"])
        self.assertIn("the broker's own name other.example does not work", results[1][1])

    async def test_a_server_that_is_silent(self) -> None:
        results = await self.looked_up("https://silent.example")
        self.assertEqual([level for level, _, _ in results], ["fail", "fail"])
        self.assertIn("no name server has answered", results[0][1])
        self.assertIn("name_servers", results[0][2])

    async def test_one_of_two(self) -> None:
        gone = NameServer({})
        gone.start()
        gone.stop()
        results = await self.looked_up("https://broker.example", self.server.place, gone.place)
        self.assertEqual([level for level, _, _ in results], ["ok", "fail", "ok"])

    async def test_without_a_name_of_its_own(self) -> None:
        """Then any name shows whether the servers answer; a laptop may be offline."""
        results = await self.looked_up("http://localhost:5337")
        self.assertEqual([level for level, _, _ in results], ["ok", "warn"])
        self.assertIn("example.com", self.server.asked)


class EgressTests(DoctorTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.change(public_url="https://broker.example")

    async def egress(self, **keys: tuple[str, ...]) -> list[tuple[str, str, str]]:
        """The results besides that about routes."""
        self.change(egress=Egress(**keys))
        return (await self.results(network.egress))[1:]

    async def test_routes(self) -> None:
        for has_route, level in ((True, "ok"), (False, "warn")):
            self.patch(network, "_has_route", lambda _, has_route=has_route: has_route)
            ((found, text, _), *_) = await self.results(network.egress)
            self.assertEqual(found, level)
            self.assertIn("route to the public internet", text)

    async def test_nothing_allowed(self) -> None:
        self.assertEqual(await self.egress(), [])

    async def test_single_networks(self) -> None:
        ((level, found, _),) = await self.egress(allow_topics=("10.1.2.0/24", "fd00::/64"))
        self.assertEqual(level, "ok")
        self.assertIn("10.1.2.0/24, fd00::/64", found)

    async def test_too_open(self) -> None:
        for allowed, why in (
            ("169.254.0.0/16", "where clouds keep credentials"),
            ("127.0.0.1/32", "this machine itself"),
            ("0.0.0.0/0", "link-local"),
            ("10.0.0.0/8", "16,777,216 addresses"),
            ("fc00::/7", "addresses"),
        ):
            ((level, found, advice),) = await self.egress(allow_callbacks=(allowed,))
            self.assertEqual((level, "[egress]" in advice), ("warn", True))
            self.assertRegex(found, f"^allow_callbacks allows .*{why}")

    async def test_on_a_laptop(self) -> None:
        self.change(public_url="http://localhost:5337")
        ((level, _, _),) = await self.egress(allow_callbacks=("127.0.0.0/8",))
        self.assertEqual(level, "ok")

    async def test_endpoints_that_are_not_known(self) -> None:
        unknown = ("systemd:domain=INET:index=0",)
        for changes in ({"metrics": Metrics(listen=unknown)}, {"listen": unknown}):
            self.change(**changes)
            self.assertEqual(await self.egress(), [])
            results = await self.egress(allow_callbacks=("10.1.2.0/24",))
            self.assertEqual([level for level, _, _ in results], ["ok", "warn"])
            self.assertIn("is not known in advance", results[1][1])
