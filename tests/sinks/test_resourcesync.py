"""Tests the broker as a ResourceSync source: its documents, its channel, and a real client."""

from __future__ import annotations

import gzip
import os
from hashlib import sha256
from typing import Any, cast

from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs, formatEvent
from twisted.python.filepath import FilePath
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from rsscloud_broker.config import NoOptions
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.events import FilePublished, TopicChanged
from rsscloud_broker.interfaces import IPushesContent
from rsscloud_broker.model import Callback, Content, Lease, Subscription
from rsscloud_broker.outbound.own_topics import (
    CAPABILITY_LIST,
    CHANGE_LIST,
    CHANNEL,
    DESCRIPTION,
    RESOURCE_LIST,
)
from rsscloud_broker.plugins import bundled
from rsscloud_broker.sinks import resourcesync
from rsscloud_broker.sinks.resourcesync import ResourceSyncSink
from rsscloud_broker.testing import RecordingBus, memory_store, sink_parts
from rsscloud_broker.testing.clock import About, Clock
from rsscloud_broker.wire import links
from rsscloud_broker.wire import resourcesync as codec
from rsscloud_broker.wire.times import iso_time
from tests.sinks.pings import NOON, fill_disk

BROKER = "http://broker.example"
FIRST, SECOND, THIRD = (f"/2026/09/29/{hour}.xml" for hour in ("11", "12", "13"))


class ResourceSyncTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock(NOON + 30)
        self.directory = FilePath(self.mktemp())
        self.bus = RecordingBus()
        self.store = memory_store()
        self.addCleanup(self.store.stopService)
        self.pushed: list[tuple[str, Content, float]] = []
        self.failure: Exception | None = None
        self._push = self.store.push_content
        self.patch(self.store, "push_content", self._watched)

    def _watched(self, url: str, content: Content, at: float) -> Deferred[bool]:
        if self.failure is not None:
            raise self.failure
        self.pushed.append((url, content, at))
        return self._push(url, content, at)

    def make(self, **parts: Any) -> ResourceSyncSink:
        mine = {"store": self.store, "bus": self.bus, "clock": self.clock}
        where = {"public_directory": self.directory, "has_hub": True}
        return ResourceSyncSink(NoOptions(), sink_parts(**{**mine, **where, **parts}))

    def start(self, **parts: Any) -> ResourceSyncSink:
        sink = self.make(**parts)
        sink.startService()
        self.addCleanup(lambda: sink.running and sink.stopService())
        return sink

    def path(self, path: str) -> FilePath[str]:
        return cast("FilePath[str]", self.directory.descendant(path[1:].split("/")))

    def put(self, path: str, content: bytes = b"<weblogUpdates/>", at: int = NOON) -> None:
        file = self.path(path)
        file.parent().makedirs(ignoreExistingDirectory=True)
        file.setContent(content, ext=".new")
        os.utime(file.path, (at, at))

    def publish(self, sink: ResourceSyncSink, path: str) -> None:
        self.successResultOf(sink.handle(FilePublished(path, self.clock.wall_seconds())))

    def read(self, path: str) -> codec.ResourceDocument:
        """A document that the sink wrote; checks that its twin has the same content."""
        content = self.path(path).getContent()
        self.assertEqual(gzip.decompress(self.path(path + ".gz").getContent()), content)
        return codec.decode(content)

    def resources(self) -> list[str]:
        return [entry.loc.removeprefix(BROKER) for entry in self.read(RESOURCE_LIST).entries]

    def changes(self) -> list[tuple[str, str]]:
        return [
            (entry.loc.removeprefix(BROKER), entry.change)
            for entry in self.read(CHANGE_LIST).entries
        ]


