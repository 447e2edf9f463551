"""What a check is given, what it finds, and how the results are written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partialmethod
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypeVar
from urllib.parse import urlsplit

from attrs import define, field, frozen
from twisted.internet.threads import deferToThreadPool

from rsscloud_broker.client.feed_requests import Ask
from rsscloud_broker.config import Config
from rsscloud_broker.interfaces import AppTables, FeedReport, IClock
from rsscloud_broker.interfaces.views import Kind
from rsscloud_broker.policy.addresses import is_loopback
from rsscloud_broker.runtime import data_lock
from rsscloud_broker.storage import NO_APPS
from rsscloud_broker.util.urls import is_localhost
from rsscloud_broker.wire.text import clean

T = TypeVar("T")

Level: TypeAlias = Literal["ok", "warn", "fail"]

_LEVELS: Final[dict[Kind, Level]] = {"good": "ok", "missing": "warn", "wrong": "fail"}


@define
class CheckContext:
    """The broker that is examined.

    :ivar config: its configuration.
    :ivar descriptors: how many file descriptors it may need at the same time.
    :ivar doors: the names of the front doors that the configuration enables.
    :ivar ask: makes requests as somebody outside would.
    :ivar config_file: the file of the configuration; None without one.
    :ivar log_file: the file that twistd's ``--logfile`` names; None without one.
    :ivar time_url: a URL whose server tells the time.
    :ivar app_tables: the tables of the applications that run, by their names.
    :ivar runs: whether a broker runs with this data directory.
    :ivar arrived: how a request through the public URL arrived at the broker; None until the
        broker has answered.
    :ivar results: what the checks have found.
    """

    config: Config
    descriptors: int
    doors: frozenset[str]
    reactor: Any
    clock: IClock
    ask: Ask
    config_file: str | None = None
    log_file: str | None = None
    time_url: str = ""
    app_tables: Mapping[str, AppTables] = NO_APPS
    runs: bool = field(init=False)
    arrived: Mapping[str, str] | None = field(default=None, init=False)
    results: list[Result] = field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        self.runs = data_lock.is_held(self.config.data)

    def add(self, level: Level, name: str, found: str, advice: str = "") -> None:
        """Add what a check has found: see ``Result``."""
        self.results.append(Result(level, name, found, advice))

    ok = partialmethod(add, "ok")
    warn = partialmethod(add, "warn")
    fail = partialmethod(add, "fail")

    @property
    def host(self) -> str:
        """The host of the URL at which others reach the broker."""
        return urlsplit(self.config.address).hostname or ""

    @property
    def is_local(self) -> bool:
        """Whether the broker is for this machine only, as with ``--local``."""
        return is_localhost(self.host) or is_loopback(self.host)

    @property
    def existing_data(self) -> Path:
        """The data directory, or the nearest directory above it that exists."""
        data = Path(self.config.data).absolute()
        return next(each for each in (data, *data.parents) if each.is_dir())

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function that blocks."""
        pool = self.reactor.getThreadPool()
        result: T = await deferToThreadPool(self.reactor, pool, function, *args)
        return result


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
