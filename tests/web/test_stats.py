"""Tests the statistics page, its numbers as JSON, and the plots."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from lxml import etree
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.template import Tag
from twisted.web.test.requesthelper import DummyRequest

from rsscloud_broker.interfaces import Account, Caller
from rsscloud_broker.model import Ping
from rsscloud_broker.model.work import PingedTopic
from rsscloud_broker.testing import FakeCallers, front_door_parts
from rsscloud_broker.web.pages import PageRenderer
from rsscloud_broker.web.plots import areas, lines, short, ticks_up_to
from rsscloud_broker.web.statistics import PERIODS, percentile, read
from rsscloud_broker.web.stats_page import StatsDoor, StatsOptions, draw
from tests.front_doors.fixture import NOON, House

HOUR = 3600
NOW = int(NOON)


class PercentileTests(SynchronousTestCase):
    def test_percentiles(self) -> None:
        spread = {0.1: 90, 1.0: 9, 10.0: 1, float("inf"): 0}
        for why, buckets, share, expected in (
            ("nothing", {1.0: 0, float("inf"): 0}, 50, None),
            ("within a bucket", {1.0: 0, 2.0: 100, 3.0: 0}, 50, 1.5),
            ("at the end of the first bucket", spread, 90, 0.1),
            ("at the end of the second one", spread, 99, 1.0),
            ("at the end of the last one", spread, 100, 10.0),
            ("beyond the highest bound", {1.0: 1, 10.0: 0, float("inf"): 99}, 95, 10.0),
        ):
            found = percentile(buckets, share)
            self.assertEqual(found and round(found, 9), expected, why)


class PlotTests(SynchronousTestCase):
    def numbers(self, svg: str) -> list[str | None]:
        """What is written at the vertical axis of a plot."""
        texts = etree.fromstring(svg).iterfind("{*}g[@class='y axis']/{*}text")
        return [text.text for text in texts]

    def test_areas_stand_on_each_other(self) -> None:
        svg = areas([[1, 2, 3], [0, 0, 2]], {0: "12:00", 2: "13:00"})
        root = etree.fromstring(svg)
        paths = {
            group.get("class"): [path.get("d") for path in group.iterfind("{*}path[@class='area']")]
            for group in root.iterfind("{*}g")
        }
        self.assertEqual(paths["color-0"], ["M62 158 399 122 736 87 736 194 399 194 62 194Z"])
        self.assertEqual(paths["color-1"], ["M62 158 399 122 736 15 736 87 399 122 62 158Z"])
        texts = root.iterfind(".//{*}g[@class='x axis']//{*}text")
        marks = [(text.get("x"), text.text) for text in texts]
        self.assertEqual(marks, [("62", "12:00"), ("736", "13:00")])

    def test_large_numbers_are_short(self) -> None:
        self.assertEqual(self.numbers(areas([[1_234_567]], {})), ["0", "500k", "1M", "1.5M"])

    def test_numbers_at_an_axis_are_round(self) -> None:
        """Counts have no fractions."""
        for most, whole, ticks in (
            (0, False, [0]),
            (0.7, False, [0, 0.2, 0.4, 0.6, 0.8]),
            (2.5, False, [0, 0.5, 1, 1.5, 2, 2.5]),
            (0, True, [0]),
            (1, True, [0, 1]),
            (5, True, [0, 1, 2, 3, 4, 5]),
            (6, True, [0, 2, 4, 6]),
            (19, True, [0, 5, 10, 15, 20]),
            (1001, True, [0, 500, 1000, 1500]),
        ):
            found = ticks_up_to(most, whole=whole)
            self.assertEqual([round(tick, 9) for tick in found], ticks)
        for svg in (areas([[1], [1]], {}), lines([[1], [2]], {}, counts=True)):
            self.assertEqual(self.numbers(svg), ["0", "1", "2"])

    def test_nothing_of_what_was_counted(self) -> None:
        for svg in (areas([[0, 0]], {}), lines([[None, None]], {}), lines([[0, None]], {})):
            self.assertEqual(self.numbers(svg), ["0"])

    def test_texts_are_no_elements(self) -> None:
        self.assertNotIn("<script", areas([[1]], {0: "<script>"}))

    def test_lines_have_gaps(self) -> None:
        """And dots where no line leads: one for each value of a month would be most of a page."""
        drawn = lines([[1, 2, None, 4, 5]], {})
        self.assertEqual(len(etree.fromstring(drawn).findall(".//{*}path[@class='line']")), 2)
        self.assertNotIn("<circle", drawn)
        self.assertEqual(lines([[1, 2, None, 4, None]], {}).count("<circle"), 1)

    def test_numbers_beside_an_axis(self) -> None:
        found = [short(number) for number in (0, 0.25, 12.0, 999, 1200, 3_400_000, 2e9)]
        self.assertEqual(found, ["0", "0.25", "12", "999", "1.2k", "3.4M", "2G"])


class StatsTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.house = House(self, doors=frozenset({"stats", "front_page"}))

    def add(
        self, ago: int, counted: Mapping[str, int], measured: Mapping[str, int] | None = None
    ) -> None:
        """Store numbers of a minute this many seconds ago."""
        at = self.house.clock.wall_seconds() - ago
        self.successResultOf(self.house.store.add_statistics(at, counted, measured or {}))

    def json(self, period: str = "day") -> Any:
        answer = self.house.get(f"/stats.json?period={period}")
        self.assertEqual((answer.status, answer.headers["content-type"]), (200, "application/json"))
        return json.loads(answer.body)

    def page(self, period: str = "day") -> str:
        answer = self.house.get(f"/stats?period={period}")
        self.assertEqual(answer.status, 200)
        return answer.body.decode()

    def test_an_empty_store(self) -> None:
        found = self.json()
        self.assertEqual((found["totals"], found["topics"], found["mostPinged"]), ({}, None, []))
        self.assertEqual(found["latencySeconds"]["first"], {"p50": None, "p95": None, "p99": None})
        page = self.page()
        self.assertIn("reload the page in a minute", page)
        self.assertNotIn("<svg", page)
        self.assertNotIn("Most pinged", page)

    def test_numbers_of_the_hour(self) -> None:
        self.add(0, {"pings": 3, "repeats": 1})
        self.add(600, {"pings": 2})
        self.add(3700, {"pings": 100})
        found = self.json("hour")
        self.assertEqual(found["totals"], {"pings": 5, "repeats": 1})
        self.assertEqual((len(found["series"]["pings"]), found["stepSeconds"]), (60, 60))
        self.assertEqual((found["series"]["pings"][-1], found["series"]["pings"][-11]), (3, 2))
        self.assertEqual(self.json("day")["totals"]["pings"], 105)

    def test_numbers_of_the_month(self) -> None:
        for days, pings in ((0, 1), (29, 10), (31, 100)):
            self.add(days * 24 * HOUR, {"pings": pings})
        found = self.json("month")
        self.assertEqual(found["totals"], {"pings": 11})
        self.assertEqual(len(found["series"]["pings"]), 120)

    def test_measurements_hold_until_the_next(self) -> None:
        one = {"number_of_topics": 9, "number_of_watched_topics": 7}
        self.add(1800, {}, one | {"number_of_subscriptions.soap": 4})
        self.add(1200, {}, one | {"number_of_subscriptions.websub": 5})
        found = self.json("hour")
        self.assertEqual((found["topics"], found["topicsWithSubscriptions"]), (9, 7))
        self.assertEqual(found["subscriptions"], {"websub": 5}, "no soap any more")
        now = self.house.clock.wall_seconds()
        statistics = self.successResultOf(read(self.house.store, PERIODS["hour"], now))
        levels = statistics.measured["subscriptions.soap"]
        self.assertEqual((levels[0], levels[-31], levels[-22], levels[-1]), (None, 4, 4, 0))

    def test_page(self) -> None:
        counted = {"pings": 1234, "fetches.changed": 30, "deliveries.websub.delivered": 900}
        counted |= {"deliveries.soap.failed": 50, "given_up.soap": 7}
        counted |= {"first_latency.0.1": 90, "first_latency.0.25": 10}
        self.add(60, counted, {"number_of_topics": 40, "number_of_watched_topics": 30})
        page = self.page("hour")
        for text in (
            "1,234",
            "900 delivered, 7 given up",
            "95 % of them within 0.17 s of the ping",
            "40; with subscriptions: 30",
            "pings in each minute; times in UTC",
        ):
            self.assertIn(text, page)
        self.assertEqual(page.count("<svg"), 6)
        self.assertLess(len(page), 100_000)
        self.assertIn('aria-current="page"', page)

    def test_a_large_page_is_below_its_limit(self) -> None:
        """Every step of every plot has a number."""
        names = [
            f"deliveries.{protocol}.{outcome}"
            for protocol in ("http-post", "https-post", "soap", "websub", "xml-rpc")
            for outcome in ("delivered", "failed", "gone", "put_off", "unavailable")
        ] + ["pings", "repeats", "fetches.changed", "fetches.failed", "first_latency.0.5"]
        for step in range(96):
            measured = {f"number_of_{name}": 10 for name in ("topics", "watched_topics")}
            self.add(step * 900, dict.fromkeys(names, step * 997 % 1013), measured)
        self.assertLess(len(self.page()), 100_000)

    def test_most_pinged_topics(self) -> None:
        evil = 'http://x.example/"><script>alert(1)</script>'
        self.add(0, {"pings": 1})
        put = self.house.store.put_busy_topics
        self.successResultOf(put(NOW // HOUR - 2, [PingedTopic(evil, 10)]))
        self.successResultOf(put(NOW // HOUR - 1, [PingedTopic(evil, 5)]))  # counted anew
        for ago in (60, HOUR, 3 * HOUR):
            ping = Ping("A", evil, self.house.clock.wall_seconds() - ago)
            self.successResultOf(self.house.store.add_ping(ping, 0))
        page = self.page()
        self.assertNotIn("<script>", page)
        self.assertIn("&lt;script&gt;", page)
        self.assertEqual(self.json()["mostPinged"], [{"url": evil, "pings": 12}])
        for period, pings in (("hour", 1), ("month", 12)):
            self.assertEqual(self.json(period)["mostPinged"], [{"url": evil, "pings": pings}])

    def test_an_unknown_period(self) -> None:
        answer = self.house.get("/stats.json?period=year")
        self.assertEqual(answer.status, 400)
        self.assertIn("hour, day, month", answer.body.decode())

    def test_plots_are_drawn_once_for_all_who_have_signed_in(self) -> None:
        drawings: list[object] = []

        async def in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
            drawings.append(function)
            return function(*arguments)

        caller = Caller(Account(1, "dave", False, 1.0), frozenset(), "token")
        parts = front_door_parts(
            in_thread=in_thread, callers=FakeCallers(caller), pages=PageRenderer()
        )
        (page, _) = StatsDoor(StatsOptions(), parts).routes()
        for _ in range(3):
            request: Any = DummyRequest([b"stats"])
            request.args = {}
            request.channel = object()  # so that it looks connected
            request.render(page.resource)
            self.assertIn(b"dave", b"".join(request.written))
        self.assertEqual(len(drawings), 1)

    def test_plots_are_parsed_where_they_are_drawn(self) -> None:
        """In a thread: the broker has other things to do meanwhile."""
        self.add(0, {"pings": 3})
        view, now = self.house.store, self.house.clock.wall_seconds()
        statistics = self.successResultOf(read(view, PERIODS["hour"], now))
        pings, *others = draw(statistics)
        self.assertEqual([isinstance(each, Tag) for each in pings.svg], [True])
        self.assertEqual({tuple(each.svg) for each in others}, {()})

    def test_answers_are_kept_for_a_moment(self) -> None:
        self.add(0, {"pings": 1})
        self.assertEqual(self.json()["totals"], {"pings": 1})
        self.add(0, {"pings": 1})
        self.assertEqual(self.json()["totals"], {"pings": 1})
        month = self.json("month")
        self.house.clock.advance(40)
        self.assertEqual(self.json()["totals"], {"pings": 2})
        self.add(0, {"pings": 1})
        self.assertEqual(self.json("month"), month)
        self.house.clock.advance(80)
        self.assertEqual(self.json("month")["totals"], {"pings": 3})
