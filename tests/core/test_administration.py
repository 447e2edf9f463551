"""The verbs of administrators: what they return, store and publish, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from attrs import evolve
from twisted.internet.defer import fail

from rsscloud_broker.accounts import AccountAdministration
from rsscloud_broker.core import Administration, Blocks
from rsscloud_broker.core.administration import MAX_LIMIT
from rsscloud_broker.core.following import AT_ONCE, MAX_ANNOUNCEMENTS
from rsscloud_broker.errors import Forbidden, TopicUnreadable, Unadministrable, Unavailable
from rsscloud_broker.events import Administered, HostFreed, SubscriptionRemoved, TopicEnded
from rsscloud_broker.interfaces import ServedTopics
from rsscloud_broker.model import Content
from rsscloud_broker.model.administration import STATES, Change, SubscriptionFilter
from rsscloud_broker.model.values import HIDDEN
from rsscloud_broker.model.work import HostState
from rsscloud_broker.testing import RecordingBus
from rsscloud_broker.testing.memory import memory_accounts
from rsscloud_broker.util.threads import Workers
from tests.core.house import CALLBACK, FEED, NOW, BrokerTestCase

OTHER = "http://feeds.example/other.xml"
PUSHED = "http://pushed.example/feed"
NOBODY = 4711


class AdministrationTestCase(BrokerTestCase):
    pushes = ("http://pushed.example/",)

    def setUp(self) -> None:
        super().setUp()
        self.served: list[ServedTopics] = []
        self.administration = self.make(self.bus, self.blocks)

    def make(self, bus: RecordingBus, blocks: Blocks) -> Administration:
        """The administration of a process on the same store."""
        made = Administration(
            self.store,
            bus,
            self.detector,
            self.clock,
            blocks,
            self.counters,
            lambda: {"distribution": 3},
            (Workers(self.clock, "files", 2),),  # type: ignore[arg-type] # it starts no thread
            AccountAdministration(memory_accounts(), self.clock, "https://broker.example"),
            lambda: self.served,
        )
        made.following.startService()
        self.addCleanup(made.following.stopService)
        return made

    def assert_done(self, verb: str, what: str, reason: str = "") -> None:
        """Check that the last change was stored and published, once."""
        (change,) = self.result(self.administration.changes(limit=1))
        found = (change.account, change.verb, change.object, change.reason)
        self.assertEqual(found, ("alice", verb, what, reason))
        event = Administered("alice", verb, what, reason, change.at)
        self.assertEqual(self.published(Administered)[-1:], [event])
        self.assertEqual(self.published(Administered).count(event), 1)

    def assert_refused(
        self, call: Coroutine[Any, Any, object], words: str, *, missing: bool = False
    ) -> None:
        """Check that a verb is refused and neither stored nor published."""
        before = self.result(self.administration.changes())
        error = self.refusal(call, Unadministrable)
        self.assertIn(words, str(error))
        self.assertEqual(error.missing, missing)
        self.assertEqual(self.result(self.administration.changes()), before)


class SubscriptionVerbTests(AdministrationTestCase):
    def test_found_in_any_spelling(self) -> None:
        one = self.subscribe()
        for wanted in (
            SubscriptionFilter(),
            SubscriptionFilter(topic=f" {FEED.replace('feeds', 'FEEDS')}"),
            SubscriptionFilter(host="Reader.example:80"),
            SubscriptionFilter(host=CALLBACK.url),
            SubscriptionFilter(protocol="http-post", state="active"),
        ):
            page = self.result(self.administration.find_subscriptions(wanted))
            self.assertEqual((page.subscriptions, page.after), ((one,), None), wanted)

    def test_what_cannot_be_looked_for(self) -> None:
        find = self.administration.find_subscriptions
        self.assert_refused(find(SubscriptionFilter(topic="feeds.example")), "http://")
        self.assert_refused(find(SubscriptionFilter(host="a b")), "names no host")
        self.assert_refused(find(SubscriptionFilter(state="x")), ", ".join(STATES))
        for limit in (0, MAX_LIMIT + 1):
            self.assert_refused(find(SubscriptionFilter(), limit=limit), f"1 to {MAX_LIMIT}")

    def test_secrets_are_hidden(self) -> None:
        options = {"secret": "sesame", "method": "sha256", "hub": "http://h.example/", "new": "x"}
        stored = self.result(
            self.store.put_subscription(evolve(self.subscribe(), id=0, options=options))
        )
        shown = options | {"secret": HIDDEN, "new": HIDDEN}
        found = self.result(self.administration.subscription(stored.id))
        page = self.result(self.administration.find_subscriptions(SubscriptionFilter()))
        self.assertEqual(found.subscription.options, shown)
        self.assertEqual([one.options for one in page.subscriptions], [shown])

    def test_unknown_subscription(self) -> None:
        verbs = self.administration
        for call in (
            verbs.subscription(NOBODY),
            verbs.redeliver("alice", NOBODY),
            verbs.remove_subscription("alice", NOBODY),
            verbs.mark("alice", NOBODY),
            verbs.unmark("alice", NOBODY),
        ):
            self.assert_refused(call, f"no subscription {NOBODY}", missing=True)

    def test_nobody_changes_anything(self) -> None:
        one = self.subscribe()
        self.assert_refused(self.administration.mark("", one.id), "name of the account")
        self.assert_refused(self.administration.mark("alice", one.id, "x" * 501), "500")

    def test_redeliver(self) -> None:
        one = self.subscribe()
        found = self.result(self.administration.redeliver("alice", one.id, "asked\nby mail"))
        assert found.pending is not None
        self.assertEqual(found.pending.attempts, 0)
        self.assert_done("redeliver", str(one.id), "asked by mail")

    def test_nothing_to_redeliver(self) -> None:
        """Content that was pushed cannot be fetched."""
        wanted = evolve(self.subscribe(PUSHED), id=0, wants_content=True)
        one = self.result(self.store.put_subscription(wanted))
        self.assert_refused(self.administration.redeliver("alice", one.id), "nothing to deliver")
        self.result(self.store.push_content(PUSHED, Content(b"new"), NOW))
        self.result(self.administration.redeliver("alice", one.id))

    def test_remove(self) -> None:
        one = self.subscribe()
        self.result(self.administration.remove_subscription("alice", one.id, "spam"))
        self.assertEqual(self.subscriptions(), [])
        removed = SubscriptionRemoved(FEED, CALLBACK, account="alice")
        self.assertEqual(self.published(SubscriptionRemoved), [removed])
        self.assert_done("remove", str(one.id), "spam")

    def test_mark_and_unmark(self) -> None:
        one = self.subscribe()
        self.result(self.administration.mark("alice", one.id))
        self.assertTrue(self.subscriptions()[0].dropping)
        self.assert_done("mark", str(one.id))
        self.result(self.administration.unmark("alice", one.id))
        self.assertFalse(self.subscriptions()[0].dropping)
        self.assert_done("unmark", str(one.id))

    def test_a_blocked_host_is_shown(self) -> None:
        one = self.subscribe()
        block = self.result(self.administration.block("alice", "host", CALLBACK.host, "spam"))
        self.assertEqual(self.result(self.administration.subscription(one.id)).block, block)


class TopicVerbTests(AdministrationTestCase):
    def test_unknown_topic(self) -> None:
        verbs = self.administration
        for call in (
            verbs.topic(FEED),
            verbs.revive_topic("alice", FEED),
            verbs.end_topic("alice", FEED, "gone"),
            verbs.move_topic("alice", FEED, OTHER),
        ):
            self.assert_refused(call, f"knows no topic {FEED}", missing=True)
        self.assert_refused(verbs.topic("feeds.example"), "http://")

    def test_read(self) -> None:
        self.subscribe()
        reading = self.result(self.administration.read_topic("alice", FEED.upper()[:5] + FEED[5:]))
        self.assertEqual((reading.changed, reading.problem), (True, ""))
        self.assertEqual(reading.status, self.result(self.administration.topic(FEED)).status)
        self.assert_done("read", FEED)
        self.assertFalse(self.result(self.administration.read_topic("alice", FEED)).changed)

    def test_read_that_fails(self) -> None:
        self.fetcher.failures[OTHER] = TopicUnreadable(OTHER, "status 404")
        reading = self.result(self.administration.read_topic("alice", OTHER, "why?"))
        self.assertEqual((reading.changed, reading.problem), (False, "status 404"))
        self.assert_done("read", OTHER, "why?")

    def test_end_and_revive(self) -> None:
        self.subscribe()
        self.result(self.broker.ping_topic(FEED, ""))  # so it is cached
        del self.fetcher.fetched[:]
        self.assert_refused(self.administration.revive_topic("alice", FEED), "has not ended")
        self.assert_refused(self.administration.end_topic("alice", FEED, " "), "reason is needed")
        self.result(self.administration.end_topic("alice", FEED, "it is spam"))
        self.assert_done("end", FEED, "it is spam")
        (ended,) = self.published(TopicEnded)
        self.assertEqual((ended.topic, ended.reason), (FEED, "it is spam"))
        self.assert_refused(self.administration.end_topic("alice", FEED, "x"), "ended already")
        self.refusal(self.broker.ping_topic(FEED, ""), TopicUnreadable)
        self.result(self.administration.revive_topic("alice", FEED))
        self.assert_done("revive", FEED)
        self.assertEqual(self.result(self.administration.topic(FEED)).status.topic.ended, "")
        self.assertEqual(self.fetcher.fetched, [FEED])  # soon, since somebody subscribed

    def test_take_down(self) -> None:
        taken: list[tuple[str, str]] = []

        async def read(url: str) -> None:
            return None

        async def take_down(url: str, reason: str, record: Callable[[Any], None]) -> bool:
            if not url.endswith("rss.xml"):
                return False
            await self.store._database.write(record)
            taken.append((url, reason))
            return True

        base = "http://broker.example/feeds/"
        self.served += [
            ServedTopics(base, read, take_down),
            ServedTopics("http://broker.example/", read),
        ]
        verb = self.administration.take_down
        self.assert_refused(verb("alice", f"{base}rss.xml", " "), "reason is needed")
        for url in (f"{base}none", "http://broker.example/rss.xml"):
            self.assert_refused(verb("alice", url, "spam"), "publishes anything at", missing=True)
        self.assertEqual(taken, [])
        self.result(verb("alice", "HTTP://broker.example:80/feeds/rss.xml", "it is spam"))
        self.assertEqual(taken, [(f"{base}rss.xml", "it is spam")])
        self.assert_done("take down", f"{base}rss.xml", "it is spam")

    def test_taken_down_of_an_account(self) -> None:
        async def nothing(*given: Any) -> None:
            return None

        base = "http://broker.example/people/"
        self.served.append(ServedTopics(base, nothing, nothing))  # type: ignore[arg-type] # unused
        for url in (f"{base}dave/1", f"{base}dave2/1", "http://else.example/people/dave/4"):
            self.result(self.store.record_change(Change("alice", "take down", url, "spam", 5.0)))
        for since, urls in ((0.0, [f"{base}dave/1"]), (6.0, [])):  # another one had the name before
            found = self.result(self.administration.taken_down("dave", since))
            self.assertEqual([each.object for each in found], urls)

    def test_move(self) -> None:
        self.subscribe()
        self.fetcher.contents[OTHER] = b"<rss>2</rss>"
        self.result(self.administration.move_topic("alice", FEED, OTHER, "they asked"))
        self.assert_done("move", f"{FEED} {OTHER}", "they asked")
        status = self.result(self.administration.topic(FEED)).status
        self.assertEqual((status.topic.url, status.moved_from), (OTHER, (FEED,)))
        self.assertEqual(self.fetcher.fetched, [OTHER])
        for to in (OTHER, FEED):  # it is there, and came from there
            self.assert_refused(self.administration.move_topic("alice", OTHER, to), "cannot move")
        self.assert_refused(self.administration.move_topic("alice", FEED, PUSHED), "is pushed")

    def test_a_verb_is_recorded_with_what_it_does(self) -> None:
        """They are one transaction, so a failure between them cannot lose the record."""
        self.subscribe()
        self.store.record_change = lambda change: fail(Unavailable("the disk is full"))
        self.result(self.administration.end_topic("alice", FEED, "it is spam"))
        self.assert_done("end", FEED, "it is spam")
        self.result(self.administration.revive_topic("alice", FEED))
        self.assert_done("revive", FEED)
        self.result(self.administration.move_topic("alice", FEED, OTHER))
        self.assert_done("move", f"{FEED} {OTHER}")


class BlockVerbTests(AdministrationTestCase):
    def test_at_once(self) -> None:
        for kind, what, name in (
            ("topic", FEED.upper()[:4] + FEED[4:], FEED),
            ("host", "FEEDS.example", "feeds.example"),
            ("source", "192.0.2.7", "192.0.2.7/32"),
        ):
            block = self.result(self.administration.block("alice", kind, what, " spam\n"))
            self.assertEqual((block.object, block.reason), (name, "spam"))
            self.assert_done("block", f"{kind} {name}", "spam")
            self.assertEqual(self.result(self.administration.blocks(kind)), [block])
            error = self.refusal(self.broker.ping_topic(FEED, "192.0.2.7"), Forbidden)
            self.assertIn("is blocked here: spam", str(error))
            if kind != "source":  # nor is it polled
                failure = self.failureResultOf(self.detector.check_now(FEED), TopicUnreadable)
                self.assertIn("is blocked here: spam", str(failure.value))
            self.result(self.administration.unblock("alice", kind, what, "sorry"))
            self.assert_done("unblock", f"{kind} {name}", "sorry")
            self.result(self.broker.ping_topic(FEED, "192.0.2.7"))
        self.assertEqual(self.published(HostFreed), [HostFreed("feeds.example")])

    def test_refused(self) -> None:
        verbs = self.administration
        self.assert_refused(verbs.block("alice", "host", "a.example", ""), "reason is needed")
        self.assert_refused(verbs.block("alice", "x", "a.example", "y"), "host, topic, source")
        self.assert_refused(verbs.blocks("x"), "host, topic, source")
        self.assert_refused(
            verbs.unblock("alice", "host", "a.example"), "no block of the host", missing=True
        )

    def test_breakers(self) -> None:
        states = [HostState("reader.example:8000", 7, NOW + 600)]
        self.result(self.store.record_hosts(states))
        self.assertEqual(self.result(self.administration.hosts()), states)
        self.result(self.administration.close_breaker("alice", "reader.example:8000", "fixed"))
        self.assert_done("close breaker", "reader.example", "fixed")
        self.assertEqual(self.result(self.administration.hosts()), [])
        self.assertEqual(self.published(HostFreed), [HostFreed("reader.example")])


class BrokerVerbTests(AdministrationTestCase):
    def test_state(self) -> None:
        self.counters.in_flight.set(7)
        state = self.result(self.administration.state())
        self.assertEqual(state.numbers["notifications under way"], 7)
        self.assertEqual(state.numbers["topics waiting in the database"], 0)
        self.assertEqual(state.queues, {"distribution": 3})
        self.assertEqual((state.workers["files"].waiting, state.workers["files"].running), (0, 0))
        self.assertEqual([node.here for node in state.nodes], [True])

    def test_jobs_that_stand_still(self) -> None:
        now = self.clock.wall_seconds()
        (node,) = self.result(self.administration.state()).nodes
        due = node.started_at + 60
        for name, due_at in (("late", due), ("before the start", node.started_at - 60)):
            self.result(self.store.claim_job(name, now, 60.0))
            self.result(self.store.finish_job(name, due_at))
        late = self.result(self.administration.state()).late_jobs
        self.assertNotIn("late", late if now <= due + 900 else {})
        self.clock.advance(max(0.0, due + 901 - now))
        # What was due before the start has had a quarter of an hour too.
        both = {"late": due, "before the start": node.started_at - 60}
        self.assertEqual(self.result(self.administration.state()).late_jobs, both)

    def current(self) -> list[str]:
        return [one.text for one in self.administration.following.current()]

    def test_announcements(self) -> None:
        now = self.clock.wall_seconds()
        first = self.result(self.administration.announce("alice", "We move\ntoday."))
        self.assert_done("announce", "We move today.")
        self.result(self.administration.announce("alice", "Later", now + 100, now + 200))
        self.assertEqual(self.current(), ["We move today."])
        self.clock.advance(150)
        self.assertEqual(self.current(), ["We move today.", "Later"])
        self.result(self.administration.withdraw("alice", first.id))
        self.assert_done("withdraw", str(first.id))
        self.assertEqual(self.current(), ["Later"])
        self.clock.advance(100)
        self.assertEqual(self.current(), [])
        texts = [one.text for one in self.result(self.administration.announcements())]
        self.assertEqual(texts, ["Later"])

    def test_refused_announcements(self) -> None:
        verbs, now = self.administration, self.clock.wall_seconds()
        for text in ("", " ", "x" * 1001):
            self.assert_refused(verbs.announce("alice", text), "1 to 1000 characters")
        self.assert_refused(verbs.announce("alice", "x", until=now - 1), "in the future")
        self.assert_refused(verbs.announce("alice", "x", now + 5, now + 4), "after it begins")
        self.assert_refused(verbs.withdraw("alice", 5), "no announcement 5", missing=True)
        for number in range(MAX_ANNOUNCEMENTS):
            self.result(verbs.announce("alice", str(number)))
        self.assert_refused(verbs.announce("alice", "x"), "as many as may be")


class OtherProcessTests(AdministrationTestCase):
    """What is changed in one process works in another after a moment, and is published once."""

    def setUp(self) -> None:
        super().setUp()
        self.other_bus, self.other_blocks = RecordingBus(), Blocks()
        self.other = self.make(self.other_bus, self.other_blocks)

    def wait(self) -> None:
        for _ in range(30):
            self.clock.advance(0.1)

    def test_blocks_breakers_and_announcements(self) -> None:
        self.result(self.administration.block("alice", "host", "spam.example", "spam"))
        self.result(self.administration.close_breaker("alice", "reader.example"))
        self.result(self.administration.announce("alice", "We move."))
        self.assertIsNone(self.other_blocks.of_host("spam.example"))
        self.wait()
        self.assertIsNotNone(self.other_blocks.of_host("spam.example"))
        self.assertEqual(self.published(HostFreed, self.other_bus), [HostFreed("reader.example")])
        self.assertEqual([one.text for one in self.other.following.current()], ["We move."])
        self.result(self.administration.unblock("alice", "host", "spam.example"))
        self.wait()
        self.assertIsNone(self.other_blocks.of_host("spam.example"))
        self.assertEqual(len(self.published(Administered)), 4)
        self.assertEqual(self.published(Administered, self.other_bus), [])

    def test_a_change_that_nobody_published(self) -> None:
        """A command may store a change by itself; then a broker publishes it."""
        change = Change("bob", "mark", "5", "", 1000.0)
        for _ in range(AT_ONCE + 5):
            self.result(self.store.record_change(change))
        self.wait()
        seen = self.published(Administered) + self.published(Administered, self.other_bus)
        self.assertEqual(len(seen), AT_ONCE + 5)

    def test_hosts_that_were_freed_shortly_before_the_start(self) -> None:
        """The process that was notified may have crashed before it made due what waited."""
        now = self.clock.wall_seconds()
        for verb, what, at in (
            ("unblock", "host long.example", now - 7200.0 - 1),
            ("unblock", "topic http://feeds.example/", now - 5),
            ("close breaker", "closed.example", now - 4),
            ("unblock", "host *.free.example", now - 3),
            ("close breaker", "closed.example", now - 2),
        ):
            self.result(self.store.record_change(Change("bob", verb, what, "", at)))
        bus = RecordingBus()
        self.make(bus, Blocks())
        freed = [HostFreed(name, True) for name in ("closed.example", "*.free.example")]
        self.assertEqual(self.published(HostFreed, bus), freed)
        self.assertEqual(len(self.published(Administered, bus)), 5)

    def test_a_store_that_cannot_be_read(self) -> None:
        working = self.store.changes_after
        self.store.changes_after = lambda *args: fail(Unavailable("the disk is full"))
        block = self.administration.block("alice", "host", "spam.example", "spam")
        self.result(block)  # it is stored
        self.assertIsNone(self.blocks.of_host("spam.example"))
        self.store.changes_after = working
        self.wait()
        self.assertIsNotNone(self.blocks.of_host("spam.example"))

    def test_publishing_that_failed_is_made_up_for(self) -> None:
        working = self.store.claim_unpublished
        self.store.claim_unpublished = lambda: fail(Unavailable("the disk is full"))
        self.result(self.administration.block("alice", "host", "spam.example", "spam"))
        self.wait()
        self.assertIsNotNone(self.other_blocks.of_host("spam.example"))
        self.store.claim_unpublished = working
        self.wait()
        seen = self.published(Administered) + self.published(Administered, self.other_bus)
        self.assertEqual([event.verb for event in seen], ["block"])

    def test_looks_at_the_same_time_follow_each_change_once(self) -> None:
        self.result(self.store.record_change(Change("bob", "close breaker", "a.example", "", 1.0)))
        for _ in range(3):
            self.result(self.administration.following.look())
        self.assertEqual(self.published(HostFreed), [HostFreed("a.example")])