class DocumentsTests(ResourceSyncTestCase):
    def test_only_the_channel_is_pushed(self) -> None:
        maker, options = bundled.resourcesync_source, NoOptions()
        self.assertTrue(verifyObject(IPushesContent, maker))
        self.assertEqual(maker.pushed_prefixes(options, BROKER, True), (BROKER + CHANNEL,))
        self.assertEqual(maker.pushed_prefixes(options, BROKER, False), ())

    def test_they_lead_to_one_another(self) -> None:
        self.start()
        description = self.read(DESCRIPTION)
        self.assertEqual(description.capability, "description")
        expected = (codec.ResourceEntry(BROKER + CAPABILITY_LIST, "capabilitylist"),)
        self.assertEqual(description.entries, expected)
        offered = self.read(CAPABILITY_LIST)
        self.assertEqual(codec.first_link(offered.links, "up"), BROKER + DESCRIPTION)
        self.assertEqual(
            [
                (entry.loc, entry.capability, codec.first_link(entry.links, "hub"))
                for entry in offered.entries
            ],
            [
                (BROKER + RESOURCE_LIST, "resourcelist", ""),
                (BROKER + CHANGE_LIST, "changelist", ""),
                (BROKER + CHANNEL, "framework-notification", f"{BROKER}/websub"),
            ],
        )
        for path, capability in ((RESOURCE_LIST, "resourcelist"), (CHANGE_LIST, "changelist")):
            listed = self.read(path)
            self.assertEqual(listed.capability, capability)
            self.assertEqual(codec.first_link(listed.links, "up"), BROKER + CAPABILITY_LIST)
            self.assertEqual(listed.entries, ())

    def test_without_a_hub_there_is_no_channel(self) -> None:
        self.start(has_hub=False)
        self.assertEqual(
            [entry.capability for entry in self.read(CAPABILITY_LIST).entries],
            ["resourcelist", "changelist"],
        )
        self.assertEqual(self.pushed, [])
        self.assertFalse(self.path(CHANNEL).exists())

    def test_what_is_there_at_first_is_listed_and_no_change(self) -> None:
        content = b"<weblogUpdates>...</weblogUpdates>"
        self.put(SECOND, content, NOON - 7)
        self.put(FIRST)
        self.put("/changes.xml")
        self.put("/2026/09/29/12.xml.gz")
        self.start()
        listed = self.read(RESOURCE_LIST)
        self.assertEqual(listed.at, iso_time(NOON + 30))
        self.assertEqual(self.resources(), [FIRST, SECOND])
        second = codec.ResourceEntry(
            BROKER + SECOND,
            lastmod=iso_time(NOON - 7),
            hash=f"sha-256:{sha256(content).hexdigest()}",
            length=len(content),
            type="text/xml",
        )
        self.assertEqual(listed.entries[1], second)
        self.assertEqual(self.read(CHANGE_LIST).since, iso_time(NOON + 30))
        self.assertEqual(self.changes(), [])

    def test_a_new_archive(self) -> None:
        self.put(FIRST)
        sink = self.start()
        self.clock.advance(20)
        self.bus.events.clear()
        self.put(SECOND)
        self.publish(sink, SECOND)
        told = [FilePublished(path, About(NOON + 50)) for path in (CHANGE_LIST, RESOURCE_LIST)]
        self.assertEqual(self.bus.events, told)
        self.assertEqual(self.resources(), [FIRST, SECOND])
        self.assertEqual(self.read(RESOURCE_LIST).at, iso_time(NOON + 50))
        change = self.read(CHANGE_LIST).entries[-1]
        self.assertEqual((change.change, change.datetime), ("created", iso_time(NOON + 50)))
        self.assertEqual(change.hash, self.read(RESOURCE_LIST).entries[-1].hash)
        self.assertEqual(self.read(CHANGE_LIST).since, iso_time(NOON + 30))

    def test_an_archive_made_again(self) -> None:
        """Its content is compared, since size and time may be the same."""
        self.put(FIRST, b"<a/>")
        sink = self.start()
        self.put(FIRST, b"<b/>")
        self.publish(sink, FIRST)
        self.assertEqual(self.changes(), [(FIRST, "updated")])
        (entry,) = self.read(RESOURCE_LIST).entries
        self.assertEqual(entry.hash, f"sha-256:{sha256(b'<b/>').hexdigest()}")

    def test_an_archive_that_is_the_same(self) -> None:
        self.put(FIRST)
        sink = self.start()
        before = self.read(RESOURCE_LIST)
        self.clock.advance(20)
        self.publish(sink, FIRST)
        self.assertEqual((self.read(RESOURCE_LIST), self.changes()), (before, []))

    def test_other_files_are_not_its_business(self) -> None:
        sink = self.start()
        self.publish(sink, FIRST)  # it is gone again
        self.assertEqual((self.resources(), self.changes()), ([], []))
        self.bus.events.clear()
        for path in ("/changes.xml", RESOURCE_LIST, "/2026/09/29/12.xml.gz", "/../1111/11/11/11"):
            self.publish(sink, path)
        self.assertEqual(self.bus.events, [])

    def test_changes_after_the_clock_was_set_back(self) -> None:
        sink = self.start()
        for path in (FIRST, SECOND):
            self.put(path)
            self.publish(sink, path)
            self.clock.set_wall(-3600)
        times = [entry.datetime for entry in self.read(CHANGE_LIST).entries]
        self.assertEqual(times, [iso_time(NOON + 30)] * 2)

    def test_long_lists_are_cut(self) -> None:
        self.patch(resourcesync, "MAX_RESOURCES", 2)
        self.patch(resourcesync, "MAX_CHANGES", 2)
        sink = self.start()
        for path in (FIRST, SECOND, THIRD):
            self.clock.advance(1)
            self.put(path)
            self.publish(sink, path)
        self.assertEqual(self.resources(), [SECOND, THIRD])
        self.assertEqual(self.changes(), [(SECOND, "created"), (THIRD, "created")])
        self.assertEqual(
            self.read(CHANGE_LIST).since, iso_time(NOON + 31), "that of the last left out"
        )


