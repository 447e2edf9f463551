"""The broker's own files as topics: how they are read, and when."""

from __future__ import annotations

import os
from errno import ENOSPC
from typing import Any

from twisted.internet.defer import execute
from twisted.python.filepath import FilePath
from twisted.trial.unittest import TestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from rsscloud_broker.core import FairLimiter
from rsscloud_broker.counters import Counters
from rsscloud_broker.errors import AddressRefused, TopicUnreadable
from rsscloud_broker.events import FilePublished, TopicChanged
from rsscloud_broker.interfaces import ITopicFetcher, IURLPolicy, ServedTopics
from rsscloud_broker.model import Content, Validators
from rsscloud_broker.outbound.own_topics import LATE, OwnTopics, OwnTopicsSink
from rsscloud_broker.testing import FakeFetcher, RecordingBus, make_sink_tests, memory_store
from rsscloud_broker.testing.clock import Clock
from tests.core.house import NOW, CoreTestCase, change_detector

HERE = "http://broker.example:5337"
LIST = f"{HERE}/changes.xml"
ELSEWHERE = "http://feeds.example/rss.xml"


@implementer(IURLPolicy)
class StrictPolicy:
    async def check(self, url: str) -> None:
        raise AddressRefused("no")


class OwnTopicsTests(TestCase):
    def setUp(self) -> None:
        top = FilePath(self.mktemp())
        self.directory = top.child("public")
        hour = self.directory.descendant(["2026", "11", "21", "07.xml"])
        hour.parent().makedirs()
        hour.setContent(b"<hour/>")
        self.directory.child("changes.xml").setContent(b"<weblogUpdates/>")
        self.directory.child("changes.xml.gz").setContent(b"a twin")
        self.directory.child(".well-known").makedirs()
        self.directory.descendant([".well-known", "resourcesync"]).setContent(b"<urlset/>")
        top.child("broker.sqlite").setContent(b"secret")
        self.others = FakeFetcher({ELSEWHERE: b"<rss/>"})
        self.topics = self.make()

    def make(self, **more: Any) -> OwnTopics:
        return OwnTopics(self.others, StrictPolicy(), HERE, self.directory, execute, **more)

    def test_interfaces(self) -> None:
        for interface in (ITopicFetcher, IURLPolicy):
            self.assertTrue(verifyObject(interface, self.topics))

    async def test_present_version_is_copied_first(self) -> None:
        """Another node may have made it."""
        asked: list[str] = []

        async def copy(path: str) -> bool:
            asked.append(path)
            self.directory.child("changes.xml").setContent(b"newer")
            return True

        topics = self.make(copy_file=copy)
        fetched = await topics.fetch(LIST)
        self.assertEqual(fetched.content, Content(b"newer", "text/xml; charset=utf-8"))
        await topics.fetch(ELSEWHERE)
        self.assertEqual(asked, ["/changes.xml"])

    async def test_own_files_are_read_where_they_lie(self) -> None:
        for path, body in (
            ("/changes.xml", b"<weblogUpdates/>"),
            ("/2026/11/21/07.xml", b"<hour/>"),
            ("/.well-known/resourcesync", b"<urlset/>"),
        ):
            await self.topics.check(HERE + path)
            fetched = await self.topics.fetch(HERE + path, Validators('"a"'), 3)
            self.assertEqual(fetched.content, Content(body, "text/xml; charset=utf-8"))
            self.assertEqual(fetched.result, f"a file of this broker, {len(body)} bytes")
        self.assertEqual(self.others.fetched, [])

    async def test_list_that_another_node_has_made_before(self) -> None:
        """Subscribers must not get an older list after a newer one."""
        file = self.directory.child("changes.xml")
        os.utime(file.path, (NOW, NOW))
        topics = self.make(late=LATE)
        newest = (await topics.fetch(LIST)).validators
        again = await topics.fetch(LIST, newest)
        self.assertEqual((again.content is None, again.validators), (False, newest))
        os.utime(file.path, (NOW - 60, NOW - 60))
        older = await topics.fetch(LIST, newest)
        self.assertEqual((older.content, older.validators), (None, newest))
        os.utime(file.path, (NOW - 7200, NOW - 7200))  # the clock was set back
        self.assertIsNotNone((await topics.fetch(LIST, newest)).content)

    async def test_list_after_the_clock_of_the_only_node_was_set_back(self) -> None:
        file = self.directory.child("changes.xml")
        os.utime(file.path, (NOW, NOW))
        newest = (await self.topics.fetch(LIST)).validators
        os.utime(file.path, (NOW - 60, NOW - 60))
        self.assertIsNotNone((await self.topics.fetch(LIST, newest)).content)

    async def test_list_that_cannot_be_read_now(self) -> None:
        """It is read later, and who subscribes is not refused for good."""

        async def copy(path: str) -> bool:
            raise OSError(ENOSPC, "No space left on device", "/var/lib/broker/public/changes.xml")

        topics = self.make(copy_file=copy)
        with self.assertRaises(TopicUnreadable) as caught:
            await topics.fetch(LIST)
        reason = "the file cannot be read: No space left on device"
        self.assertEqual(caught.exception.reason, reason, "strangers see where files are")
        self.assertFalse(caught.exception.lasting)

    async def test_all_others_are_for_others(self) -> None:
        known = Validators('"a"')
        fetched = await self.topics.fetch(ELSEWHERE, known, 3)
        self.assertEqual(fetched.content, Content(b"<rss/>", "application/rss+xml"))
        self.assertEqual(self.others.asked, [(known, 3)])
        for url in (ELSEWHERE, "http://broker.example:53370/changes.xml", HERE):
            with self.assertRaises(AddressRefused):
                await self.topics.check(url)

    async def test_nothing_else_on_this_disk(self) -> None:
        for path in (
            "/../broker.sqlite",
            "/2026/../../broker.sqlite",
            "/%2e%2e/broker.sqlite",
            "/..%2fbroker.sqlite",
            "//etc/passwd",
            "/changes.xml?x=../",
            "/changes.xml\x00",
            "/",
            "/2026",
            "/shortChanges.xml",
            "/changes.xml.gz",
            "/nonexistent.xml",
            "/broker.sqlite",
            "/2026/11/21/08.xml",
            f"/{'x' * 300}.xml",
        ):
            with self.assertRaises(TopicUnreadable, msg=path) as caught:
                await self.topics.fetch(HERE + path)
            self.assertTrue(caught.exception.lasting, path)


