"""Tests the dictionary of limited size."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.util.caches import BoundedDict


class RememberedTests(SynchronousTestCase):
    def test_forgets_what_was_set_longest_ago(self) -> None:
        remembered: BoundedDict[str, int] = BoundedDict(2)
        remembered["a"] = 1
        remembered["b"] = 2
        remembered["a"] = 3
        remembered["c"] = 4
        self.assertEqual([remembered.get(key, 0) for key in "abc"], [3, 0, 4])
        self.assertEqual(len(remembered), 2)

    def test_values_are_replaced_where_they_are(self) -> None:
        remembered: BoundedDict[str, int] = BoundedDict(2)
        remembered["a"] = 1
        remembered["b"] = 2
        remembered.replace_each(lambda value: value * 10)
        remembered["c"] = 3
        self.assertEqual([remembered.get(key, 0) for key in "abc"], [0, 20, 3])
