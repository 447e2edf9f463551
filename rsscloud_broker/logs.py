"""What the broker logs, where to, and in which form.

The table ``[log]`` of the configuration says which events are logged and whether a line is text
or JSON.  The options of twistd say where the lines go: to stdout, to a file (``--logfile``) or to
syslog (``--syslog``).

Where stdout is systemd's journal, each line begins with its priority, as in ``<4>`` (see
sd-daemon(3)), and text has no time, since the journal adds it.
"""

from __future__ import annotations

import json
import os
import sys
import syslog
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from math import isfinite
from typing import IO, Any, Final, Literal, TypeAlias, cast

import attrs
from attrs import field, frozen
from twisted.logger import (
    FileLogObserver,
    FilteringLogObserver,
    ILogObserver,
    LegacyLogObserverWrapper,
    LogEvent,
    LogLevel,
    LogLevelFilterPredicate,
    eventAsText,
    formatEvent,
    formatEventAsClassicLogText,
)
from twisted.python.logfile import LogFile
from twisted.python.syslog import SyslogObserver
from zope.interface import implementer

_Attribute: TypeAlias = "attrs.Attribute[Any]"

#: The levels that a configuration may name.  "critical" is none of them: without errors nobody
#: would learn why the broker does not start.
Level: TypeAlias = Literal["debug", "info", "warn", "error"]
LEVELS: Final = ("debug", "info", "warn", "error")

#: The priority of each level for syslog(3), and for systemd's journal.
PRIORITIES: Final[Mapping[str, int]] = {
    "debug": syslog.LOG_DEBUG,
    "info": syslog.LOG_INFO,
    "warn": syslog.LOG_WARNING,
    "error": syslog.LOG_ERR,
    "critical": syslog.LOG_CRIT,
}

#: Where a daemon logs to if nothing else was said: see "twistd --help".
_DEFAULT_FILE: Final = "twistd.log"


def _are_levels(_: object, key: _Attribute, levels: Mapping[str, object]) -> None:
    for namespace, level in levels.items():
        if level not in LEVELS:
            hint = "; write a name that has dots in quotes" if isinstance(level, dict) else ""
            raise ValueError(
                f"'{key.name}' has {level!r} for {namespace!r}; it must be one of "
                f"{', '.join(map(repr, LEVELS))}{hint}"
            )


@frozen
class Log:
    """``[log]``: which events are logged, and in which form.

    :ivar level: the lowest level of what is logged.
    :ivar levels: likewise, for single namespaces: a package or a module, with all below it.
    :ivar format: of each line: text for people, or a JSON object for programs.
    """

    level: Level = "info"
    levels: dict[str, Any] = field(factory=dict, validator=_are_levels)
    format: Literal["text", "json"] = "text"


class UnusableLog(Exception):
    """Nothing can be logged to where it was said.  Its text says why."""


