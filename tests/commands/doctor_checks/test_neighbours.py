"""Checks of the servers that the operator names."""

from __future__ import annotations

from rsscloud_broker.commands.doctor_checks.network import neighbours
from rsscloud_broker.config import Egress
from tests.commands.doctor_checks.cases import DoctorTestCase

TARGET, LIST = "http://192.0.2.7/RPC2", "http://127.0.0.1:9999/changes.xml"
FEED = "http://127.0.0.2:9999/recent"


class NeighboursTests(DoctorTestCase):
    async def test_none(self) -> None:
        self.assertEqual(await self.results(neighbours), [])

    async def test_addresses_that_are_refused(self) -> None:
        self.change(
            public_url="http://broker.example",
            sinks={
                "relay": {"targets": [{"url": "http://8.8.8.8/"}, {"url": "http://10.0.0.1/{url}"}]}
            },
            front_doors={"follows": {"sources": [{"url": LIST}], "feeds": [{"url": FEED}]}},
        )
        good, target, followed, feed = await self.results(neighbours)
        self.assertEqual(good, ("ok", "pings are passed on to http://8.8.8.8/", ""))
        self.assertEqual((target[0], followed[0]), ("fail", "fail"))
        self.assertIn("http://10.0.0.1/, which is refused", target[1])
        self.assertIn("allow_callbacks", target[2])
        self.assertIn(f"the broker follows {LIST}, which is refused", followed[1])
        self.assertIn(f"the broker follows {FEED}, which is refused", feed[1])
        self.assertIn("allow_topics", followed[2])

    async def test_addresses_that_are_allowed(self) -> None:
        self.change(
            public_url="http://broker.example",
            egress=Egress(allow_topics=("127.0.0.1",)),
            front_doors={"follows": {"sources": [{"url": LIST}]}},
        )
        await self.assert_only(neighbours, "ok", f"the broker follows {LIST}; ")

    async def test_broker_without_a_name(self) -> None:
        relay = {"relay": {"targets": [{"url": "http://8.8.8.8/"}]}}
        advice = "set public_url to the address by which other brokers reach this one"
        for public_url in (None, "http://localhost:8000"):
            self.change(public_url=public_url, sinks=relay)
            (warning, _) = await self.results(neighbours)
            self.assertEqual((warning[0], warning[2]), ("warn", advice))
            self.assertIn(f"since {public_url or 'http://localhost'}", warning[1])

    async def test_disabled(self) -> None:
        self.change(sinks={"relay": {"enabled": False, "targets": [{"url": "http://10.0.0.1/"}]}})
        self.assertEqual(await self.results(neighbours), [])