class RestartTests(ResourceSyncTestCase):
    def restart(self, **parts: Any) -> None:
        self.clock.advance(5)
        self.start(**parts).stopService()

    def test_nothing_happened_meanwhile(self) -> None:
        self.put(FIRST)
        self.restart()
        made = {path: self.path(path).getContent() for path in (RESOURCE_LIST, CHANGE_LIST)}
        self.pushed.clear()
        self.restart()
        self.assertEqual(made, {path: self.path(path).getContent() for path in made})
        self.assertEqual(self.pushed, [])

    def test_archives_came_changed_and_went(self) -> None:
        self.put(FIRST)
        self.put(SECOND)
        self.restart()
        self.path(FIRST).remove()
        self.put(SECOND, b"<other/>")
        self.put(THIRD)
        self.restart()
        self.assertEqual(self.resources(), [SECOND, THIRD])
        expected = [(FIRST, "deleted"), (SECOND, "updated"), (THIRD, "created")]
        self.assertEqual(self.changes(), expected)
        self.assertEqual(len(self.pushed), 2)

    def test_the_oldest_of_too_many_is_not_deleted(self) -> None:
        self.patch(resourcesync, "MAX_RESOURCES", 2)
        self.put(FIRST)
        self.put(SECOND)
        self.restart()
        self.put(THIRD)
        self.restart()
        self.assertEqual(self.resources(), [SECOND, THIRD])
        self.assertEqual(self.changes(), [(THIRD, "created")])

    def test_an_archive_that_this_node_has_yet_to_copy(self) -> None:
        self.put(FIRST)
        self.put(SECOND)
        self.restart()
        for path in (FIRST, SECOND):
            self.path(path).remove()
        key = self.successResultOf(self.store.begin_document(FIRST, NOON))
        self.successResultOf(self.store.finish_document(key, 1, 1))
        self.restart()
        self.assertEqual((self.resources(), self.changes()), ([FIRST], [(SECOND, "deleted")]))

    def test_a_crash_between_the_lists(self) -> None:
        """The resource list is updated by the changes; none is listed twice."""
        sink = self.start()
        before = self.path(RESOURCE_LIST).getContent()
        self.put(FIRST)
        self.publish(sink, FIRST)
        sink.stopService()
        self.path(RESOURCE_LIST).setContent(before)
        self.pushed.clear()
        self.restart()
        self.assertEqual((self.resources(), self.changes()), ([FIRST], [(FIRST, "created")]))
        self.assertEqual(len(self.pushed), 1)

    def test_a_list_that_is_lost_or_torn(self) -> None:
        self.put(FIRST)
        for path in (RESOURCE_LIST, CHANGE_LIST):
            for spoil in (
                lambda file: file.remove(),
                lambda file: file.setContent(file.getContent()[:-20]),
            ):
                self.restart()
                spoil(self.path(path))
                self.restart()
                self.assertEqual((self.resources(), self.changes()), ([FIRST], []))
                self.assertEqual(self.read(CHANGE_LIST).since, iso_time(self.clock.wall_seconds()))

    def test_there_is_a_hub_from_now_on(self) -> None:
        self.restart(has_hub=False)
        self.assertFalse(self.path(CHANNEL).exists())
        self.restart()
        self.assertEqual(len(self.pushed), 1)
        self.assertTrue(self.path(CHANNEL).exists())

    def test_another_address(self) -> None:
        self.put(FIRST)
        self.restart()
        self.restart(public_url="https://other.example")
        for path in (DESCRIPTION, CAPABILITY_LIST, RESOURCE_LIST, CHANGE_LIST, CHANNEL):
            content = self.path(path).getContent()
            self.assertNotIn(BROKER.encode(), content)
            self.assertIn(b"https://other.example/", content)
        self.assertEqual(self.changes(), [])


