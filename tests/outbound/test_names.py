"""Tests how long the addresses of names are kept."""

from __future__ import annotations

import os
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.outbound import names
from rsscloud_broker.outbound.names import LOOK, Names
from rsscloud_broker.testing.clock import Clock

FOUND = ["192.0.2.1", "2001:db8::1"]


class NamesTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.file = Path(self.mktemp())
        self.names = Names(self.clock, [str(self.file)])

    def test_for_its_time_to_live_which_use_does_not_prolong(self) -> None:
        self.assertIsNone(self.names.get("a.example"))
        self.names.keep("a.example", FOUND, 60)
        self.assertIsNone(self.names.get("b.example"))
        for _ in range(59):
            self.clock.advance(1)
            self.assertEqual(self.names.get("a.example"), FOUND)
        self.clock.advance(1)
        self.assertIsNone(self.names.get("a.example"))

    def test_longest(self) -> None:
        self.names.keep("a.example", FOUND, 86_400)
        self.clock.advance(300.0 - 1)
        self.assertEqual(self.names.get("a.example"), FOUND)
        self.clock.advance(1)
        self.assertIsNone(self.names.get("a.example"))

    def test_what_is_not_kept(self) -> None:
        for addresses, seconds in (
            (FOUND, 0),
            (FOUND, -1),
            ([], 60),
            ([f"192.0.2.{number}" for number in range(16 + 1)], 60),
        ):
            self.names.keep("a.example", addresses, seconds)
            self.assertIsNone(self.names.get("a.example"), (addresses, seconds))

    def test_the_least_used_goes_first(self) -> None:
        self.patch(names, "KEPT", 3)
        self.names.forget()
        for host in "abc":
            self.names.keep(host, FOUND, 60)
        self.names.get("a")
        self.names.keep("d", FOUND, 60)
        kept = [host for host in "abcd" if self.names.get(host)]
        self.assertEqual(kept, ["a", "c", "d"])

    def test_system_that_looks_names_up_in_another_way(self) -> None:
        def change() -> None:
            self.file.write_text("127.0.0.1 a.example", encoding="utf-8")

        def make_older() -> None:
            os.utime(self.file, (1.0, 1.0))

        for happens in (change, make_older, self.file.unlink):
            self.names.get("a.example")
            self.names.keep("a.example", FOUND, 60)
            self.clock.advance(LOOK)
            self.assertEqual(self.names.get("a.example"), FOUND)
            happens()
            self.clock.advance(LOOK)
            self.assertIsNone(self.names.get("a.example"), happens)
