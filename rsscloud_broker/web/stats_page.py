"""The front door for the statistics: ``/stats`` for people, and ``/stats.json`` for programs.

Both take ``?period=hour``, ``day`` or ``month``.  Anyone who asks within ``KEPT`` seconds gets the
same plots, so that nobody can keep the broker busy with drawing: they are at most a minute old, and
those of a month four minutes.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from attrs import frozen
from twisted.web.server import Request
from twisted.web.template import Flattenable, Tag, XMLString, tags
from zope.interface import implementer

from rsscloud_broker.http.answering import PLAIN, Answer, Answers, private, viewer_of
from rsscloud_broker.http.requests import parameter
from rsscloud_broker.interfaces import Caller, FrontDoorParts, IFrontDoor, Route, RoutesOnly
from rsscloud_broker.util.caches import TimedCache
from rsscloud_broker.web import plots
from rsscloud_broker.web.navigation import link
from rsscloud_broker.web.pages import linked
from rsscloud_broker.web.statistics import PERIODS, Period, Statistics, read

#: Seconds for which an answer is kept, and as many for the plots that it is made of: the numbers
#: are stored each minute.  Those of a month change little, and take the longest to read.
KEPT: Final = {"hour": 30.0, "day": 30.0, "month": 120.0}

_JSON: Final = "application/json"

T = TypeVar("T")


@frozen
class StatsOptions:
    """Options of the statistics page.

    :ivar most_pinged: whether it lists the most pinged topics.
    """

    most_pinged: bool = True


@implementer(IFrontDoor)
class StatsDoor(RoutesOnly):
    """The front door for ``/stats`` and ``/stats.json``."""

    name = "stats"

    def __init__(self, options: StatsOptions, parts: FrontDoorParts) -> None:
        self._shows_busiest = options.most_pinged
        self._parts = parts
        self._plots_of = self._caches_for(self._draw)
        self._page = self._caches_for(self._make_page)
        self._json = self._caches_for(self._make_json)

    def routes(self) -> Sequence[Route]:
        return [
            Route("/stats", "GET", Answers(self._show)),
            Route("/stats.json", "GET", Answers(self._answer_with(self._json)), for_everybody=True),
        ]

    def _caches_for(
        self, make: Callable[[Period], Awaitable[T]]
    ) -> dict[str, TimedCache[Period, T]]:
        """Caches for what ``make`` makes of a period, one for each period, by its name."""
        clock = self._parts.clock
        return {name: TimedCache(make, clock, seconds, size=1) for name, seconds in KEPT.items()}

    def _answer_with(
        self, kept: Mapping[str, TimedCache[Period, Answer]]
    ) -> Callable[[Request], Awaitable[Answer]]:
        """What answers a request with what is kept for the period that it names."""

        async def respond(request: Request) -> Answer:
            name = parameter(request, "period") or "day"
            if name not in PERIODS:
                text = f"There is no such period; there are: {', '.join(PERIODS)}.\n"
                return Answer(text.encode(), PLAIN, 400)
            return await kept[name].get(PERIODS[name])

        return respond

    async def _show(self, request: Request) -> Answer:
        """The page.  It names those who have signed in, so only its plots are kept for them."""
        viewer = await viewer_of(self._parts.callers, request)
        period = PERIODS.get(parameter(request, "period") or "day")
        if viewer is None or period is None:
            return await self._answer_with(self._page)(request)
        return await self._make_page(period, viewer)

    async def _read(self, period: Period) -> Statistics:
        now = self._parts.clock.wall_seconds()
        return await read(self._parts.statistics, period, now, with_topics=self._shows_busiest)

    async def _make_json(self, period: Period) -> Answer:
        document = json.dumps((await self._read(period)).as_json(), indent=1)
        return Answer(document.encode(), _JSON, headers={"cache-control": "max-age=15"})

    async def _draw(self, period: Period) -> tuple[Statistics, Sequence[Drawn]]:
        statistics = await self._read(period)
        return statistics, await self._parts.in_thread(draw, statistics)

    async def _make_page(self, period: Period, viewer: Caller | None = None) -> Answer:
        """The page of a period, with the plots that are kept."""
        statistics, drawn = await self._plots_of[period.name].get(period)
        periods = [
            tags.li(link(each.text, f"/stats?period={each.name}", is_here=each is period))
            for each in PERIODS.values()
        ]
        page = await self._parts.pages.render(
            "Statistics",
            "stats.html",
            viewer,
            here="/stats",
            period=period.text,
            periods=periods,
            empty="yes" if statistics.is_empty else "",
            facts="" if statistics.is_empty else _facts(statistics),
            plots="" if statistics.is_empty else [_figure(each) for each in drawn],
            busiest=[
                tags.tr(
                    tags.td(linked(each.url, tags.bdi(each.url))),
                    tags.td(f"{each.pings:,}", class_="number"),
                )
                for each in statistics.busiest
            ],
            busiest_of=_busiest_note(period),
            json=tags.a("stats.json", href=f"/stats.json?period={period.name}"),
        )
        return Answer(page, headers=private(viewer))


# --- plots ------------------------------------------------------------------------


@frozen
class Drawn:
    """A plot with its heading, and the numbers that stand for it in words.

    :ivar unit: what the vertical axis counts.
    :ivar svg: an ``svg`` element, parsed for the page; empty if there is nothing to draw.
    :ivar legend: the names of the series, in the order of their colours, with a text of each.
    """

    heading: str
    unit: str
    svg: Sequence[Flattenable]
    legend: Sequence[tuple[str, str]]


def draw(statistics: Statistics) -> list[Drawn]:
    """Draw the plots of a page.  Takes about a hundredth of a second: call it in a thread."""
    pings = {
        name: statistics.numbers[key]
        for name, key in (("recorded", "pings"), ("repeated", "repeats"))
        if key in statistics.numbers
    }
    # Failures come last: they are drawn on top, and in a colour of their own.
    found = statistics.series("fetches")
    results: list[str] = ["changed", "unchanged", "failed"]
    fetches = {name: found[name] for name in results if name in found}
    by_protocol = {
        name.removesuffix(".delivered"): values
        for name, values in statistics.series("deliveries").items()
        if name.endswith(".delivered")
    }
    return [
        _areas(statistics, "Pings", "pings", pings),
        _areas(statistics, "Fetches of topics, by result", "fetches", fetches),
        _areas(statistics, "Attempts to notify, by outcome", "attempts", statistics.by_outcome()),
        _areas(statistics, "Delivered notifications, by protocol", "notifications", by_protocol),
        _latencies(statistics),
        _levels(statistics),
    ]


def _areas(
    statistics: Statistics, heading: str, unit: str, series: Mapping[str, Sequence[int]]
) -> Drawn:
    """A plot of what adds up; the legend has the totals."""
    named = {name.replace("_", " "): values for name, values in series.items() if any(values)}
    svg = plots.areas(named.values(), statistics.marks) if named else ""
    legend = [(name, f"{sum(values):,}") for name, values in named.items()]
    return Drawn(heading, f"{unit} in each {statistics.period.step_text}", _parse_svg(svg), legend)


def _latencies(statistics: Statistics) -> Drawn:
    """The plot of the seconds from a ping to its first notification, for half of them and 95 %."""
    shares = {"half of them": 50, "95 %": 95}
    series = {name: statistics.latencies("first_latency", share) for name, share in shares.items()}
    overall = statistics.percentiles("first_latency")
    legend = [
        (name, f"within {_short_seconds(overall[f'p{share}'])}")
        for name, share in shares.items()
        if overall[f"p{share}"] is not None
    ]
    svg = plots.lines(series.values(), statistics.marks) if legend else ""
    unit = f"seconds, of the pings of each {statistics.period.step_text}"
    return Drawn("From a ping to its first notification", unit, _parse_svg(svg), legend)


def _levels(statistics: Statistics) -> Drawn:
    """How many topics and subscriptions there were; the legend has the last numbers."""
    named = {
        "subscriptions by " + name.removeprefix("subscriptions."): values
        for name, values in sorted(statistics.measured.items())
        if name.startswith("subscriptions.")
    }
    named = {"topics with subscriptions": statistics.measured.get("watched_topics", [])} | named
    named = {name: values for name, values in named.items() if any(values)}
    svg = plots.lines(named.values(), statistics.marks, counts=True) if named else ""
    legend = [(name, f"{values[-1] or 0:,}") for name, values in named.items()]
    return Drawn("Topics and subscriptions", "how many there were", _parse_svg(svg), legend)


def _parse_svg(svg: str) -> Sequence[Flattenable]:
    return XMLString(svg).load() if svg else ()


# --- parts of the page --------------------------------------------------------------


def _figure(drawn: Drawn) -> Tag:
    if not drawn.svg:
        return tags.section(tags.h2(drawn.heading), tags.p("None in this period.", class_="quiet"))
    legend = [
        tags.li(tags.span(class_=f"key color-{number}"), f"{name}: ", tags.b(text))
        for number, (name, text) in enumerate(drawn.legend)
    ]
    return tags.section(
        tags.h2(drawn.heading),
        tags.figure(
            tags.p(f"{drawn.unit}; times in UTC", class_="quiet"),
            *drawn.svg,
            tags.figcaption(tags.ul(*legend, class_="legend")),
            class_="plot",
        ),
    )


def _facts(statistics: Statistics) -> list[Tag]:
    """The most important numbers of a period, as items of a ``dl``."""
    outcomes = {name: sum(values) for name, values in statistics.by_outcome().items()}
    first = statistics.percentiles("first_latency")
    pairs: list[tuple[str, str]] = [
        ("Pings", f"{statistics.total('pings'):,}"),
        ("Changes found", f"{statistics.total('fetches.changed'):,}"),
        (
            "Notifications",
            f"{outcomes.get('delivered', 0):,} delivered, "
            f"{sum(statistics.totals('given_up').values()):,} given up",
        ),
    ]
    if first["p95"] is not None:
        within = f"95 % of them within {_short_seconds(first['p95'])} of the ping"
        pairs.append(("First notification", within))
    if (topics := statistics.last("topics")) is not None:
        watched = statistics.last("watched_topics") or 0
        pairs.append(("Topics", f"{topics:,}; with subscriptions: {watched:,}"))
        total = sum(statistics.subscriptions.values())
        pairs.append(("Subscriptions", f"{total:,}"))
    return [tags.div(tags.dt(name), tags.dd(text)) for name, text in pairs]


def _busiest_note(period: Period) -> Flattenable:
    """What the list of the busiest topics counts, in words."""
    more = " Of hours before the last two only the hundred most pinged topics count."
    return f"Pings of {period.text}.{'' if period.name == 'hour' else more}"


def _short_seconds(seconds: Any) -> str:
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
