"""Draws plots as SVG, for pages whose style sheet gives them their colours.

``pygal`` draws them.  Its own style sheet, script and tooltips are removed: pages allow no inline
style or script, and the style sheet of the pages has a dark mode.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from xml.sax.saxutils import escape

from lxml import etree

from rsscloud_broker.wire.units import DAY

#: Positions with digits after the point look the same and make a page larger.
_TOO_EXACT: Final = re.compile(r"(\d)\.\d+")

_REMOVED: Final = ("defs", "desc", "title")


def areas(labels: Sequence[str], series: Mapping[str, Sequence[int]], marked: Sequence[str]) -> str:
    """A plot of areas on top of each other, for what adds up.

    :param labels: the names of the steps on the horizontal axis.
    :param series: the number of each step, by the name of the series.
    :param marked: the labels that are written below the axis.
    :returns: an ``svg`` element.
    """
    sums = [sum(values) for values in zip(*series.values(), strict=True)]
    ticks = whole_numbers(max(sums, default=0))
    return _plot("StackedLine", labels, series, marked, y_labels=ticks, fill=True, show_dots=False)


def lines(
    labels: Sequence[str],
    series: Mapping[str, Sequence[float | None]],
    marked: Sequence[str],
    *,
    counts: bool = False,
) -> str:
    """A plot of lines, for what does not add up.  ``None`` is a gap.

    The other parameters are those of ``areas``.

    :param counts: whether the numbers are whole, and so are those at the axis.
    """
    options: dict[str, Any] = {"dots_size": 2}
    if counts:
        most = max((value or 0 for values in series.values() for value in values), default=0)
        options["y_labels"] = whole_numbers(int(most))
    return _plot("Line", labels, series, marked, **options)


def whole_numbers(most: int) -> list[int]:
    """Some whole numbers from 0 to at least ``most``, for an axis with counts."""
    step = next(
        nice * 10**power
        for power in range(20)
        for nice in (1, 2, 5)
        if nice * 10**power * 5 >= most
    )
    return [step * number for number in range(-(-most // step) + 1)]


def bars(days: Sequence[int], numbers: Sequence[int], unit: str) -> str:
    """A small plot of bars, one for each day.

    :param days: days since the epoch (UTC), one after the other.
    :param unit: what is counted, as it is written at the axis.
    :returns: an ``svg`` element.
    """
    # Each day is 20 wide, and its bar stands on the line at 78, at most 60 high.
    most = max(*numbers, 1)
    parts = [f'<text class="axis" x="0" y="10">{escape(unit)}: {short(most)}</text>']
    for place, number in enumerate(numbers):
        height = max(round(number * 60 / most), 2) if number else 0
        if height:
            parts.append(
                f'<rect class="bar" x="{place * 20 + 1}" y="{78 - height}" width="18" '
                f'height="{height}"/>'
            )
    width = len(days) * 20
    parts.append(f'<path class="axis line" d="M0 78H{width}"/>')
    for place, anchor in ((0, "start"), (len(days) // 2, "middle"), (len(days) - 1, "end")):
        x = {"start": 0, "end": width}.get(anchor, place * 20 + 10)
        date = datetime.fromtimestamp(days[place] * DAY, UTC)
        text = "today" if anchor == "end" else f"{date:%d %b}"
        parts.append(f'<text x="{x}" y="98" text-anchor="{anchor}">{text}</text>')
    view = f"0 0 {width} 102"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="bars" viewBox="{view}" '
        f'aria-hidden="true">{"".join(parts)}</svg>'
    )


def _plot(
    kind: str,
    labels: Sequence[str],
    series: Mapping[str, Sequence[float | None]],
    marked: Sequence[str],
    **options: Any,
) -> str:
    """Draw a plot by ``pygal``.  ``kind`` is the name of a class there, ``options`` are its own."""
    # It takes a tenth of a second to import, and most processes draw no plot.
    import pygal  # noqa: PLC0415

    chart = getattr(pygal, kind)(
        # Units of its own: a page scales a plot to the width that it has.
        width=760,
        height=230,
        css=[],
        js=[],
        no_prefix=True,
        show_legend=False,
        margin=12,
        margin_left=40,
        show_minor_x_labels=False,
        x_labels_major=list(marked),
        x_labels=list(labels),
        max_scale=6,
        include_x_axis=True,
        truncate_label=-1,
        allow_interruptions=True,
        value_formatter=short,
        **options,
    )
    for name, values in series.items():
        # A dot for each value is most of a plot's size, and only those beside no other need one.
        chart.add(name, list(values), show_dots=options.get("show_dots", _has_single(values)))
    return _strip_plot(chart.render_tree())


def _has_single(values: Sequence[float | None]) -> bool:
    """Whether a value stands between gaps, where no line leads to it."""
    around = zip((None, *values), values, (*values[1:], None), strict=False)
    return any(each is not None and before is after is None for before, each, after in around)


def short(number: float | None) -> str:
    """A number as it is written beside an axis: 1,200,000 is "1.2M"."""
    if number is None:
        return ""
    for factor, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= factor:
            return f"{number / factor:.3g}{sign}"
    return f"{number:.3g}"


def _strip_plot(root: etree._Element) -> str:
    """A plot as text, without what pages do not need or allow: styles, scripts, ids, decimals."""
    etree.strip_elements(root, etree.Comment, *_REMOVED, with_tail=False)
    for group in list(root.iter("{*}g", "g")):  # those for a script, and for titles of its own
        if str(group.get("class")).endswith(("-overlay", "titles")):
            parent = group.getparent()
            if parent is not None:
                parent.remove(group)
    for element in root.iter():
        for name in ("id", "width", "height") if element is root else ("id",):
            element.attrib.pop(name, "")
        for name in ("d", "x", "y", "cx", "cy", "transform"):
            if name in element.attrib:
                element.attrib[name] = _TOO_EXACT.sub(r"\1", str(element.attrib[name]))
    root.set("aria-hidden", "true")  # the page has the numbers in a table
    return etree.tostring(root, encoding="unicode")
