"""Writes the broker's log, as text or JSON, to stdout, a file or syslog.

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
from typing import IO, Any, Final, cast

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

from rsscloud_broker.config import Log
from rsscloud_broker.runtime.log_ids import log_id

#: The priority of each level for syslog(3), and for systemd's journal.
PRIORITIES: Final[Mapping[str, int]] = {
    "debug": syslog.LOG_DEBUG,
    "info": syslog.LOG_INFO,
    "warn": syslog.LOG_WARNING,
    "error": syslog.LOG_ERR,
    "critical": syslog.LOG_CRIT,
}

#: The file that a daemon logs to by default: see "twistd --help".
_DEFAULT_FILE: Final = "twistd.log"


class UnusableLog(Exception):
    """The log cannot be written.  The text says why."""


class Logs:
    """Writes events as ``[log]`` says; the settings may change at any time.

    :param settings: the first settings.
    """

    def __init__(self, settings: Log) -> None:
        self._settings = settings
        self._predicate = LogLevelFilterPredicate()
        self.change(settings)

    def change(self, settings: Log) -> None:
        """Use other settings from now on."""
        self._settings = settings
        self._predicate.defaultLogLevel = LogLevel.levelWithName(settings.level)
        self._predicate.clearLogLevels()
        for namespace, level in settings.levels.items():
            self._predicate.setLogLevelForNamespace(namespace, LogLevel.levelWithName(level))

    def observer(
        self, options: Mapping[str, Any], opened: Callable[[LogFile], None]
    ) -> ILogObserver | None:
        """An observer that writes events to the place that twistd's options name.

        :param options: twistd's options ``logger``, ``logfile``, ``syslog``, ``prefix`` and
            ``nodaemon``.
        :param opened: is called with the log file, if one was opened.
        :returns: None if the broker leaves logging to twistd: if ``--logger`` names an observer,
            if a daemon is to log to stdout, which twistd refuses, or if another program than
            twistd runs the broker.
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
        """An observer that writes events to syslog, as text, with the priority of their level.

        :param prefix: the beginning of each line.
        """
        emit = SyslogObserver(prefix).emit

        @implementer(ILogObserver)
        def observe(event: LogEvent) -> None:
            system = _with_id(event.get("log_namespace", "-"), event)
            to_syslog({"syslogPriority": _priority(event), "log_system": system, **event})

        to_syslog = LegacyLogObserverWrapper(cast(Any, emit))  # wrongly typed as a new observer
        return FilteringLogObserver(cast(ILogObserver, observe), [self._predicate])

    def to_stream(self, stream: IO[Any]) -> ILogObserver:
        """An observer that writes events to a file or a pipe, one or more lines for each."""
        to_journal = is_journal(stream)

        def format_line(event: LogEvent) -> str | None:
            """An event as the present settings want it; None if it has no message."""
            if self._settings.format == "json":
                text = as_json(event)
            elif to_journal:
                text = as_text(_with_system_and_id(event))
            else:
                return formatEventAsClassicLogText(_with_system_and_id(event))
            return with_priority(text, _priority(event)) if to_journal and text else text

        return FilteringLogObserver(FileLogObserver(stream, format_line), [self._predicate])


def is_journal(stream: IO[Any]) -> bool:
    """Whether a stream is systemd's journal: see ``$JOURNAL_STREAM`` in systemd.exec(5)."""
    try:
        status = os.fstat(stream.fileno())
    except (AttributeError, OSError, ValueError):  # it has no descriptor, or is closed
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def _priority(event: LogEvent) -> int:
    """The priority of an event, a number of syslog(3)."""
    level = event.get("log_level")
    return PRIORITIES.get(getattr(level, "name", ""), syslog.LOG_INFO)


def _with_id(system: str, event: LogEvent) -> str:
    """The system of an event, as Twisted calls it, with the id of its line."""
    number = log_id(event)
    return system if number is None else f"{system} {number}"


def _with_system_and_id(event: LogEvent) -> LogEvent:
    """Put the id of an event's line into its system, unless the event names a system itself."""
    if log_id(event) is None or "log_system" in event:
        return event
    level = getattr(event.get("log_level"), "name", "-")
    return {**event, "log_system": _with_id(f"{event.get('log_namespace', '-')}#{level}", event)}


def with_priority(text: str, priority: int) -> str:
    """A text with a priority before each line, as in ``<4>``: see sd-daemon(3)."""
    return "".join(f"<{priority}>{line}\n" for line in text.rstrip("\n").split("\n"))


def as_text(event: LogEvent) -> str:
    """An event as text without its time; empty if it has no message."""
    # Further lines are indented, so that nobody takes them for other events.
    return eventAsText(event, includeTimestamp=False).rstrip("\n").replace("\n", "\n\t")


def as_json(event: LogEvent) -> str | None:
    """An event as a JSON object on one line; None if it has no message.

    The object has ``time`` (ISO 8601), ``level``, ``namespace``, ``message``, the ``id`` of a
    warning or an error, and ``traceback`` for a failure; and those fields of the event that are
    text, numbers or truth values.
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
    if number := log_id(event):
        found["id"] = number
    if "log_failure" in event:
        found["traceback"] = event["log_failure"].getTraceback()
    fields = {name: value for name, value in _plain_fields(event).items() if name not in found}
    return json.dumps({**found, **fields}) + "\n"


def _plain_fields(event: LogEvent) -> dict[str, Any]:
    """The fields that an event was logged with, as far as JSON can hold them."""
    if "isError" in event:  # from twisted.python.log; all its fields are Twisted's
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