class Logs:
    """Writes events as ``[log]`` says; the settings may change at any time.

    :param settings: those to begin with.
    """

    def __init__(self, settings: Log) -> None:
        self._settings = settings
        self._predicate = LogLevelFilterPredicate()
        self.change(settings)

    def change(self, settings: Log) -> None:
        """Write events by other settings from now on."""
        self._settings = settings
        self._predicate.defaultLogLevel = LogLevel.levelWithName(settings.level)
        self._predicate.clearLogLevels()
        for namespace, level in settings.levels.items():
            self._predicate.setLogLevelForNamespace(namespace, LogLevel.levelWithName(level))

    def observer(
        self, options: Mapping[str, Any], opened: Callable[[LogFile], None]
    ) -> ILogObserver | None:
        """What writes events to where the options of twistd say.

        :param options: those of ``twistd``: ``logger``, ``logfile``, ``syslog``, ``prefix`` and
            ``nodaemon``.
        :param opened: is told of the file, if there is one.
        :returns: None if twistd must see to it: where ``--logger`` names an observer, where a
            daemon is to log to stdout, which twistd refuses, and where it is not twistd that runs
            the broker.
        :raises UnusableLog: the file cannot be written.
        """
        if "nodaemon" not in options:
            return None
        file = options["logfile"]
        if options["logger"] or (file == "-" and not options["nodaemon"]):
            return None
        if options["syslog"]:
            return self.to_syslog(options["prefix"])
        if file == "-" or (options["nodaemon"] and not file):
            return self.to_stream(sys.stdout)
        try:
            log_file = LogFile.fromFullPath(file or _DEFAULT_FILE)
        except OSError as error:
            raise UnusableLog(f"the log cannot be written: {error}") from error
        opened(log_file)
        return self.to_stream(log_file)

    def to_syslog(self, prefix: str) -> ILogObserver:
        """What writes events to syslog, as text, each with the priority of its level.

        :param prefix: begins each line.
        """
        emit = SyslogObserver(prefix).emit

        @implementer(ILogObserver)
        def observe(event: LogEvent) -> None:
            system = event.get("log_namespace", "-")
            to_syslog({"syslogPriority": _priority(event), "log_system": system, **event})

        to_syslog = LegacyLogObserverWrapper(cast(Any, emit))  # it is typed as one of the new kind
        return FilteringLogObserver(cast(ILogObserver, observe), [self._predicate])

    def to_stream(self, stream: IO[Any]) -> ILogObserver:
        """What writes events to a file or a pipe, a line or more for each."""
        to_journal = is_journal(stream)

        def formatted(event: LogEvent) -> str | None:
            if self._settings.format == "json":
                text = as_json(event)
            elif to_journal:
                text = as_text(event)
            else:
                return formatEventAsClassicLogText(event)
            return with_priority(text, _priority(event)) if to_journal and text else text

        return FilteringLogObserver(FileLogObserver(stream, formatted), [self._predicate])


def is_journal(stream: IO[Any]) -> bool:
    """Whether a stream is systemd's journal: see ``$JOURNAL_STREAM`` in systemd.exec(5)."""
    try:
        status = os.fstat(stream.fileno())
    except (AttributeError, OSError, ValueError):  # it is no file of the system's, or is closed
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def _priority(event: LogEvent) -> int:
    """The priority of an event, as a number of syslog(3)."""
    level = event.get("log_level")
    return PRIORITIES.get(getattr(level, "name", ""), syslog.LOG_INFO)


def with_priority(text: str, priority: int) -> str:
    """Begin each line of a text with a priority, as in ``<4>``: see sd-daemon(3)."""
    return "".join(f"<{priority}>{line}\n" for line in text.rstrip("\n").split("\n"))


def as_text(event: LogEvent) -> str:
    """An event as text without its time; empty if there is nothing to tell."""
    # What follows the first line is indented, so that nobody mistakes it for another event.
    return eventAsText(event, includeTimestamp=False).rstrip("\n").replace("\n", "\n\t")


def as_json(event: LogEvent) -> str | None:
    """An event as a JSON object on one line; None if there is nothing to tell.

    ``time`` (ISO 8601), ``level``, ``namespace``, ``message`` and, of a failure, ``traceback``;
    besides, those fields of the event that are text, numbers or truth values.
    """
    message = formatEvent(event)
    if not message and "log_failure" not in event:
        return None
    level = event.get("log_level")
    found = {
        "time": datetime.fromtimestamp(event["log_time"], UTC).isoformat(timespec="milliseconds"),
        "level": getattr(level, "name", None),
        "namespace": event.get("log_namespace"),
        "message": message,
    }
    if "log_failure" in event:
        found["traceback"] = event["log_failure"].getTraceback()
    fields = {name: value for name, value in _plain_fields(event).items() if name not in found}
    return json.dumps({**found, **fields}) + "\n"


def _plain_fields(event: LogEvent) -> dict[str, Any]:
    """What an event was logged with, as far as JSON has a word for it."""
    if "isError" in event:  # one of twisted.python.log, whose fields are those of Twisted
        return {}
    return {
        name: value
        for name, value in event.items()
        if not name.startswith("log_") and _is_plain(value)
    }


def _is_plain(value: object) -> bool:
    if isinstance(value, float):
        return isfinite(value)
    return value is None or isinstance(value, str | int)
