"""The reader of other brokers' change lists: exact, and not impressed by hostile documents."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.model import Ping
from rsscloud_broker.wire.change_list import Unit, closing, opening, weblogs
from rsscloud_broker.wire.change_list_reader import AHEAD, NotAList, ReadList, read_list
from rsscloud_broker.wire.text import clean

#: 2026-09-29 12:00:00 UTC
NOON = 1_790_683_200.0
SOURCE = "http://other.example"

#: The list in "RSS Feed State", as weblogs.com made it.
SEED = b"""<weblogUpdates version="2" updated="Sat, 13 Jan 2007 19:08:00 GMT" count="2000001">
 <weblog name="The RSS Blog" url="http://www.kbcafe.com/rss" when="1"/>
 <weblog name="iBLOGthere4iM" url="http://www.kbcafe.com/iBLOGthere4iM" when="2"/>
</weblogUpdates>
"""
SEED_TIME = 1_168_715_280.0


def read(document: bytes, now: float = NOON, unit: Unit = "minutes", **options: Any) -> ReadList:
    options = {"made_at": None, "date": None, "since": 0.0, "limit": 1000} | options
    return read_list(document, now=now, unit=unit, source=SOURCE, **options)


def a_list(*records: str, updated: str = "Tue, 29 Sep 2026 12:00:00 GMT") -> bytes:
    weblogs = "".join(f"<weblog {record}/>" for record in records)
    return f'<weblogUpdates version="2" updated="{updated}">{weblogs}</weblogUpdates>'.encode()


def record(number: int = 0, **more: str) -> str:
    said = {"name": f"Blog {number}", "url": f"http://blog{number}.example/", "when": "0"} | more
    return " ".join(f'{name}="{value}"' for name, value in said.items())


class ReadListTests(SynchronousTestCase):
    def test_list_of_the_seed_in_both_readings(self) -> None:
        units: tuple[tuple[Unit, int], ...] = (("minutes", 60), ("seconds", 1))
        for unit, seconds in units:
            found = read(SEED, SEED_TIME + 20, unit)
            self.assertEqual(found.made_at, SEED_TIME)
            self.assertEqual(found.exact, ())
            self.assertEqual(
                [(ping.name, SEED_TIME - ping.received_at) for ping in found.rough],
                [("The RSS Blog", seconds), ("iBLOGthere4iM", 2 * seconds)],
            )

    def test_our_own_lists_are_exact(self) -> None:
        url, feed = "http://a.example/", "http://a.example/f"
        ping = Ping("A & B", url, NOON - 61.5, rss_url=feed, origin="http://x")
        document = opening(NOON, 1) + weblogs([ping], NOON, "minutes") + closing(1)
        (read_back,) = read(document, unit="seconds").exact
        self.assertEqual(read_back.received_at, NOON - 62)
        self.assertEqual(read_back.origin, f"http://x {SOURCE}")
        self.assertEqual((read_back.name, read_back.rss_url), (ping.name, ping.rss_url))

    def test_faulty_records_do_not_keep_others_from_being_read(self) -> None:
        faulty = [
            *(record(when=when) for when in ("-3", "9" * 30, "soon")),
            *(record(url=url) for url in ("", "javascript:x", "http://a.example/" + "a" * 3000)),
            *(record(rssUrl="ftp://a/"), record(via="varnish"), record(ts="2036-09-29T12:00:00Z")),
        ]
        found = read(a_list(record(1), *faulty, record(2)))
        self.assertEqual([ping.name for ping in found.rough], ["Blog 1", "Blog 2"])
        self.assertEqual(found.invalid, len(faulty))
        self.assertIn("'when' is '-3'; it must be a whole number", found.fault)

    def test_clock_that_is_a_little_ahead_is_borne(self) -> None:
        ahead = a_list(record(), updated="Tue, 29 Sep 2026 12:04:00 GMT")
        self.assertEqual(read(ahead).rough[0].received_at, NOON + 240)

    def test_list_from_the_future_counts_as_made_now(self) -> None:
        future = a_list(record(), updated="Tue, 29 Sep 2099 12:00:00 GMT")
        self.assertEqual(read(future).made_at, NOON)
        self.assertEqual(read(future, made_at=NOON - 7).made_at, NOON - 7)
        self.assertLess(240, AHEAD)

    def test_date_from_the_future_is_not_believed(self) -> None:
        undated = b"<weblogUpdates><weblog url='http://a.example/' when='0'/></weblogUpdates>"
        for date in (NOON + AHEAD + 1, NOON + 10 * 365 * 86_400):
            found = read(undated, date=date)
            self.assertEqual((found.made_at, found.is_dated), (NOON, False))
            self.assertEqual(found.rough[0].received_at, NOON)
        found = read(undated, date=NOON - 30)
        self.assertEqual((found.made_at, found.is_dated, found.ahead), (NOON - 30, True, 0))

    def test_clock_that_is_far_ahead_is_put_right(self) -> None:
        """The list was made a minute before it was sent, whatever the clock of its server says."""
        ahead = 3 * 3600.0
        records = record(1, when="2"), record(2, ts="2026-09-29T14:58:00Z")
        document = a_list(*records, updated="Tue, 29 Sep 2026 14:59:00 GMT")
        found = read(document, date=NOON + ahead)
        self.assertEqual((found.made_at, found.ahead, found.invalid), (NOON - 60, ahead, 0))
        self.assertEqual(found.exact, (), "a corrected time is not exact")
        ages = {ping.name: NOON - ping.received_at for ping in found.rough}
        self.assertEqual(ages, {"Blog 1": 180, "Blog 2": 120})

    def test_one_old_record_does_not_stand_for_a_long_list(self) -> None:
        units: tuple[tuple[Unit, str], ...] = (("minutes", "500"), ("seconds", "30000"))
        for unit, old in units:
            found = read(a_list(record(1, when="3"), record(2, when=old)), unit=unit)
            self.assertGreater(found.reaches, NOON - 200, unit)
        found = read(a_list(*(record(n, when=str(5 * n)) for n in range(20))))
        self.assertEqual(found.reaches, NOON - 95 * 60, "none of its records is alone")

    def test_list_reaches_as_far_as_its_records_were_read(self) -> None:
        records = [record(number, when=str(number)) for number in range(10)]
        self.assertEqual(read(a_list(*records), limit=4).reaches, NOON - 3 * 60)
        self.assertEqual(read(a_list(*records), since=NOON - 150).reaches, NOON - 120)
        self.assertEqual(read(a_list()).reaches, NOON)

    def test_old_and_too_many_records_are_counted(self) -> None:
        records = [record(number, when=str(number)) for number in range(10)]
        found = read(a_list(*reversed(records)), since=NOON - 5.5 * 60, limit=4)
        self.assertEqual([ping.name[-1] for ping in found.rough], ["0", "1", "2", "3"])
        self.assertEqual((found.too_old, found.too_many, found.records), (4, 2, 4))

    def test_weblog_without_a_name_has_its_url(self) -> None:
        (ping,) = read(a_list('url="http://a.example/" when="0"')).rough
        self.assertEqual(ping.name, "http://a.example/")

    def test_what_is_no_change_list(self) -> None:
        bomb = b'<!DOCTYPE a [<!ENTITY b "bbbb">]><weblogUpdates/>'
        for document, reason in (
            (b"", "not a change list"),
            (b"<html><body>Sorry</body></html>", "its root element is 'html'"),
            (b"\x00\xff" * 1000, "not a change list"),
            (bomb, "DOCTYPE"),
            (a_list(record())[:-5], "not a change list"),
            (b"<weblogUpdates>" + b"<a>" * 5000, "not a change list"),
            (b"<weblogUpdates><a><b><c/></b></a></weblogUpdates>", "deep"),
        ):
            error = self.assertRaises(NotAList, read, document)
            self.assertIn(reason, str(error))

    @given(st.lists(st.tuples(st.text(max_size=30), st.integers(0, 3600)), max_size=20))
    def test_round_trip_of_any_names(self, made: list[tuple[str, int]]) -> None:
        pings = [
            Ping(clean(name), f"http://blog{number}.example/", NOON - age)
            for number, (name, age) in enumerate(made)
        ]
        document = opening(NOON, 1) + weblogs(pings, NOON, "minutes") + closing(len(pings))
        found = read(document)
        self.assertEqual(found.invalid, 0)
        self.assertEqual(
            {(ping.url, ping.name, ping.received_at) for ping in found.exact},
            {(ping.url, ping.name or ping.url, ping.received_at) for ping in pings},
        )
