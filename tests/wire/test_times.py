"""Times as text."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.wire.times import exact_iso_time, iso_time


class TimesTests(SynchronousTestCase):
    def test_to_the_second(self) -> None:
        self.assertEqual(iso_time(0), "1970-01-01T00:00:00Z")
        self.assertEqual(iso_time(1_795_228_200.999_999), "2026-11-21T02:30:00Z")

    def test_to_the_microsecond(self) -> None:
        self.assertEqual(exact_iso_time(0), "1970-01-01T00:00:00.000000Z")
        self.assertEqual(exact_iso_time(1_795_228_200.25), "2026-11-21T02:30:00.250000Z")
