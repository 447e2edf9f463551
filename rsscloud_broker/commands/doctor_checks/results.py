"""What a check finds, and how the results are written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias

from attrs import frozen

from rsscloud_broker.interfaces import FeedReport
from rsscloud_broker.interfaces.views import Kind
from rsscloud_broker.wire.text import clean

Level: TypeAlias = Literal["ok", "warn", "fail"]

_LEVELS: Final[dict[Kind, Level]] = {"good": "ok", "missing": "warn", "wrong": "fail"}


@frozen
class Result:
    """What a check found.

    :ivar level: ``ok``; ``warn`` if it may become a problem, or could not be checked; ``fail`` if
        the broker does not work because of it.
    :ivar name: the subject, such as ``database``.
    :ivar found: the fact, as a clause without a full stop.
    :ivar advice: what to do about it, as a clause; empty if there is nothing to do.
    """

    level: Level
    name: str
    found: str
    advice: str = ""


def has_failed(results: Sequence[Result]) -> bool:
    """Whether any result is a failure."""
    return any(result.level == "fail" for result in results)


def as_text(results: Sequence[Result]) -> str:
    """A line for each result: ``warn  disk: 40 MB are free; make room``."""
    lines = []
    for result in results:
        text = "; ".join(filter(None, (result.found, result.advice)))
        lines.append(f"{result.level:<4}  {result.name}: {clean(text)}")
    return "\n".join(lines)


def as_json(results: Sequence[Result]) -> dict[str, Any]:
    """The results for programs: ``ok`` is whether nothing has failed."""
    rows = [
        {
            "level": result.level,
            "name": result.name,
            "found": clean(result.found),
            "advice": clean(result.advice),
        }
        for result in results
    ]
    return {"ok": not has_failed(results), "results": rows}


def of_feed(report: FeedReport) -> list[Result]:
    """The findings about a feed as results, the worst first."""
    return [
        Result(_LEVELS[kind], finding.subject, finding.text)
        for kind in ("wrong", "missing", "good")
        for finding in report.of(kind)
    ]
