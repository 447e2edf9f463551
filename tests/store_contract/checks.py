"""The contract of the store: topics that wait to be fetched are claimed fairly."""

from __future__ import annotations

from collections import Counter
from typing import Any

from attrs import evolve
from twisted.trial.unittest import TestCase

from rsscloud_broker.model import host_of
from rsscloud_broker.model.ways import ChangeSource, Way
from rsscloud_broker.model.work import Check, CheckState, ClaimedChecks, WantedChecks
from rsscloud_broker.storage import Store
from tests.storage.waiting import PINGED, waiting_checks
from tests.store_contract.basics import FEED, a_fetch, a_ping, a_subscription, at_once

ONE, OTHER = "192.0.2.1", "198.51.100.7"


def feed(host: str, number: int = 0) -> str:
    """The URL of a topic."""
    return f"http://{host}.example/{number}"


class ChecksContract(TestCase):
    """The tests of claims that every store must pass."""

    def make_store(self) -> Store:
        raise NotImplementedError

    def setUp(self) -> None:
        self.store = self.make_store()
        self.last = ClaimedChecks((), more=True, next_at=None, after_source=None, after_hosts={})

    async def ask(self, source: str, *urls: str, at: float = 1000.0) -> None:
        await at_once(
            self.store.request_check(url, at + number, True, source)
            for number, url in enumerate(urls)
        )

    async def claim(self, limit: int, of_host: int = 100, **wanted: Any) -> list[Check]:
        """Claim checks, after those that were claimed last."""
        after = {"after_source": self.last.after_source, "after_hosts": self.last.after_hosts}
        asked = WantedChecks(limit, of_host, **{"now": 1000.0, **after, **wanted})
        self.last = await self.store.claim_checks(asked)
        return list(self.last.checks)

    async def test_what_waits_longest_is_claimed_first_and_once(self) -> None:
        await self.ask(ONE, *[feed("a", number) for number in range(5)])
        claimed = await self.claim(3)
        self.assertEqual(claimed, [Check(feed("a", n), ONE, cause=PINGED) for n in range(3)])
        self.assertTrue(self.last.more)
        self.assertEqual([check.url for check in await self.claim(9)], [feed("a", 3), feed("a", 4)])
        self.assertEqual((await self.claim(9), self.last.more), ([], False))

    async def test_sources_and_hosts_take_turns(self) -> None:
        await self.ask(ONE, *[feed("busy", number) for number in range(50)])
        await self.ask(ONE, *[feed(f"h{number}") for number in range(20)], at=2000.0)
        await self.ask(OTHER, feed("a"), feed("z"), at=3000.0)
        by_source: list[Counter[str]] = []
        by_host: Counter[str] = Counter()
        for _ in range(4):
            some = await self.claim(12, 4)
            by_source.append(Counter(check.source for check in some))
            by_host.update(host_of(check.url) for check in some)
        self.assertEqual(by_source[0], {ONE: 6, OTHER: 2})
        self.assertLessEqual(by_host["busy.example"], 8)
        self.assertEqual(len(by_host), 23, "every host has had its turn")

    async def test_one_busy_host_does_not_fill_a_portion(self) -> None:
        await self.ask(ONE, *[feed("busy", number) for number in range(50)], feed("other"))
        some = await self.claim(20, 5)
        self.assertEqual(len(some), 6)
        self.assertIn(feed("other"), [check.url for check in some])
        rest = await self.claim(20, 5, busy_hosts={(ONE, "busy.example")})
        self.assertEqual(rest, [])
        self.assertEqual(await self.claim(20, 5, busy_sources={ONE}), [])
        self.assertEqual(len(await self.claim(20, 5)), 5)

    async def test_source_that_asks_again_changes_nothing(self) -> None:
        """But if it is claimed for that source, it counts as its own."""
        await self.ask(ONE, FEED)
        await self.ask(OTHER, FEED)
        (check,) = await self.claim(1)
        self.assertEqual(check.source, ONE)
        await self.store.release_checks(())
        claiming = self.store.request_check(FEED, 1001.0, True, OTHER, True)
        self.assertEqual(await claiming, CheckState.CLAIMED)
        await self.store.release_checks(())
        self.assertEqual(await self.claim(1), [Check(FEED, OTHER, cause=PINGED)])

    async def test_request_says_who_handles_the_check(self) -> None:
        await self.store.put_subscription(a_subscription())
        self.assertEqual(await self.store.request_check(FEED, 999.0), CheckState.WAITS)
        for claim in (True, False):
            record = await self.store.add_ping(evolve(a_ping(), rss_url=FEED), 0, ONE, claim)
            self.assertEqual(record.watched, (FEED,))
            self.assertEqual(record.states, (CheckState.CLAIMED,))
            self.assertEqual(await self.claim(9), [])

    async def test_why_is_kept_until_the_topic_is_fetched(self) -> None:
        cause = ChangeSource(Way.WEBSUB, "http://one.example", pinged=True)
        await self.store.request_check(FEED, 1000.0, True, ONE, cause=cause)
        await self.store.request_check(FEED, 1001.0, False, ONE)
        self.assertEqual(await self.claim(1), [Check(FEED, ONE, cause=cause)])
        await self.store.request_check(
            FEED, 1002.0, True, ONE, cause=ChangeSource(Way.LIST, "http://other.example")
        )
        record = await self.store.record_fetch(a_fetch(at=1001.5), None)
        both = ChangeSource(Way.WEBSUB, pinged=True)  # of which neither origin is that of all
        self.assertTrue(record.asked_again)
        await self.store.put_off_check(FEED, 0, 1002.5, 1001.5)
        self.assertEqual(await self.claim(1, now=1003.0), [Check(FEED, ONE, cause=both)])
        await self.store.record_fetch(a_fetch(at=1003.0), None)
        await self.store.request_check(FEED, 1004.0, True, ONE)
        self.assertEqual(await self.claim(1), [Check(FEED, ONE, cause=PINGED)])

    async def test_what_a_follower_is_told_makes_no_ping_of_another_request(self) -> None:
        """A weblogUpdates ping is recorded when it comes, and not when its check is answered."""
        await self.store.put_subscription(a_subscription())
        await self.store.record_fetch(a_fetch(), None)
        followed = ChangeSource(Way.FOLLOWED, pinged=True)
        await self.store.request_check(FEED, 1001.0, True, ONE, cause=followed)
        await self.store.add_ping(evolve(a_ping(), rss_url=FEED), 0, ONE)
        await self.store.request_check(FEED, 1002.0, True, ONE, cause=followed)
        found = evolve(a_fetch(b"2", 1000.5), pinged=True, way=Way.FOLLOWED)
        record = await self.store.record_fetch(found, a_ping())
        self.assertEqual((record.changed, record.ping), (True, None))

    async def test_what_a_follower_is_told_hides_no_ping(self) -> None:
        followed = ChangeSource(Way.FOLLOWED, pinged=True)
        await self.store.record_fetch(a_fetch(), None)
        for number, way in enumerate((Way.WEBSUB, Way.FETCH)):
            cause = ChangeSource(way, "http://one.example", pinged=True)
            for url in (FEED, feed("unknown", number)):
                asked = [followed, cause, followed]
                await at_once(
                    self.store.request_check(url, 1001.0, True, ONE, cause=each) for each in asked
                )
            for check in await self.claim(9):
                self.assertEqual(check.cause, cause)
            await self.store.record_fetch(a_fetch(at=1002.0), None)

    async def test_pings_say_how_they_came(self) -> None:
        await self.store.put_subscription(a_subscription())
        ping = evolve(a_ping(), rss_url=FEED)
        await self.store.add_ping(ping, 0, ONE)
        self.assertEqual([each.cause.way for each in await self.claim(9)], [Way.WEBLOG_UPDATES])
        await self.store.release_checks(())
        await self.store.add_pings([(ping, 0)])
        self.assertEqual([each.cause.way for each in await self.claim(9)], [Way.LIST])

    async def test_unknown_topics_are_claimed_too(self) -> None:
        states = [
            await self.store.request_check(feed("a", number), 1000.0, True, ONE, number == 1)
            for number in range(2)
        ]
        self.assertEqual(states, [CheckState.WAITS, CheckState.CLAIMED])
        self.assertEqual([check.url for check in await self.claim(9)], [feed("a", 0)])

    async def test_what_is_not_held_is_released(self) -> None:
        await self.ask(ONE, feed("a", 0), feed("a", 1))
        await self.claim(9)
        self.assertEqual(await self.store.release_checks({feed("a", 0)}), 1)
        self.assertEqual([check.url for check in await self.claim(9)], [feed("a", 1)])

    async def test_check_that_is_put_off_waits(self) -> None:
        await self.ask(ONE, FEED)
        await self.claim(1)
        self.assertEqual(await self.store.put_off_check(FEED, 2, 1100.0, 1000.0), 1100.0)
        self.assertEqual(await self.claim(1, now=1099.0), [])
        self.assertEqual(await self.claim(1, now=1101.0), [Check(FEED, ONE, 2, PINGED)])
        self.assertIsNone(self.last.next_at)

    async def test_check_that_is_put_off_and_requested_again_waits_a_second(self) -> None:
        """A second from the begin of the fetch that failed."""
        for name, failed_at, asked_at, ready_at in (
            ("at once", 1000.0, 1000.5, 1001.0),
            ("the clock of the fetch was ahead", 9000.0, 1000.5, 1001.5),
            ("a while later", 1000.0, 1030.0, None),
        ):
            await self.ask(ONE, FEED)
            await self.claim(1)
            await self.store.record_failure(FEED, failed_at, "status 500")
            await self.store.put_off_check(FEED, 2, failed_at + 100.0, failed_at)
            state = await self.store.request_check(FEED, asked_at, True, ONE, True)
            self.assertEqual(state, CheckState.WAITS if ready_at else CheckState.CLAIMED, name)
            if ready_at:
                early = await self.claim(1, now=ready_at - 0.1)
                self.assertEqual((early, self.last.next_at), ([], ready_at), name)
                self.assertEqual(
                    await self.claim(1, now=ready_at), [Check(FEED, ONE, cause=PINGED)]
                )
            await self.store.drop_check(FEED, asked_at)

    async def test_check_that_was_requested_again_is_put_off_for_a_second(self) -> None:
        """It has all its attempts; and a request by a clock that is ahead puts it off no longer."""
        for asked_at, due_at, failures in ((1005.0, 1006.0, 0), (9000.0, 1100.0, 0)):
            await self.ask(ONE, FEED)
            await self.claim(1)
            await self.ask(ONE, FEED, at=asked_at)
            self.assertEqual(await self.store.put_off_check(FEED, 2, 1100.0, 1000.0), due_at)
            again = Check(FEED, ONE, failures, PINGED)
            self.assertEqual(await self.claim(1, now=due_at), [again])
            await self.store.drop_check(FEED, asked_at)

    async def test_check_that_was_requested_by_a_clock_that_was_ahead_is_done_once(self) -> None:
        await self.ask(ONE, FEED, at=9000.0)
        await self.claim(1)
        self.assertEqual(await self.store.put_off_check(FEED, 1, 1005.0, 1000.5), 1005.0)
        self.assertEqual(await self.claim(1, now=1005.0), [Check(FEED, ONE, 1, PINGED)])
        record = await self.store.record_fetch(a_fetch(at=1005.5), None)
        self.assertFalse(record.asked_again)
        self.assertEqual(await waiting_checks(self.store, 10), [])

    async def test_what_a_follower_is_told_stays_so_when_it_is_put_off(self) -> None:
        """But no way stays by which strangers asked, if only followers have the topic."""
        for way, kept in ((Way.FOLLOWED, Way.FOLLOWED), (Way.RSSCLOUD, Way.FETCH)):
            asking = ChangeSource(way, pinged=True)
            await self.store.request_check(FEED, 1000.0, True, ONE, True, asking)
            await self.store.put_off_check(FEED, 1, 1001.0, 1000.0)
            (check,) = await self.claim(1, now=1002.0)
            self.assertEqual(check.cause.way, kept)
            await self.store.drop_check(FEED, 1000.0)

    async def test_check_that_is_dropped_although_asked_for_since_is_free(self) -> None:
        """A second later, as a request by a clock that is ahead always seems to be later."""
        await self.ask(ONE, FEED)
        await self.claim(1)
        await self.ask(ONE, FEED, at=1000.5)
        await self.store.drop_check(FEED, 1000.0)
        self.assertEqual((await self.claim(1, now=1000.9), self.last.next_at), ([], 1001.0))
        self.assertEqual(await self.claim(1, now=1001.0), [Check(FEED, ONE, cause=PINGED)])

    async def test_reading_says_that_the_topic_is_asked_for_again(self) -> None:
        await self.ask(ONE, FEED)
        await self.claim(1)
        await self.ask(ONE, FEED, at=1001.0)
        for at, again in ((1000.5, True), (1001.0, False)):
            record = await self.store.record_fetch(a_fetch(at=at), None)
            self.assertIs(record.asked_again, again)
            self.assertEqual(bool(await waiting_checks(self.store, 10)), again)
