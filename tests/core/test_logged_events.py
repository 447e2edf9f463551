"""The events of the core that nothing but the event log handles: each is published when its fact
happened.
"""

from __future__ import annotations

from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred

from rsscloud_broker import errors
from rsscloud_broker.config import RateLimitOptions, Topics
from rsscloud_broker.errors import CallbackFailed, Forbidden, InvalidPing, TooMany, TopicUnreadable
from rsscloud_broker.events import (
    Event,
    PingAccepted,
    PingRefused,
    SubscriptionDenied,
    SubscriptionRemoved,
    SubscriptionRequested,
    SubscriptionStored,
    TopicFetched,
    TopicFetchFailed,
    TopicMoved,
    TopicRevived,
)
from rsscloud_broker.model import Intent, Outcome, Ping
from rsscloud_broker.model.ways import Way
from rsscloud_broker.policy.access import NOT_ALLOWED
from tests.core.house import CALLBACK, FEED, NOW, BrokerTestCase

CALLER = "192.0.2.7"
CARRIER = evolve(CALLBACK, protocol="carrier")
WANTED = Intent(FEED, CALLBACK, 3600, source=CALLER)
NO = Outcome(False, "it said no")
NO_ANSWER = Outcome(False, "nobody is there", answered=False)


class LoggedCase(BrokerTestCase):
    def logged(self, *kinds: type[Event]) -> list[Any]:
        """The events of some classes that were published since the last call, in order."""
        found, self.bus.logged = self.bus.logged, []
        return [event for event in found if isinstance(event, kinds)]


class PingTests(LoggedCase):
    limits = RateLimitOptions(pings_burst=3, pings_per_source=0.001)
    topics = Topics(publish=("http://feeds.example/*", "ftp*"))

    def ping(self, url: str = FEED) -> None:
        ping = Ping("A site", url, self.clock.wall_seconds())
        self.result(self.broker.ping(ping, 60, CALLER))

    def pings(self) -> list[Any]:
        return self.logged(PingAccepted, PingRefused)

    def test_accepted_and_repeated(self) -> None:
        self.ping()
        self.assertEqual(self.pings(), [PingAccepted(FEED, NOW, CALLER, way=Way.WEBLOG_UPDATES)])
        self.ping()
        self.assertEqual(
            self.pings(), [PingAccepted(FEED, NOW, CALLER, repeated=True, way=Way.WEBLOG_UPDATES)]
        )

    def test_the_feed_is_named_rather_than_the_site(self) -> None:
        ping = Ping("A site", "http://feeds.example/", NOW, rss_url=FEED)
        self.result(self.broker.ping(ping, 60, CALLER))
        self.assertEqual(self.pings(), [PingAccepted(FEED, NOW, CALLER, way=Way.WEBLOG_UPDATES)])

    def test_refused(self) -> None:
        table: list[tuple[str, type[errors.Refused]]] = [
            ("ftp://feeds.example/", InvalidPing),
            ("http://other.example/", Forbidden),
        ]
        for url, kind in table:
            ping = Ping("A site", url, self.clock.wall_seconds())
            error = self.refusal(self.broker.ping(ping, 60, CALLER), kind)
            self.assertEqual(self.pings(), [PingRefused(url, str(error), NOW, CALLER)])

    def test_refused_because_of_a_limit(self) -> None:
        for _ in range(3):
            self.ping()
        self.pings()
        for call in (
            self.broker.ping(Ping("A", FEED, NOW), 60, CALLER),
            self.broker.ping_topic(FEED, CALLER),
            self.broker.publish([FEED], CALLER),
        ):
            error = self.refusal(call, TooMany)
            self.assertEqual(self.pings(), [PingRefused(FEED, str(error), NOW, CALLER)])

    def test_topics(self) -> None:
        for changed in (True, False):
            self.assertEqual(self.result(self.broker.ping_topic(FEED, CALLER)), changed)
            self.assertEqual(self.pings(), [PingAccepted(FEED, NOW, CALLER, way=Way.RSSCLOUD)])
        self.fetcher.contents.clear()
        error = self.refusal(self.broker.ping_topic(FEED, CALLER), TopicUnreadable)
        self.assertEqual(self.pings(), [PingRefused(FEED, str(error), NOW, CALLER)])

    def test_published(self) -> None:
        bad = "http://other.example/"
        problems = self.result(self.broker.publish([FEED, bad], CALLER))
        refused, accepted = self.pings()
        self.assertEqual(accepted, PingAccepted(FEED, NOW, CALLER, way=Way.WEBSUB))
        self.assertEqual((refused.url, refused.source), (bad, CALLER))
        self.assertTrue(problems[bad].startswith(refused.reason))


