"""Tests change detection: requests share fetches, only a difference is a change, and every
request is answered.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred, fail
from twisted.logger import capturedLogs, formatEvent

from rsscloud_broker.errors import EndedTopic, TopicUnreadable, Unavailable
from rsscloud_broker.events import Event, PingReceived, TopicChanged
from rsscloud_broker.model import Ping
from rsscloud_broker.model.ways import ChangeSource, Way
from rsscloud_broker.util.retry import UNAVAILABLE_PAUSE
from tests.core.house import FEED, NOW, CoreTestCase
from tests.storage.waiting import PINGED


class CheckTests(CoreTestCase):
    def test_unchanged_content_publishes_nothing(self) -> None:
        self.fetch()
        del self.bus.events[:]
        self.clock.advance(5)
        record = self.fetch(pinged=True)
        self.assertFalse(record.changed)
        self.assertEqual(record.topic.read_at, NOW + 5)
        self.assertEqual((self.bus.events, self.pings()), ([], []))

    def test_a_change_is_stored_before_it_is_published(self) -> None:
        self.fetch()
        self.subscribe()
        stored: list[object] = []

        def look(event: Event) -> None:
            stored.extend(self.walks())
            stored.append(self.known())

        self.bus.on_publish = look
        self.fetcher.contents[FEED] = b"<rss>2</rss>"
        record = self.fetch()
        self.assertEqual(len(stored), 2)
        self.assertEqual(stored[-1], record.topic)

    def test_ping_is_recorded_when_the_topic_changed(self) -> None:
        record = self.fetch(pinged=True, way=Way.RSSCLOUD)
        (ping,) = self.pings()
        self.assertEqual(record.ping, ping)
        self.assertEqual((ping.name, ping.url, ping.rss_url), (FEED, FEED, FEED))
        self.assertEqual(self.bus.events, [PingReceived(ping), TopicChanged(FEED, NOW)])

    def test_a_ping_that_shares_a_check_is_recorded(self) -> None:
        self.fetcher.held = []
        checks = [self.detector.check_now(FEED), self.detector.check_now(FEED)]
        checks.append(self.detector.check_now(FEED, pinged=True, way=Way.RSSCLOUD))
        self.fetcher.held[0].callback(None)
        self.assertEqual(self.pings(), [])
        self.fetcher.contents[FEED] = b"<rss>2</rss>"
        self.fetcher.held[1].callback(None)
        for check in checks:
            self.assertTrue(self.result(check).changed)
        self.assertEqual(len(self.pings()), 1)

    def test_a_ping_of_an_unreadable_topic_does_not_linger(self) -> None:
        content = self.fetcher.contents.pop(FEED)
        self.failureResultOf(self.detector.check_now(FEED, pinged=True), TopicUnreadable)
        self.fetcher.contents[FEED] = content
        self.fetch()
        self.assertEqual(self.pings(), [])

    def test_started_at_is_when_the_fetch_began(self) -> None:
        self.fetcher.held = []
        check = self.detector.check_now(FEED)
        self.clock.advance(20)
        self.fetcher.held[0].callback(None)
        self.assertEqual(self.result(check).topic.read_at, NOW)

    def test_a_walk_begins_when_its_reading_was_asked_for(self) -> None:
        self.fetch()
        self.subscribe()
        self.fetcher.held = []
        for seconds in (1, 2):  # requests during the first fetch get the next one
            self.clock.advance(seconds)
            self.detector.check_now(FEED, pinged=True)
        self.clock.advance(10)
        self.fetcher.held[0].callback(None)
        self.fetcher.contents[FEED] = b"<rss>2</rss>"
        self.clock.advance(20)
        self.fetcher.held[1].callback(None)
        (walk,) = self.walks()
        self.assertEqual(walk.begun_at, NOW + 3)

    def test_a_host_that_says_nothing_holds_up_no_other(self) -> None:
        held: list[Deferred[None]] = []
        self.fetcher.held = held
        silent = [self.detector.read(f"http://silent.example/{n}") for n in range(150)]
        self.assertEqual(len(held), 10)
        silent += [
            self.detector.read(f"http://silent.example/of/{n}", source="192.0.2.7")
            for n in range(150)
        ]
        self.assertEqual(len(held), 15, "another source has half of what is left")
        self.fetcher.held = None
        self.result(self.detector.read(FEED))
        for gate in held:
            gate.callback(None)
        for read in silent:
            self.failureResultOf(read, TopicUnreadable)

    def test_unavailable_store(self) -> None:
        self.unavailable.add("record_fetch")
        self.failureResultOf(self.detector.check_now(FEED), Unavailable)
        self.assertEqual(self.bus.events, [])


class WaitingForASlotTests(CoreTestCase):
    """A source holds one of two slots, so its next fetch has to wait."""

    slots = under_way = 2

    def setUp(self) -> None:
        super().setUp()
        self.start()
        self.subscribe()
        self.fetcher.held = []
        self.failing = self.detector.read("http://silent.example/", source="192.0.2.1")
        (self.gate,) = self.fetcher.held
        self.fetcher.held = None

    def tearDown(self) -> None:
        self.gate.callback(None)
        self.failureResultOf(self.failing, TopicUnreadable)

    def test_whoever_asks_for_a_reading_that_waits_shares_it(self) -> None:
        for fails in (False, True):
            if fails:
                del self.fetcher.contents[FEED]
            waiting = self.detector.check_now(FEED, source="192.0.2.1")
            self.assertNoResult(waiting)
            mine = self.detector.check_now(FEED, pinged=True, source="198.51.100.7")
            for check in (waiting, mine):
                if fails:
                    self.failureResultOf(check, TopicUnreadable)
                else:
                    self.result(check)
        self.assertEqual(self.fetcher.fetched[1:], [FEED, FEED])
        self.assertEqual(len(self.pings()), 1)

    def test_a_ping_that_is_stored_is_answered_by_a_reading_that_waited(self) -> None:
        waiting = self.detector.check_now(FEED, source="192.0.2.1")
        self.store_ping()
        self.assertEqual(self.due(), [FEED])
        self.detector.schedule(FEED, source="198.51.100.7")
        self.result(waiting)
        self.assertEqual((self.fetcher.fetched[1:], self.due()), ([FEED], []))


class AskTestCase(CoreTestCase):
    """A watched topic that was fetched before, by a detector that a test may start."""

    def setUp(self) -> None:
        super().setUp()
        self.subscribe()
        self.fetch()
        del self.bus.events[:], self.fetcher.fetched[:]
        self.clock.advance(100)

    def change(self) -> None:
        """Let the topic have another content, and its server answer."""
        self.fetcher.contents[FEED] = b"<rss>2</rss>"

    def ask(self) -> None:
        self.detector.schedule(FEED, self.store_ping())

    def publish(self) -> None:
        """Ping a topic as the hub does: the ping is recorded if the topic has changed."""
        self.result(self.store.request_check(FEED, self.clock.wall_seconds(), True))
        self.detector.schedule(FEED, cause=PINGED)

    def listed(self) -> list[Ping]:
        return [ping for ping in self.pings() if ping.name == FEED]

    def assert_fetched_after(self, *pauses: float) -> None:
        """Check that a fetch follows each of these pauses after the one before, and no other."""
        for pause in pauses:
            before = len(self.fetcher.fetched)
            self.clock.advance(pause - 0.5)
            self.assertEqual(len(self.fetcher.fetched), before)
            self.clock.advance(0.5)
            self.assertEqual(len(self.fetcher.fetched), before + 1)


class StartTests(AskTestCase):
    def test_request_of_a_clock_that_is_ahead_makes_one_fetch(self) -> None:
        """Else each would seem to have begun before the request."""
        asking = self.store.request_check(FEED, self.clock.wall_seconds() + 10, True)
        self.result(asking)
        self.start()
        self.clock.pump([0.1] * 130)
        self.assertEqual((len(self.fetcher.fetched), self.due()), (1, []))

    def test_start_waits_for_a_store_that_is_unavailable(self) -> None:
        self.store_ping()
        self.unavailable.add("claim_checks")
        with capturedLogs() as events:
            self.start()
        self.assertEqual(
            [formatEvent(event) for event in events],
            ["Fetching topics that wait is put off: the disk is full"],
        )
        self.clock.advance(UNAVAILABLE_PAUSE)
        self.assertEqual(self.fetcher.fetched, [])
        self.unavailable.clear()
        self.clock.advance(UNAVAILABLE_PAUSE)
        self.assertEqual(self.fetcher.fetched, [FEED])
        self.assertEqual(self.due(), [])

    def test_retries_go_on_as_planned_after_a_restart(self) -> None:
        self.detector.startService()
        del self.fetcher.contents[FEED]
        self.ask()
        self.clock.advance(5)
        self.detector.stopService()
        self.clock.advance(10)
        self.start()
        self.change()
        self.assert_fetched_after(20)
        self.assertEqual((len(self.fetcher.fetched), self.due()), (3, []))

    def test_looking_goes_on_after_a_bug(self) -> None:
        claim_checks = self.store.claim_checks
        self.patch(self.store, "claim_checks", lambda wanted: fail(ZeroDivisionError()))
        self.start()
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.patch(self.store, "claim_checks", claim_checks)
        self.store_ping()
        self.clock.advance(600.0)
        self.assertEqual((self.fetcher.fetched, self.due()), ([FEED], []))

    def test_stopping_calls_off_what_waits_and_keeps_it_in_the_store(self) -> None:
        self.detector.startService()
        del self.fetcher.contents[FEED]
        self.ask()
        # The next look at the store, and the next claim.
        self.assertEqual(len(self.clock.getDelayedCalls()), 2)
        self.detector.stopService()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(self.due(), [FEED])

    def test_stopping_while_the_store_is_unavailable_at_start(self) -> None:
        self.unavailable.add("claim_checks")
        self.detector.startService()
        self.detector.stopService()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stopping_during_a_fetch(self) -> None:
        self.detector.startService()
        self.fetcher.held = []
        self.ask()
        self.detector.stopService()
        self.assertEqual(self.due(), [FEED])
        self.fetcher.held[0].callback(None)  # the fetch may end
        self.assertEqual(self.flushLoggedErrors(), [])


class AskTests(AskTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.start()

    def test_those_that_wait_are_counted(self) -> None:
        self.fetcher.held = []
        self.ask()
        self.assertEqual(self.counters.registry.get_sample_value("rsscloud_pending_fetches"), 1)
        self.fetcher.held[0].callback(None)
        self.assertEqual(self.counters.registry.get_sample_value("rsscloud_pending_fetches"), 0)

    def test_request_of_a_clock_that_is_ahead_makes_one_fetch_of_what_is_given_up(self) -> None:
        """Else each would seem to have begun before the request, which is not withdrawn then."""
        self.fetcher.failures[FEED] = TopicUnreadable(FEED, "it is refused", refused=True)
        asking = self.store.request_check(FEED, self.clock.wall_seconds() + 2, True)
        self.result(asking)
        self.detector.take_over()
        self.clock.pump([0.1] * 50)
        self.assertEqual((len(self.fetcher.fetched), self.due()), (1, []))

    def test_origin_of_a_ping_outlives_a_failed_fetch(self) -> None:
        """Without it, the ping would be passed on to the broker from which it came."""
        cause = ChangeSource(Way.WEBSUB, "http://other.example", pinged=True)
        asking = self.detector.request(FEED, "", cause)
        state = self.result(asking)
        self.fetcher.failures[FEED] = TopicUnreadable(FEED, "its server is broken")
        self.detector.schedule(FEED, state, cause=cause)
        del self.fetcher.failures[FEED]
        self.change()
        self.clock.advance(6)
        self.assertEqual([ping.origin for ping in self.listed()], ["http://other.example"])

    def test_origin_of_a_ping_that_comes_during_a_poll(self) -> None:
        self.change()
        self.fetcher.held = []
        self.detector.check_now(FEED)
        cause = ChangeSource(Way.WEBSUB, "http://other.example")
        now = self.clock.wall_seconds()
        self.result(self.store.request_check(FEED, now, True, cause=cause))
        self.fetcher.held[0].callback(None)
        self.assertEqual([ping.origin for ping in self.listed()], ["http://other.example"])

    def test_a_publish_during_a_fetch_is_listed_if_the_next_finds_a_change(self) -> None:
        self.fetcher.held = []
        self.publish()
        self.clock.advance(1)
        self.publish()
        self.fetcher.held[0].callback(None)
        self.assertEqual(self.listed(), [])
        self.change()
        self.fetcher.held[1].callback(None)
        self.assertEqual(len(self.listed()), 1)
        self.assertEqual(self.due(), [])

    def test_a_publish_during_a_fetch_that_fails_is_listed(self) -> None:
        """The first fetch fails while another one waits, which answers both requests."""
        self.fetcher.held = []
        del self.fetcher.contents[FEED]
        self.publish()
        self.detector.check_now(FEED)
        self.fetcher.held[0].callback(None)
        self.change()
        self.fetcher.held[1].callback(None)
        self.assertEqual((len(self.listed()), self.due()), (1, []))
        self.assertIsNotNone(self.status().pinged_at)

    def test_retries_wait_as_long_as_the_server_asks(self) -> None:
        busy = TopicUnreadable(FEED, "its server answered with status 503", retry_after=60.0)
        self.fetcher.failures[FEED] = busy
        self.ask()
        self.assert_fetched_after(60, 60, 120)
        self.assertEqual(self.due(), [])

    def test_topic_that_ends_while_another_result_is_recorded_is_not_fetched_again(self) -> None:
        end, found = self.store.end_topic, self.result(self.detector.read(FEED))

        async def end_after_a_record(*args: object) -> bool:
            await self.detector.record(found)
            return bool(await end(*args))

        self.patch(self.store, "end_topic", end_after_a_record)
        self.fetcher.failures[FEED] = EndedTopic(FEED, "it is gone for good")
        self.failureResultOf(self.detector.check_now(FEED), EndedTopic)
        del self.fetcher.failures[FEED]
        self.failureResultOf(self.detector.check_now(FEED), EndedTopic)

    def test_unavailable_store_is_waited_for(self) -> None:
        self.change()
        self.unavailable.add("record_fetch")
        self.ask()
        self.clock.advance(UNAVAILABLE_PAUSE)
        self.assertEqual((self.bus.events, self.due()), ([], [FEED]))
        self.unavailable.clear()
        self.clock.advance(UNAVAILABLE_PAUSE)
        self.assertEqual(len(self.bus.events), 1)
        self.assertEqual(self.due(), [])

    def test_what_a_bug_has_left_is_read_without_being_asked_for_again(self) -> None:
        fetch, bugs = self.fetcher.fetch, [ZeroDivisionError(), KeyError()]

        async def broken(*args: object) -> object:
            raise bugs.pop(0)

        self.patch(self.fetcher, "fetch", broken)
        self.change()
        self.ask()
        self.clock.advance(600.0)
        self.assertEqual((bugs, self.due()), ([], [FEED]))
        self.patch(self.fetcher, "fetch", fetch)
        self.clock.advance(600.0)
        self.assertEqual((self.fetcher.fetched, self.due()), ([FEED], []))
        self.assertEqual(len(self.bus.events), 1)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError, KeyError)), 2)

    def test_what_is_being_read_is_not_asked_for_again(self) -> None:
        self.fetcher.held = []
        self.change()
        self.ask()
        self.clock.advance(600.0)
        self.fetcher.held[0].callback(None)
        self.assertEqual((self.fetcher.fetched, self.due()), ([FEED], []))


class RetryTests(AskTestCase):
    """The server of the topic does not answer when it is asked for the first time."""

    def setUp(self) -> None:
        super().setUp()
        self.start()
        del self.fetcher.contents[FEED]
        self.publish()

    def test_a_publish_is_listed_if_another_reading_finds_the_change_before_its_retry(self) -> None:
        self.change()
        self.fetch()
        self.assertEqual((len(self.listed()), self.due()), (1, []))
        self.clock.advance(1000)
        self.assertEqual(len(self.fetcher.fetched), 2, "nothing is left to be tried again")

    def test_a_ping_of_a_topic_that_waits_for_its_retry_is_read_at_once(self) -> None:
        self.clock.pump([5, 10])
        self.change()
        self.ask()
        self.clock.advance(0)
        self.assertIn(TopicChanged(FEED, NOW + 115), self.bus.events)
        self.assertEqual((len(self.fetcher.fetched), self.due()), (3, []))

    def test_a_ping_just_after_a_failed_reading_waits_a_moment(self) -> None:
        for _ in range(9):
            self.ask()
        self.assertEqual(len(self.fetcher.fetched), 1)
        self.assert_fetched_after(1.0)

    def test_a_ping_brings_all_retries_back(self) -> None:
        self.clock.pump([5, 30])
        self.ask()  # at 35 s: too soon after the last one
        self.assert_fetched_after(1.0, 5, 30, 120)
        self.assertEqual(self.due(), [])

    def test_another_reading_does_not_bring_retries_back(self) -> None:
        for delay in (5, 30, 120):
            self.failureResultOf(self.detector.check_now(FEED), TopicUnreadable)  # a poll
            self.clock.advance(delay)
        self.assertEqual((len(self.fetcher.fetched), self.due()), (7, []))

    def test_a_ping_while_a_topic_is_given_up_is_read(self) -> None:
        self.clock.pump([5, 30])
        held, drop = Deferred[None](), self.store.drop_check

        async def slow(*args: object) -> None:
            await held
            await drop(*args)

        self.patch(self.store, "drop_check", slow)
        self.clock.pump([120, 1])
        self.change()
        self.ask()
        held.callback(None)
        self.clock.advance(0)
        self.assertIn(TopicChanged, map(type, self.bus.events))
        self.assertEqual(self.due(), [])

    def test_asked_for_during_the_last_try_is_not_dropped(self) -> None:
        self.clock.pump([5, 30])
        self.fetcher.held = []
        self.clock.pump([120, 1])
        self.ask()
        self.fetcher.held[0].callback(None)
        self.assertEqual(self.due(), [FEED])
        self.change()
        self.fetcher.held[1].callback(None)
        self.assertIn(TopicChanged, map(type, self.bus.events))
        self.assertEqual(self.due(), [])

    def test_unavailable_store_while_giving_up(self) -> None:
        self.unavailable.add("drop_check")
        self.clock.pump([5, 30, 120])
        self.assertEqual(self.due(), [FEED])
        self.unavailable.clear()
        self.clock.advance(UNAVAILABLE_PAUSE)
        self.assertEqual(self.due(), [])
