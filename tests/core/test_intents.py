"""Intents that are verified in the background."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, NoReturn

from attrs import evolve
from twisted.internet.defer import Deferred, fail

from rsscloud_broker.core import IntentQueue, intents
from rsscloud_broker.core.intents import LOAD_PAUSE, LONGEST_PAUSE
from rsscloud_broker.errors import CallbackFailed, EndedTopic, TooMany, TopicUnreadable, Unavailable
from rsscloud_broker.events import SubscriptionRemoved, SubscriptionStored
from rsscloud_broker.model import Callback, Content, Denial, FetchResult, Intent, Outcome
from rsscloud_broker.model.shared import Work, WorkKind
from rsscloud_broker.model.work import PendingIntent
from rsscloud_broker.testing.clock import About
from tests.core.house import FEED, NOW, BrokerTestCase
from tests.storage.suspects import make_suspect

CALLBACK = Callback("http://reader.example/hook", "carrier")
WANTED = Intent(FEED, CALLBACK, 90_000, challenge=True, options={"secret": "s"})
GOODBYE = evolve(WANTED, unsubscribe=True)
CALLER = "192.0.2.7"
NO_ANSWER = Outcome(False, "nobody is there", answered=False)


def wanted(url: str, source: str = "") -> Intent:
    """The intent of another callback."""
    return evolve(WANTED, callback=evolve(CALLBACK, url=url), source=source)


class IntentsTestCase(BrokerTestCase):
    def accept(self, intent: Intent = WANTED) -> None:
        self.result(self.broker.accept(intent))

    def accept_without_answer(self) -> None:
        """Accept an intent whose callback does not answer now."""
        self.answer(NO_ANSWER)
        self.accept()

    def unanswered(self, url: str, source: str = "") -> Intent:
        """The intent of another callback, which does not answer."""
        self.carrier.outcomes[url] = NO_ANSWER
        return wanted(url, source)

    def answer(self, outcome: Outcome) -> None:
        self.carrier.outcomes[CALLBACK.url] = outcome

    def replace_queue(self, **limits: Any) -> IntentQueue:
        """Stop the queue of the broker; another one on its store, with other limits."""
        self.intents.stopService()
        queue = IntentQueue(self.store, self.verifier, self.clock, **limits)
        queue.startService()
        self.addCleanup(queue.stopService)
        return queue

    def hold_verification(self) -> Deferred[None]:
        """Make callbacks confirm only when the test fires what this returns."""
        gate: Deferred[None] = Deferred()

        async def verify(intent: Intent) -> Outcome:
            await gate
            return Outcome(True)

        self.patch(self.carrier, "verify", verify)
        return gate

    def waiting(self) -> list[PendingIntent]:
        self.unavailable.discard("intents")
        return self.result(self.store.intents())


class AcceptTests(IntentsTestCase):
    def test_subscribe_and_unsubscribe(self) -> None:
        self.accept()
        (stored,) = self.subscriptions()
        self.assertEqual((stored.callback, stored.options), (CALLBACK, {"secret": "s"}))
        self.assertTrue(stored.wants_content)
        self.accept(GOODBYE)
        self.assertEqual(self.subscriptions(), [])
        self.assertIn(SubscriptionRemoved(FEED, CALLBACK), self.bus.events)
        self.assertEqual(self.carrier.verified, [WANTED, GOODBYE])
        self.assertEqual(self.waiting(), [])

    def test_it_returns_before_the_verification(self) -> None:
        self.fetcher.held = []
        self.accept()
        self.assertEqual([one.intent for one in self.waiting()], [WANTED])
        self.assertEqual((self.subscriptions(), self.carrier.verified), ([], []))
        self.fetcher.held[0].callback(None)
        self.assertEqual(len(self.subscriptions()), 1)

    def test_callback_that_says_no_changes_nothing(self) -> None:
        self.accept()
        before = self.subscriptions()
        self.answer(Outcome(False, "it echoed something else"))
        self.accept(evolve(WANTED, options={}, lease_seconds=5))
        self.accept(GOODBYE)
        self.assertEqual(self.subscriptions(), before)
        self.assertEqual(self.waiting(), [])
        self.clock.advance(1000)
        self.assertEqual(len(self.carrier.verified), 3)

    def test_callback_that_cannot_be_reached_for_a_moment(self) -> None:
        for outcome in (NO_ANSWER, Outcome(False, "status 503", retry_after=20.0)):
            self.answer(outcome)
            self.accept()
            self.assertEqual(self.subscriptions(), [])
            self.clock.advance(20)
            self.answer(Outcome(True))
            self.clock.advance(30)
            self.assertEqual(len(self.subscriptions()), 1)
            self.accept(GOODBYE)

    def test_it_is_given_up(self) -> None:
        self.accept_without_answer()
        self.clock.pump([5, 30, 1000])
        self.assertEqual(len(self.carrier.verified), 3)
        self.assertEqual((self.subscriptions(), self.waiting()), ([], []))
        self.assertEqual(self.carrier.denied, [], "nobody is there to be notified")

    def test_interrupted_attempt_is_not_the_last(self) -> None:
        """One that ends couriers each time is given up all the same."""
        for answers in (True, False):
            self.answer(evolve(NO_ANSWER, interrupted=True))
            self.accept()
            self.clock.pump([5, 30])
            if answers:
                self.answer(Outcome(True))
            before = len(self.carrier.verified)
            self.clock.pump([5.0, 1000])
            self.assertEqual((len(self.carrier.verified), self.waiting()), (before + 1, []))
            self.assertEqual(len(self.subscriptions()), int(answers))
            self.accept(GOODBYE)

    def test_bug_at_the_start_is_not_the_end(self) -> None:
        self.accept_without_answer()
        self.intents.stopService()
        self.answer(Outcome(True))
        real = self.store.intents
        failures = [fail(ZeroDivisionError())]
        self.patch(self.store, "intents", lambda *args: failures.pop() if failures else real(*args))
        self.intents.startService()
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.clock.pump([1.0] * 20)
        self.assertEqual((len(self.subscriptions()), self.waiting()), (1, []))

    def test_many_are_loaded_in_portions(self) -> None:
        self.patch(intents, "LOADED", 20)
        self.intents.stopService()
        some = [wanted(f"{CALLBACK.url}/{n}") for n in range(20 + 2)]
        for intent in some:
            self.result(self.store.add_intent(intent, len(some)))
        self.intents.startService()
        self.assertEqual(len(self.carrier.verified), 20)
        self.clock.advance(LOAD_PAUSE)
        self.assertEqual((self.carrier.verified, self.waiting()), (some, []))

    def test_one_that_another_node_has_replaced_stores_nothing(self) -> None:
        """Neither what was asked for first nor the wish to end it."""
        self.accept()
        for intent in (evolve(WANTED, options={}), GOODBYE):

            async def verify(confirmed: Intent) -> Outcome:
                await self.store.add_intent(evolve(confirmed, lease_seconds=60), 10)
                return Outcome(True)

            self.patch(self.carrier, "verify", verify)
            self.accept(intent)
            (stored,) = self.subscriptions()
            self.assertEqual(stored.options, {"secret": "s"})
            (waiting,) = self.waiting()
            self.assertEqual(waiting.intent.lease_seconds, 60)
            self.result(self.store.remove_intent(waiting.id))
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_one_that_another_node_has_replaced_is_not_verified_again(self) -> None:
        """The subscriber has changed its mind, and would confirm what it does not want any more."""
        for times in (1, 2):
            self.accept_without_answer()
            if times == 2:
                self.restart()
            self.result(self.store.add_intent(GOODBYE, 10))
            self.answer(Outcome(True))
            self.clock.advance(100)
            self.assertEqual(self.carrier.verified, [WANTED] * times)
            self.assertEqual([one.intent for one in self.waiting()], [GOODBYE])
        self.assertEqual(self.flushLoggedErrors(), [])

    def restart(self) -> None:
        """As another process would begin: with nothing but what is in the store."""
        self.intents = self.replace_queue(limit=3, retries=(5.0, 30.0))

    def test_later_request_that_was_verified_at_once_counts(self) -> None:
        """What the subscriber asked for before, and did not confirm yet, is not verified again."""
        for earlier in (evolve(WANTED, options={}), GOODBYE):
            self.answer(NO_ANSWER)
            self.accept(earlier)
            self.answer(Outcome(True))
            self.result(self.broker.subscribe(WANTED))
            self.clock.advance(1000)
            (stored,) = self.subscriptions()
            self.assertEqual(stored.options, {"secret": "s"})
        self.accept_without_answer()
        self.answer(Outcome(True))
        self.result(self.broker.unsubscribe(GOODBYE))
        self.clock.advance(1000)
        self.assertEqual((self.subscriptions(), self.waiting()), ([], []))
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_attempts_and_time_outlive_a_restart(self) -> None:
        self.accept_without_answer()
        self.clock.advance(5)
        (waiting,) = self.waiting()
        self.assertEqual((waiting.attempts, waiting.retry_at), (2, About(NOW + 35)))
        self.clock.advance(10)
        self.restart()
        self.clock.advance(19)
        self.assertEqual(len(self.carrier.verified), 2, "the third attempt is not due yet")
        self.clock.advance(1)
        self.assertEqual(len(self.carrier.verified), 3)
        self.assertEqual(self.waiting(), [], "it was the last attempt")

    def test_intent_that_has_ended_three_processes_is_dropped(self) -> None:
        self.accept_without_answer()
        (waiting,) = self.waiting()
        work = Work(WorkKind.INTENT, waiting.id)
        self.result(make_suspect(self.store, work, 3))
        self.clock.advance(5)
        self.assertEqual(len(self.carrier.verified), 1)
        self.assertEqual(self.waiting(), [])
        self.flushLoggedErrors()

    def test_wall_clock_that_is_set_back_does_not_hold_intents_for_ever(self) -> None:
        """Nobody waits longer after a restart than without one."""
        self.accept_without_answer()
        self.answer(Outcome(True))
        self.clock.set_wall(-1000 * LONGEST_PAUSE)
        self.restart()
        self.clock.advance(LONGEST_PAUSE)
        self.assertEqual(len(self.carrier.verified), 2)
        self.assertEqual(self.waiting(), [])

    def test_no_callback_is_waited_for_longer_than_the_longest_pause(self) -> None:
        self.answer(Outcome(False, "status 503", retry_after=9 * LONGEST_PAUSE))
        self.accept()
        (waiting,) = self.waiting()
        self.assertEqual(waiting.retry_at, About(NOW + LONGEST_PAUSE))
        self.clock.advance(LONGEST_PAUSE)
        self.assertEqual(len(self.carrier.verified), 2)

    def test_a_later_intent_has_all_attempts(self) -> None:
        self.accept_without_answer()
        self.clock.advance(5)
        self.accept()
        self.assertEqual([one.attempts for one in self.waiting()], [1])
        self.clock.pump([5, 30, 1000])
        self.assertEqual(len(self.carrier.verified), 5)

    def test_attempt_that_cannot_be_recorded_just_now(self) -> None:
        self.unavailable.add("postpone_intent")
        self.accept_without_answer()
        self.unavailable.clear()
        self.clock.advance(10)
        self.assertEqual([one.attempts for one in self.waiting()], [1])
        self.answer(Outcome(True))
        self.clock.advance(5)
        self.assertEqual((len(self.subscriptions()), self.waiting()), (1, []))

    def test_who_asks_anew_before_the_store_was_looked_through_is_asked_once(self) -> None:
        """What the store had before is not verified beside what replaced it."""
        self.accept_without_answer()
        self.intents.stopService()
        before, looking = self.waiting(), Deferred[list[PendingIntent]]()
        self.patch(self.store, "intents", lambda after, limit: looking)
        self.intents.startService()
        anew = evolve(WANTED, options={"secret": "another"})
        self.accept(anew)
        looking.callback(before)
        self.assertEqual(self.carrier.verified, [WANTED, anew])
        self.answer(Outcome(True))
        self.clock.advance(1000)
        self.assertEqual(self.carrier.verified, [WANTED, anew, anew])
        (stored,) = self.subscriptions()
        self.assertEqual(stored.options, {"secret": "another"})

    def test_a_protocol_that_is_not_offered_any_more(self) -> None:
        """What nobody can verify does not wait forever."""
        gone = evolve(WANTED, callback=evolve(CALLBACK, protocol="gone"))
        self.result(self.store.add_intent(gone, 10))
        self.intents.stopService()
        self.intents.startService()
        self.assertEqual(self.waiting(), [])
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_a_host_that_does_not_answer_leaves_room_for_others(self) -> None:
        intents = self.replace_queue(limit_of_host=2)

        def adding(url: str) -> Coroutine[Any, Any, None]:
            return intents.add(wanted(url), limited=False)

        def add(url: str) -> None:
            self.result(adding(url))

        silent = [f"http://silent.example/{number}" for number in range(3)]
        self.carrier.outcomes |= dict.fromkeys(silent, NO_ANSWER)
        add(silent[0])
        add(silent[1])
        add(silent[1])  # once more, which takes no more room
        error = self.refusal(adding(silent[2]), TooMany)
        self.assertIn("silent.example", str(error))
        add(CALLBACK.url)
        self.assertEqual(len(self.subscriptions()), 1)
        self.clock.pump([5, 30, 120, 600])
        add(silent[2])  # the others were given up

    def test_sources_that_wait_leave_room_for_others(self) -> None:
        intents = self.replace_queue(limit=100, limit_of_host=40, limit_of_source=30)

        def add(source: str, number: int, host: str, *, limited: bool = True) -> bool:
            """Whether an intent of a callback that says nothing is taken."""
            intent = self.unanswered(f"http://{host}/{source}/{number}", source)
            adding = Deferred.fromCoroutine(intents.add(intent, limited=limited))
            refused = isinstance(getattr(adding.result, "value", None), TooMany)
            adding.addErrback(lambda failure: failure.trap(TooMany))
            return not refused

        taken = [
            sum(add(f"192.0.2.{source}", n, f"{source}-{n}.example") for n in range(50))
            for source in range(6)
        ]
        self.assertEqual(taken, [30, 30, 20, 10, 5, 3])
        self.assertTrue(add("198.51.100.7", 1, "good.example"))
        self.assertTrue(add("", 1, "own.example", limited=False))
        self.assertFalse(all(add("", n, "own.example", limited=False) for n in range(50)))

    def test_a_source_leaves_room_at_a_host_for_others(self) -> None:
        intents = self.replace_queue(limit=100, limit_of_host=4)
        for number, source in enumerate(("192.0.2.1", "192.0.2.1", "192.0.2.2")):
            self.result(intents.add(self.unanswered(f"http://silent.example/{number}", source)))
        third = wanted("http://silent.example/3", "192.0.2.1")
        error = self.refusal(intents.add(third), TooMany)
        self.assertIn("silent.example", str(error))
        self.result(intents.add(evolve(third, source="192.0.2.3")))

    def test_a_source_leaves_room_for_others_unless_it_is_exempt(self) -> None:
        source = "192.0.2.1"
        for number in range(2):
            self.accept(self.unanswered(f"http://{number}.example/", source))
        error = self.refusal(self.broker.accept(wanted("http://2.example/", source)), TooMany)
        self.assertIn("from your address", str(error))
        self.accept(self.unanswered("http://2.example/"))
        error = self.refusal(self.broker.accept(WANTED), TooMany)
        self.assertIn("3 requests already wait", str(error))
        self.assertEqual(len(self.waiting()), 3)

    def test_the_last_intent_counts(self) -> None:
        self.accept_without_answer()
        self.answer(Outcome(True))
        self.accept(GOODBYE)
        self.clock.advance(1000)
        self.assertEqual(self.carrier.verified, [WANTED, GOODBYE])
        self.assertEqual((self.subscriptions(), self.waiting()), ([], []))

    def test_call_for_an_intent_that_was_replaced_is_broken_off(self) -> None:
        broken_off: list[Deferred[Outcome]] = []
        call = Deferred[Outcome](broken_off.append)
        patched = self.patch(self.carrier, "verify", lambda intent: call)
        self.accept()
        patched.restore()
        self.accept(GOODBYE)
        self.assertEqual(broken_off, [call])

    def test_callback_is_not_asked_again_before_its_answer_can_be_stored(self) -> None:
        """As on a full disk, for hours."""
        self.unavailable.update({"put_subscription", "check_writable"})
        self.accept()
        self.clock.pump([10] * 6)
        self.assertEqual(self.carrier.verified, [WANTED])
        self.unavailable.clear()
        self.clock.pump([10] * 2)
        self.assertEqual((self.carrier.verified, len(self.subscriptions())), ([WANTED] * 2, 1))

    def test_store_that_is_away_for_a_moment(self) -> None:
        self.unavailable.add("put_subscription")
        self.accept()
        self.assertEqual(self.subscriptions(), [])
        self.unavailable.clear()
        self.clock.advance(10)
        self.assertEqual(len(self.subscriptions()), 1)
        self.intents.stopService()
        self.unavailable.add("intents")
        self.intents.startService()
        self.clock.advance(10)
        self.unavailable.clear()
        self.accept(GOODBYE)
        self.clock.advance(10)
        self.assertEqual((self.subscriptions(), self.waiting()), ([], []))

    def test_bug_of_a_notifier(self) -> None:
        self.carrier.outcomes[CALLBACK.url] = RuntimeError("a bug")
        self.accept()
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.accept(wanted("http://other.example/"))
        self.assertEqual(len(self.subscriptions()), 1)


class TopicTests(IntentsTestCase):
    def test_topic_that_is_known_is_not_read_again(self) -> None:
        self.accept()
        self.accept(wanted("http://other.example/"))
        self.assertEqual(len(self.subscriptions()), 2)
        self.assertEqual(self.fetcher.fetched, [FEED])

    def test_topic_that_does_not_answer_now(self) -> None:
        del self.fetcher.contents[FEED]
        self.fetcher.failures[FEED] = TopicUnreadable(FEED, "status 503")
        self.accept()
        self.assertEqual(len(self.subscriptions()), 1)
        self.assertEqual(self.carrier.denied, [])

    def test_topic_that_there_is_none_of_is_denied(self) -> None:
        """Once, also if the callback refuses to hear it."""
        self.fetcher.failures[FEED] = TopicUnreadable(FEED, "status 404", lasting=True)
        for outcome in (Outcome(True), Outcome(False, "status 404")):
            self.carrier.denied.clear()
            self.answer(outcome)
            self.accept()
            self.clock.advance(1000)
            denial = Denial(FEED, CALLBACK, f"{FEED}: status 404", WANTED.options)
            self.assertEqual(self.carrier.denied, [denial])
            self.assertEqual((self.subscriptions(), self.carrier.verified), ([], []))
            self.assertEqual(self.waiting(), [])

    def test_denial_that_cannot_be_given_for_a_moment(self) -> None:
        """Section 5.2 of WebSub: who is denied is notified of that, when it can be reached
        again."""
        self.fetcher.failures[FEED] = TopicUnreadable(FEED, "status 404", lasting=True)
        for outcome in (NO_ANSWER, Outcome(False, "status 503", retry_after=7.0)):
            self.carrier.denied.clear()
            self.answer(outcome)
            self.accept()
            self.assertEqual(len(self.waiting()), 1)
            self.answer(Outcome(True))
            self.clock.advance(7)
            self.assertEqual(len(self.carrier.denied), 2)
            self.assertEqual((self.subscriptions(), self.waiting()), ([], []))

    def test_ended_topic(self) -> None:
        self.result(self.store.end_topic(FEED, "it is gone", NOW))
        self.refusal(self.broker.accept(WANTED), EndedTopic)
        self.assertEqual(self.waiting(), [])
        self.accept(GOODBYE)
        self.assertEqual(self.carrier.verified, [GOODBYE])

    def test_topic_that_ends_while_it_waits_is_denied(self) -> None:
        self.accept_without_answer()
        self.result(self.store.end_topic(FEED, "it is gone", NOW))
        self.answer(Outcome(True))
        self.clock.advance(5)
        (denial,) = self.carrier.denied
        self.assertIn("it is gone", denial.reason)
        self.assertEqual(self.waiting(), [])

    def test_what_the_broker_would_not_call(self) -> None:
        self.topic_policy.refused.add(FEED)
        error = self.refusal(self.broker.accept(WANTED), TopicUnreadable)
        self.assertIn("private network", str(error))
        self.topic_policy.refused.clear()
        self.callback_policy.refused.add(CALLBACK.url)
        for intent in (WANTED, GOODBYE):
            failed = self.refusal(self.broker.accept(intent), CallbackFailed)
            self.assertIn("private network", str(failed))
        self.assertEqual((self.waiting(), self.fetcher.fetched), ([], []))

    def test_change_while_it_was_verified_brings_its_content(self) -> None:
        gate = self.hold_verification()
        self.accept()
        self.fetcher.contents[FEED] = b"<rss>2</rss>"
        digest = Content(b"<rss>2</rss>").digest
        reading = FetchResult(FEED, digest, 12, NOW + 1)  # nobody wanted the content then
        self.result(self.store.record_fetch(reading, None))
        gate.callback(None)
        (stored,) = self.subscriptions()
        self.assertEqual(stored.attempts, 0)
        kept = self.result(self.store.newest_content(FEED))
        self.assertEqual(kept.body, b"<rss>2</rss>")

    def test_change_while_it_was_verified_that_cannot_be_read_just_now(self) -> None:
        async def unavailable(*args: object) -> NoReturn:
            raise Unavailable("names cannot be looked up")

        gate = self.hold_verification()
        self.accept()
        digest = Content(b"<rss>2</rss>").digest
        reading = FetchResult(FEED, digest, 12, NOW + 1)
        self.result(self.store.record_fetch(reading, None))
        self.patch(self.fetcher, "fetch", unavailable)
        gate.callback(None)
        (stored,) = self.subscriptions()
        self.assertIn(SubscriptionStored(stored), self.bus.events)

    def test_ping_while_it_is_read_for_the_first_time_is_news(self) -> None:
        self.fetcher.held = []
        self.accept()
        self.result(self.broker.publish([FEED], CALLER))
        for gate in self.fetcher.held:  # the list grows meanwhile
            gate.callback(None)
        self.assertEqual(len(self.subscriptions()), 1)
        (walk,) = self.walks()
        kept = self.result(self.store.content(walk.content_id))
        self.assertEqual(kept.body, self.fetcher.contents[FEED])

    def test_ping_while_it_is_verified_is_news(self) -> None:
        """The topic may have been read for the first time after the change."""
        gate = self.hold_verification()
        self.accept()
        self.result(self.broker.publish([FEED], CALLER))
        gate.callback(None)
        (stored,) = self.subscriptions()
        self.assertEqual(stored.attempts, 0)
        kept = self.result(self.store.newest_content(FEED))
        self.assertEqual(kept.body, self.fetcher.contents[FEED])
