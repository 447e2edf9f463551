"""Small plots of what the broker did in each of the last minutes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from twisted.web.template import Tag, tags

from rsscloud_broker.web.statistics import Statistics

#: The numbers that are plotted, by the heading.
_PLOTTED: Final = {
    "Pings": "pings",
    "Changes found": "fetches.changed",
    "Failed fetches": "fetches.failed",
}

#: Which entries of the event log say more about what failed.
_ENTRIES: Final = {
    "Failed fetches": "kind=fetch&outcome=failed",
    "Failed attempts to notify": "kind=notification&outcome=failed",
}


def rates(found: Statistics) -> Tag:
    """The plots, for the statistics of the last hour."""
    outcomes = found.by_outcome()
    nothing: Sequence[int] = [0] * len(found.begins)
    series = {heading: found.numbers.get(name, nothing) for heading, name in _PLOTTED.items()}
    delivered = outcomes.pop("delivered", nothing)
    failed = [sum(step) for step in zip(nothing, *outcomes.values(), strict=True)]
    series |= {"Notifications": delivered, "Failed attempts to notify": failed}
    return tags.div(*(_rate(heading, values) for heading, values in series.items()), class_="rates")


def _rate(heading: str, values: Sequence[int]) -> Tag:
    most = max(values, default=0)  # its bar is 20 high; each minute is 1 wide
    bars = [
        Tag("rect")(
            x=str(step),
            y=f"{20 - 20 * value / most:.2f}",
            width="0.8",
            height=f"{20 * value / most:.2f}",
        )
        for step, value in enumerate(values)
        if value
    ]
    view = {"viewBox": f"0 0 {len(values)} 20", "preserveAspectRatio": "none"}
    said = f"{sum(values):,} in {len(values)} minutes, at most {most:,} in one"
    entries = _ENTRIES.get(heading)
    shown = tags.a(heading, href=f"/admin/log?{entries}") if entries and most else heading
    return tags.figure(
        tags.figcaption(tags.strong(shown), tags.br(), said if most else "none"),
        Tag("svg")(*bars, **view, **{"aria-hidden": "true"}),
    )
