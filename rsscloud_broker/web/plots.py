"""Draws plots as SVG, for pages whose style sheet gives them their colours and a dark mode.

The pages have the numbers of a plot as text, too, so readers of screens skip the plot itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby, pairwise
from math import ceil
from typing import Final
from xml.sax.saxutils import escape

from attrs import frozen

from rsscloud_broker.wire.units import DAY

#: Where the values stand in a plot of 760 by 230; the rest is for what is written at the axes.
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 736, 15, 194
#: The room between an axis and its text: to the left of the vertical axis, and below the horizontal
#: one; and how far below the middle of a number its foot is.
_BESIDE, _BELOW, _FOOT = 5, 19, 4

#: The powers of ten between two numbers at an axis: of fractions, and of whole numbers.
_FRACTIONS: Final = range(-6, 20)
_WHOLE: Final = range(20)


def areas(series: Collection[Sequence[int]], marks: Mapping[int, str]) -> str:
    """A plot of areas on top of each other, for what adds up.

    :param series: at least one; of each, the number of every step.
    :param marks: what is written below the horizontal axis, by the step.
    :returns: an ``svg`` element.
    """
    edges = [[0] * max(map(len, series))]
    for values in series:
        edges.append([under + value for under, value in zip(edges[-1], values, strict=True)])
    ticks = ticks_up_to(max(edges[-1]), whole=True)
    places = _Places(len(edges[-1]), ticks[-1])
    drawn = [
        f'<path class="area" d="M{places.path(enumerate(upper))} '
        f'{places.path(reversed(list(enumerate(lower))))}Z"/>'
        for lower, upper in pairwise(edges)
    ]
    return _plot(places, ticks, marks, drawn)


def lines(
    series: Collection[Sequence[float | None]], marks: Mapping[int, str], *, counts: bool = False
) -> str:
    """A plot of lines, for what does not add up.  ``None`` is a gap.

    The other parameters are those of ``areas``.

    :param counts: whether the numbers are whole, and so are those at the axis.
    """
    ticks = ticks_up_to(max(value or 0 for values in series for value in values), whole=counts)
    places = _Places(max(map(len, series)), ticks[-1])
    drawn = ["".join(map(places.line, _without_gaps(values))) for values in series]
    return _plot(places, ticks, marks, drawn)


def ticks_up_to(most: float, *, whole: bool) -> list[float]:
    """Some round numbers from 0 to at least ``most``, for an axis.

    :param whole: whether they are whole numbers.
    """
    step = next(
        nice * 10.0**power
        for power in (_WHOLE if whole else _FRACTIONS)
        for nice in (1, 2, 5)
        if nice * 10.0**power * 5 >= most
    )
    return [step * number for number in range(ceil(most / step) + 1)]


@frozen
class _Places:
    """Where the values of a plot stand.

    :ivar steps: how many steps the horizontal axis has.
    :ivar most: the number at the upper end of the vertical axis.
    """

    steps: int
    most: float

    def x(self, step: int) -> int:
        if self.steps == 1:
            return (_LEFT + _RIGHT) // 2
        return _LEFT + round(step * (_RIGHT - _LEFT) / (self.steps - 1))

    def y(self, value: float) -> int:
        return _BOTTOM - round(value * (_BOTTOM - _TOP) / (self.most or 1))

    def path(self, points: Iterable[tuple[int, float]]) -> str:
        """A path through points, each of which is a step with its value."""
        return " ".join(f"{self.x(step)} {self.y(value)}" for step, value in points)

    def line(self, points: Sequence[tuple[int, float]]) -> str:
        """A line through points.  A single one is a dot: no line leads to it."""
        if len(points) > 1:
            return f'<path class="line" d="M{self.path(points)}"/>'
        [(step, value)] = points
        return f'<circle class="dot" cx="{self.x(step)}" cy="{self.y(value)}" r="2"/>'


def _without_gaps(values: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    """The parts of a series that are without gaps, each as steps with their values."""
    groups = groupby(enumerate(values), key=lambda point: point[1] is None)
    return [
        [(step, value) for step, value in group if value is not None]
        for is_gap, group in groups
        if not is_gap
    ]


def _plot(
    places: _Places, ticks: Sequence[float], marks: Mapping[int, str], drawn: Sequence[str]
) -> str:
    """A plot of what is ``drawn``, each in a colour of its own, with its two axes."""
    parts = ['<g class="y axis">']
    for tick in ticks:
        y = places.y(tick)
        parts.append(f'<path class="guide" d="M{_LEFT} {y}H{_RIGHT}"/>')
        parts.append(f'<text x="{_LEFT - _BESIDE}" y="{y + _FOOT}">{short(tick)}</text>')
    parts.append('</g><g class="x axis">')
    for step, text in marks.items():
        x = places.x(step)
        parts.append(f'<g><path class="guide" d="M{x} {_TOP}V{_BOTTOM}"/>')
        parts.append(f'<text x="{x}" y="{_BOTTOM + _BELOW}">{escape(text)}</text></g>')
    parts.append("</g>")
    parts += (f'<g class="color-{place}">{each}</g>' for place, each in enumerate(drawn))
    return _svg(760, 230, parts)


def bars(days: Sequence[int], numbers: Sequence[int], unit: str) -> str:
    """A small plot of bars, one for each day.

    :param days: days since the epoch (UTC), one after the other.
    :param unit: what is counted, as it is written at the axis.
    :returns: an ``svg`` element.
    """
    # Each day is 20 wide, and its bar stands on the line at 78, at most 60 high.
    most = max(*numbers, 1)
    parts = [f'<text x="0" y="10">{escape(unit)}: {short(most)}</text>']
    for place, number in enumerate(numbers):
        height = max(round(number * 60 / most), 2) if number else 0
        if height:
            parts.append(
                f'<rect class="bar" x="{place * 20 + 1}" y="{78 - height}" width="18" '
                f'height="{height}"/>'
            )
    width = len(days) * 20
    parts.append(f'<path class="guide" d="M0 78H{width}"/>')
    for place, anchor in ((0, "start"), (len(days) // 2, "middle"), (len(days) - 1, "end")):
        x = {"start": 0, "end": width}.get(anchor, place * 20 + 10)
        date = datetime.fromtimestamp(days[place] * DAY, UTC)
        text = "today" if anchor == "end" else f"{date:%d %b}"
        parts.append(f'<text x="{x}" y="98" text-anchor="{anchor}">{text}</text>')
    return _svg(width, 102, parts)


def _svg(width: int, height: int, parts: Sequence[str]) -> str:
    view = f"0 0 {width} {height}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{view}" aria-hidden="true">'
        f"{''.join(parts)}</svg>"
    )


def short(number: float) -> str:
    """A number as it is written beside an axis: 1,200,000 is "1.2M"."""
    for factor, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= factor:
            return f"{number / factor:.3g}{sign}"
    return f"{number:.3g}"