class FetchTests(LoggedCase):
    def fetches(self) -> list[Any]:
        return self.logged(TopicFetched, TopicFetchFailed)

    def test_changed_and_unchanged(self) -> None:
        for changed in (True, False, False):  # the third is like the second, which is cached
            self.fetch()
            (event,) = self.fetches()
            self.assertEqual((event.topic, event.changed, event.at), (FEED, changed, NOW))
            self.assertEqual(event.result, "it came")

    def test_how_long_it_took(self) -> None:
        self.fetcher.held = []
        fetching = self.detector.check_now(FEED)
        self.clock.advance(1.5)
        self.fetcher.held[0].callback(None)
        self.result(fetching)
        (event,) = self.fetches()
        self.assertAlmostEqual(event.seconds, 1.5, 2)

    def test_failed(self) -> None:
        self.fetcher.contents.clear()
        self.failureResultOf(self.detector.check_now(FEED), TopicUnreadable)
        (event,) = self.fetches()
        self.assertEqual((event.topic, event.reason), (FEED, "its server answered with status 404"))

    def test_moved(self) -> None:
        self.result(self.broker.ping_topic(FEED, CALLER))
        new = "http://feeds.example/new.xml"
        self.fetcher.moves[FEED], self.fetcher.contents[new] = new, b"<rss/>"
        self.result(self.broker.ping_topic(FEED, CALLER))
        self.assertEqual(self.logged(TopicMoved), [TopicMoved(FEED, new, NOW)])

    def test_revived(self) -> None:
        self.result(self.store.end_topic(FEED, NOT_ALLOWED, NOW))
        self.result(self.broker.ping_topic(FEED, CALLER))
        self.assertEqual(self.logged(TopicRevived), [TopicRevived(FEED, NOW)])


class SubscriptionTests(LoggedCase):
    def requests(self) -> list[Any]:
        return self.logged(SubscriptionRequested, SubscriptionDenied)

    def denied(self, reason: str, intent: Intent = WANTED) -> SubscriptionDenied:
        return SubscriptionDenied(FEED, intent.callback, reason, NOW, CALLER)

    def requested(self, intent: Intent = WANTED) -> SubscriptionRequested:
        return SubscriptionRequested(FEED, intent.callback, NOW, CALLER, intent.unsubscribe)

    def test_requested_and_denied(self) -> None:
        carried = evolve(WANTED, callback=CARRIER)
        for verb, intent, notifier in (
            (self.broker.subscribe, WANTED, self.notifier),
            (self.broker.accept, carried, self.carrier),
        ):
            for renewed in (False, True):
                self.result(verb(intent))
                self.assertEqual(self.requests(), [self.requested(intent)])
                event = self.bus.events[-1]
                assert isinstance(event, SubscriptionStored)
                self.assertEqual((event.subscription.renewed, event.source), (renewed, CALLER))
            notifier.outcomes[CALLBACK.url] = NO
            asking = Deferred.fromCoroutine(verb(intent))
            asking.addErrback(lambda failure: failure.trap(CallbackFailed))
            self.result(asking)
            denied = self.denied("it said no", intent)
            self.assertEqual(self.requests(), [self.requested(intent), denied])

    def test_refused_before_anybody_is_asked(self) -> None:
        strange = evolve(WANTED, callback=evolve(CALLBACK, protocol="pigeon"))
        error = self.refusal(self.broker.subscribe(strange), errors.UnsupportedProtocol)
        self.assertEqual(self.requests(), [self.denied(str(error), strange)])

    def test_unsubscribed(self) -> None:
        self.result(self.broker.subscribe(WANTED))
        self.requests()
        self.result(self.broker.unsubscribe(WANTED))
        self.assertEqual(self.requests(), [self.requested(evolve(WANTED, unsubscribe=True))])
        removed = SubscriptionRemoved(FEED, CALLBACK, CALLER)
        self.assertEqual(self.bus.events[-1], removed)

    def test_accepted_request_whose_callback_never_answers(self) -> None:
        wanted = evolve(WANTED, callback=CARRIER)
        self.carrier.outcomes[CARRIER.url] = NO_ANSWER
        self.result(self.broker.accept(wanted))
        self.assertEqual(self.requests(), [self.requested(wanted)])
        self.clock.advance(5)
        self.assertEqual(self.requests(), [])
        self.clock.advance(30)
        (event,) = self.requests()
        self.assertEqual((event.reason, event.source), ("nobody is there", CALLER))

    def test_accepted_request_for_a_topic_that_does_not_exist(self) -> None:
        wanted = evolve(WANTED, callback=CARRIER)
        self.fetcher.failures[FEED] = TopicUnreadable(FEED, "status 404", lasting=True)
        self.result(self.broker.accept(wanted))
        self.assertEqual(
            self.requests(), [self.requested(wanted), self.denied(f"{FEED}: status 404", wanted)]
        )