class ServedTopicsTests(TestCase):
    """Topics that applications serve."""

    def setUp(self) -> None:
        self.feeds: dict[str, Content] = {}
        self.others = FakeFetcher({ELSEWHERE: b"<rss/>"})
        directory = FilePath(self.mktemp())
        served = [
            ServedTopics(f"{HERE}/feeds/", self.read),
            ServedTopics("https://static.example/", self.read),
        ]
        self.topics = OwnTopics(
            self.others, StrictPolicy(), HERE, directory, execute, lambda: served
        )
        self.asked: list[str] = []

    async def read(self, url: str) -> Content | None:
        self.asked.append(url)
        return self.feeds.get(url)

    async def test_are_read_from_the_application(self) -> None:
        """Also those at another host."""
        for url in (f"{HERE}/feeds/dave.xml", "https://static.example/anna.xml"):
            self.feeds[url] = Content(b"<rss/>", "application/rss+xml")
            await self.topics.check(url)
            fetched = await self.topics.fetch(url, Validators('"a"'), 3)
            self.assertEqual(fetched.content, self.feeds[url])
            self.assertEqual(fetched.result, "a file of this broker, 6 bytes")

    async def test_that_do_not_exist(self) -> None:
        with self.assertRaises(TopicUnreadable) as caught:
            await self.topics.fetch(f"{HERE}/feeds/nobody.xml")
        self.assertIn("has no such feed or list; if it is one of its pages", str(caught.exception))
        self.assertTrue(caught.exception.lasting)

    async def test_others_are_not_asked_for(self) -> None:
        await self.topics.fetch(ELSEWHERE)
        with self.assertRaises(TopicUnreadable):
            await self.topics.fetch(f"{HERE}/changes.xml")
        for url in (f"{HERE}0/feeds/dave.xml", "https://static.example.evil.example/"):
            with self.assertRaises(AddressRefused):
                await self.topics.check(url)
        self.assertEqual(self.asked, [])


class OwnTopicsSinkTests(CoreTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.fetcher.contents[LIST] = b"<weblogUpdates/>"
        self.sink = OwnTopicsSink(self.store, self.detector.schedule, self.clock, HERE)
        self.start()

    def publish(self) -> None:
        event = FilePublished("/changes.xml", NOW)
        self.successResultOf(self.sink.handle(event))

    def test_file_with_a_subscriber(self) -> None:
        self.subscribe(LIST)
        self.publish()
        self.assertEqual(self.bus.events, [TopicChanged(LIST, NOW)])
        self.assertEqual(self.due(), [])

    def test_file_of_which_nobody_wants_to_hear(self) -> None:
        self.publish()
        self.assertEqual(self.fetcher.fetched, [])


def _sink(test: TestCase) -> OwnTopicsSink:
    store, clock = memory_store(), Clock()
    test.addCleanup(store.stopService)
    limiter = FairLimiter(clock)
    detector = change_detector(store, FakeFetcher(), RecordingBus(), clock, Counters(), limiter)
    return OwnTopicsSink(store, detector.schedule, clock, HERE)


class OwnTopicsSinkContractTests(make_sink_tests(_sink)):  # type: ignore[misc] # made at run time
    """As every sink."""