class ChannelTests(ResourceSyncTestCase):
    def test_a_notification(self) -> None:
        sink = self.start()
        self.pushed.clear()
        self.put(FIRST)
        self.publish(sink, FIRST)
        ((topic, content, at),) = self.pushed
        self.assertEqual((topic, at), (BROKER + CHANNEL, About(NOON + 30)))
        self.assertEqual(content.content_type, "application/xml")
        found = links.parse(content.link)
        for relation, url in (
            ("self", BROKER + CHANNEL),
            ("hub", f"{BROKER}/websub"),
            ("resourcesync", BROKER + CAPABILITY_LIST),
        ):
            self.assertEqual(links.targets(found, relation), [url])
        notification = codec.decode_notification(content.body)
        self.assertEqual(codec.first_link(notification.links, "up"), BROKER + CAPABILITY_LIST)
        now = iso_time(NOON + 30)
        expected = (
            codec.ResourceEntry(BROKER + RESOURCE_LIST, "resourcelist", "created", now),
            codec.ResourceEntry(BROKER + CHANGE_LIST, "changelist", "updated", now),
        )
        self.assertEqual(notification.entries, expected)
        self.assertEqual(self.path(CHANNEL).getContent(), content.body, "can be read there too")

    def test_subscribers_are_told(self) -> None:
        self.start()
        ((_, content, _),) = self.pushed
        notification = codec.decode_notification(content.body)
        self.assertEqual([entry.change for entry in notification.entries], ["created", "created"])
        changed = TopicChanged(BROKER + CHANNEL, About(NOON + 30))
        self.assertNotIn(changed, self.bus.events, "there is no subscriber")
        callback = Callback("http://reader.example/", "websub")
        subscription = Subscription(BROKER + CHANNEL, callback, Lease(NOON, 90_000))
        self.successResultOf(self.store.put_subscription(subscription))
        self.put(FIRST)
        self.publish(self.start(), FIRST)
        self.assertIn(changed, self.bus.events)
        (fanout,) = self.successResultOf(self.store.fanouts(10))
        self.assertEqual(fanout.topic, BROKER + CHANNEL)

    def test_the_store_fails_for_a_minute(self) -> None:
        self.start()
        self.pushed.clear()
        sink = self.start()
        self.put(FIRST)
        self.failure = Unavailable("the database is locked")
        with capturedLogs() as logs:
            self.successResultOf(sink.handle(FilePublished(FIRST, NOON)))
            self.assertEqual(self.changes(), [(FIRST, "created")])
            self.clock.advance(30)
        expected = ["resourcesync: the database is locked; it is tried again in its next turn."]
        self.assertEqual([formatEvent(line) for line in logs], expected)
        self.failure = None
        self.clock.advance(60)
        self.assertEqual(len(self.pushed), 1)
        self.clock.advance(60)
        self.assertEqual(len(self.pushed), 1, "once is enough")

    def test_the_disk_is_full_for_a_minute(self) -> None:
        sink = self.start()
        self.put(FIRST)
        self.pushed.clear()
        patch = fill_disk(self)
        self.successResultOf(sink.handle(FilePublished(FIRST, NOON)))
        self.assertEqual((self.resources(), self.pushed), ([], []))
        patch.restore()
        self.clock.advance(30)
        self.assertEqual((self.resources(), len(self.pushed)), ([FIRST], 1))
        self.assertEqual(
            [name for name in self.path("/resourcesync").listdir() if ".part" in name], []
        )

    def test_events_that_come_together_are_handled_one_after_the_other(self) -> None:
        waiting: list[Deferred[None]] = []

        async def in_thread(function: Any, *args: Any) -> Any:
            gate: Deferred[None] = Deferred()
            waiting.append(gate)
            await gate
            return function(*args)

        sink = self.start(in_thread=in_thread)
        handled = []
        for path in (FIRST, SECOND):
            self.put(path)
            handled.append(Deferred.fromCoroutine(sink.handle(FilePublished(path, NOON))))
        self.assertEqual(len(waiting), 1)
        for gate in waiting:  # it grows while the run goes on
            gate.callback(None)
        for each in handled:
            self.successResultOf(each)
        self.assertEqual(self.resources(), [FIRST, SECOND])
