"""Topics whose fetch failed wait for the next attempt in memory; if they are many, in the store."""

from __future__ import annotations

from rsscloud_broker.core.retrying import FetchRetries, Retry
from rsscloud_broker.errors import TopicUnreadable
from rsscloud_broker.model.work import WantedChecks
from rsscloud_broker.util.retry import StoreRetry
from tests.core.house import NOW, CoreTestCase
from tests.storage.waiting import PINGED, waiting_checks


def feed(number: int) -> str:
    """The URL of a topic."""
    return f"http://feeds.example/{number}"


class ManyRetriesTests(CoreTestCase):
    """Two topics may wait in memory."""

    def setUp(self) -> None:
        super().setUp()
        self.fetched: list[str] = []
        self.put_off: list[float] = []
        self.retries = FetchRetries(
            self.store,
            self.clock,
            StoreRetry(self.clock, "Fetching"),
            self.fetched.append,
            (5.0, 30.0, 120.0),
            self.put_off.append,
            limit=2,
        )

    def let_fail(self, url: str, failures: int) -> None:
        """Let a fetch fail, of a check that this process has claimed, after earlier ones."""
        self.subscribe(url)
        now = self.clock.wall_seconds()
        self.successResultOf(self.store.request_check(url, now, True, "192.0.2.1", True))
        delays = self.retries.delays_after(failures)
        retry = Retry(url, self.clock.seconds(), delays, {""}, PINGED)
        self.retries.plan_after_failure(retry, TopicUnreadable(url, "status 500"), now)

    def test_further_ones_wait_in_the_store(self) -> None:
        for number in range(4):
            self.let_fail(feed(number), failures=number % 2)
        self.assertEqual(sorted(self.retries), [feed(0), feed(1)])
        self.assertEqual(self.put_off, [NOW + 5, NOW + 30])
        for at, ready in ((10, {feed(2): 1}), (40, {feed(3): 2})):
            claiming = self.store.claim_checks(WantedChecks(10, 10, float(NOW) + at))
            checks = self.successResultOf(claiming).checks
            self.assertEqual({check.url: check.failures for check in checks}, ready)

    def test_given_up_in_memory_or_not(self) -> None:
        for number in range(3):
            self.let_fail(feed(number), failures=3)
        self.assertEqual((len(self.retries), self.checks()), (0, []))

    def checks(self) -> list[str]:
        return [check.url for check in self.successResultOf(waiting_checks(self.store, 10))]
