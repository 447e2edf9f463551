"""What is under way is counted, in all and at each host, and shared between sources."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.policy.host_limiter import HostLimiter, HostQuota

HERE = HostQuota("fetch", "here.example", 2)
THERE = HostQuota("fetch", "there.example", 2)


class HostLimiterTests(SynchronousTestCase):
    def test_in_all(self) -> None:
        limiter = HostLimiter(3)
        for quota in (HERE, HERE, THERE):
            self.assertTrue(limiter.has_capacity())
            limiter.begin(quota)
        self.assertFalse(limiter.has_capacity())
        self.assertTrue(limiter.has_capacity_at(THERE), "only the host matters here")
        limiter.release(HERE)
        self.assertTrue(limiter.has_capacity())

    def test_at_a_host(self) -> None:
        limiter = HostLimiter(100)
        for _ in range(2):
            self.assertTrue(limiter.has_capacity_at(HERE))
            limiter.begin(HERE)
        self.assertFalse(limiter.has_capacity_at(HERE))
        self.assertTrue(limiter.has_capacity_at(THERE))
        self.assertTrue(limiter.has_capacity_at(HERE._replace(kind="verification")))
        self.assertEqual((limiter.count(HERE), limiter.count(THERE)), (2, 0))

    def test_limits_are_shared_by_nodes(self) -> None:
        limiter = HostLimiter(4)
        limiter.nodes = 2
        limiter.begin(HERE)
        self.assertFalse(limiter.has_capacity_at(HERE))
        limiter.begin(THERE)
        self.assertFalse(limiter.has_capacity())
        limiter.nodes = 1
        self.assertTrue(limiter.has_capacity())
        self.assertTrue(limiter.has_capacity_at(HERE))
        limiter.nodes = 100
        limiter.release(HERE)
        limiter.release(THERE)
        self.assertTrue(limiter.has_capacity(), "each node may do something")

    def test_a_source_has_no_more_than_is_left_for_others(self) -> None:
        limiter = HostLimiter(4)
        for _ in range(2):
            self.assertTrue(limiter.has_capacity("a"))
            limiter.begin(HERE, "a")
        self.assertFalse(limiter.has_capacity("a"))
        self.assertTrue(limiter.has_capacity("b"))
        self.assertTrue(limiter.has_capacity())
        self.assertEqual(limiter.count("a"), 2)

    def test_at_a_host_neither(self) -> None:
        limiter, quota = HostLimiter(100), HERE._replace(limit=2)
        limiter.begin(quota, "a")
        self.assertFalse(limiter.has_capacity_at(quota, "a"))
        self.assertTrue(limiter.has_capacity_at(quota, "b"))
        self.assertTrue(
            limiter.has_capacity_at(quota), "for everybody who is not limited by source"
        )
        self.assertTrue(limiter.has_capacity_at(THERE, "a"))

    @given(
        st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([HERE, THERE]), st.booleans()))
    )
    def test_whatever_begins(self, wanted: list[tuple[str, HostQuota, bool]]) -> None:
        """Neither limit is ever exceeded, a newcomer has room unless all is used up, and when
        everything has ended nothing is kept.
        """
        limiter = HostLimiter(3)
        under_way: list[tuple[str, HostQuota]] = []
        for source, quota, one_ends in wanted:
            if limiter.has_capacity(source) and limiter.has_capacity_at(quota, source):
                limiter.begin(quota, source)
                under_way.append((source, quota))
            at_hosts = [sum(each == one for _, each in under_way) for one in (HERE, THERE)]
            assert len(under_way) <= 3 and max(at_hosts) <= 2
            assert limiter.has_capacity("newcomer") == (len(under_way) < 3)
            if under_way and one_ends:
                ended_source, ended_quota = under_way.pop(0)
                limiter.release(ended_quota, ended_source)
        for source, quota in under_way:
            limiter.release(quota, source)
        assert len(limiter) == 0 and limiter.has_capacity()
