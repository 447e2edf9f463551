"""Callers wait for the fetch of another node that has claimed the check of their topic."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, select, update
from twisted.internet.defer import Deferred

from rsscloud_broker.core.remote_fetches import LONGEST, LOOK
from rsscloud_broker.errors import TopicUnreadable, Unavailable
from rsscloud_broker.events import WorkHinted
from rsscloud_broker.model import FetchResult, Ping
from rsscloud_broker.model.ways import ChangeSource, Way
from rsscloud_broker.model.work import CheckState, FetchRecord
from rsscloud_broker.storage.check_claims import put_off_check
from rsscloud_broker.storage.nodes import leave
from rsscloud_broker.storage.schema import node, subscription, topic
from rsscloud_broker.util.retry import UNAVAILABLE_PAUSE
from tests.core.house import FEED, CoreTestCase
from tests.storage.waiting import PINGED

#: The id of the other node.
OTHER = 1000


class ElsewhereTests(CoreTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.subscribe()
        self.fetch()
        self.detector.reader.forget(FEED)
        self.detector.set_node_count(2)
        self.start()
        self.clock.advance(100)
        del self.fetcher.fetched[:]
        self.write(lambda conn: conn.execute(node.insert().values(id=OTHER, name="other")))
        self.store_ping()
        self.change(check_node_id=OTHER)

    def write(self, operation: Any) -> None:
        self.result(self.store._database.write(operation))

    def change(self, **values: Any) -> None:
        """Change the topic, as the other node does."""
        self.write(lambda conn: conn.execute(update(topic).values(values)))

    def ping(self) -> Deferred[FetchRecord]:
        """Ping the topic, and wait for the result."""
        return self.detector.check_now(FEED, pinged=True)

    def read_elsewhere(self, content: bytes) -> None:
        """The other node fetches the topic."""
        now = self.clock.wall_seconds()
        self.result(self.store.record_fetch(FetchResult(FEED, content * 32, 1, now), None))

    def key(self) -> int:
        """The id of the topic."""

        def find(conn: Connection) -> int:
            return int(conn.execute(select(topic.c.id).where(topic.c.url == FEED)).scalar_one())

        return int(self.result(self.store._database.read(find)))

    def hint(self) -> None:
        hinted = WorkHinted("read", self.key())
        self.result(self.detector.others.handle(hinted))

    def test_ping_is_answered_by_the_fetch_of_the_other_node(self) -> None:
        for content, changed in ((b"2", True), (b"2", False)):
            self.change(check_node_id=OTHER, check_requested_at=1)
            asked = self.ping()
            self.assertNoResult(asked)
            self.clock.advance(0.5)
            self.read_elsewhere(content)
            self.hint()
            record = self.result(asked)
            self.assertEqual((record.changed, record.news), (changed, changed))
        self.assertEqual((self.fetcher.fetched, self.due()), ([], []))

    def test_what_another_node_fetches_for_private_followers_answers_nothing(self) -> None:
        self.write(lambda conn: conn.execute(update(subscription).values(protocol="river")))
        asked = self.detector.check_now(FEED, pinged=True, way=Way.RSSCLOUD)
        self.result(asked)
        self.assertEqual(self.fetcher.fetched, [FEED])

    def test_a_ping_is_listed_that_joins_a_fetch_for_private_followers(self) -> None:
        self.change(check_way="followed")
        origin = "http://other.example"
        self.detector.check_now(FEED, pinged=True, origin=origin, way=Way.RSSCLOUD)
        self.clock.advance(0.1)
        now = self.clock.wall_seconds()
        found = FetchResult(FEED, b"2" * 32, 1, now, pinged=True, way=Way.FOLLOWED)
        self.result(self.store.record_fetch(found, Ping(FEED, FEED, now)))
        self.assertEqual(self.pings()[0].origin, origin)

    def test_hint_of_an_earlier_fetch_answers_nothing(self) -> None:
        asked = self.ping()
        self.hint()
        self.assertNoResult(asked)
        self.clock.advance(0.1)
        self.read_elsewhere(b"2")
        self.assertNoResult(asked)
        self.clock.advance(LOOK)
        self.assertTrue(self.result(asked).changed, "although the hint was lost")

    def test_a_check_that_is_claimed_here_meanwhile_is_handled_here(self) -> None:
        """The other node has answered its check, and this one claims the next, while a caller still
        learns that the other had it.
        """
        held: Deferred[int | None] = Deferred()
        join, key = self.store.join_check, self.key()
        self.patch(self.store, "join_check", lambda *asked: held)
        asked = self.ping()
        self.read_elsewhere(b"2")
        self.claim_check()
        self.patch(self.store, "join_check", join)
        held.callback(key)
        self.clock.advance(LOOK)
        self.result(asked)
        self.assertEqual((self.fetcher.fetched, self.due()), ([FEED], []))

    def test_check_that_is_claimed_here_meanwhile_outlives_a_failure_of_the_store(self) -> None:
        """The store becomes unavailable while it is asked whether another node has the topic."""
        self.write(lambda conn: leave(conn, OTHER))
        held: Deferred[int | None] = Deferred()
        join = self.store.join_check
        self.patch(self.store, "join_check", lambda *asked: held)
        asked = self.ping()
        self.claim_check()
        self.patch(self.store, "join_check", join)
        held.errback(Unavailable("it is down"))
        self.failureResultOf(asked, Unavailable)
        self.clock.advance(UNAVAILABLE_PAUSE)
        self.assertEqual((self.fetcher.fetched, self.due()), ([FEED], []))

    def test_failure_is_told(self) -> None:
        asked = self.ping()
        self.clock.advance(0.1)
        failing = self.store.record_failure(FEED, self.clock.wall_seconds(), "status 500")
        self.result(failing)
        self.hint()
        self.assertEqual(self.failureResultOf(asked, TopicUnreadable).value.reason, "status 500")
        now = self.clock.wall_seconds()
        self.write(lambda conn: put_off_check(conn, OTHER, FEED, 1, now + 5, now))
        self.result(self.ping())
        self.assertEqual(self.fetcher.fetched, [FEED], "it no longer waits for the other node")

    def test_topic_of_a_node_that_dies_is_fetched_here(self) -> None:
        asked = self.ping()
        self.write(lambda conn: leave(conn, OTHER))
        self.clock.advance(LOOK)
        self.assertFalse(self.result(asked).changed)
        self.assertEqual(self.fetcher.fetched, [FEED])

    def test_node_that_takes_long_is_not_waited_for(self) -> None:
        asked = self.ping()
        self.clock.pump([LOOK] * int(LONGEST))
        self.result(asked)
        self.assertEqual(self.fetcher.fetched, [FEED])

    def test_ping_that_is_stored_here_is_left_to_the_other_node(self) -> None:
        state = self.store_ping()
        self.assertIs(state, CheckState.ELSEWHERE)
        self.detector.schedule(FEED, state)
        self.assertEqual(self.fetcher.fetched, [])

    def count_writes(self) -> list[object]:
        """A list that gets each operation that is written from now on."""
        written: list[object] = []
        write = self.store._database.write

        def counted(operation: Any) -> Any:
            written.append(operation)
            return write(operation)

        self.patch(self.store._database, "write", counted)
        return written

    def test_nothing_is_written_to_learn_that_no_other_node_has_the_topic(self) -> None:
        self.write(lambda conn: leave(conn, OTHER))
        written = self.count_writes()
        joined = self.store.join_check(FEED, self.clock.wall_seconds(), PINGED)
        self.assertIsNone(self.result(joined))
        self.assertEqual(written, [])

    def test_who_waits_writes_once(self) -> None:
        for pinged in (False, True):
            written = self.count_writes()
            asked = self.detector.check_now(FEED, pinged=pinged)
            self.clock.pump([LOOK] * 5)
            self.assertNoResult(asked)
            self.assertEqual(len(written), 1)
            self.clock.advance(0.1)
            self.read_elsewhere(b"2")
            self.clock.advance(LOOK)
            self.result(asked)
            self.change(check_node_id=OTHER, check_requested_at=1)

    def test_ping_is_told_to_a_node_that_knows_only_of_a_poll(self) -> None:
        at = self.clock.wall_seconds()
        self.change(check_pinged=False)
        for pinged, writes in ((False, 1), (False, 0), (True, 1), (True, 0), (False, 0)):
            written = self.count_writes()
            joined = self.store.join_check(FEED, at, ChangeSource(pinged=pinged))
            self.assertIsNotNone(self.result(joined))
            self.assertEqual(len(written), writes)

    def test_publish_is_listed_by_whichever_node_finds_the_change(self) -> None:
        before = len(self.pings())
        asking = self.store.request_check(FEED, self.clock.wall_seconds(), True)
        self.assertIs(self.result(asking), CheckState.ELSEWHERE)
        self.clock.advance(1)
        self.fetcher.contents[FEED] = b"new"
        found = FetchResult(FEED, b"2" * 32, 1, self.clock.wall_seconds())
        self.assertIsNotNone(self.result(self.detector.record(found)).ping)
        self.assertEqual(len(self.pings()), before + 1)

    def test_one_node_alone_waits_for_nobody(self) -> None:
        self.detector.set_node_count(1)
        self.result(self.ping())
        self.assertEqual(self.fetcher.fetched, [FEED])
