"""A sink that writes a line to a file for every event."""

from __future__ import annotations

import json
from pathlib import Path

from attrs import asdict, field, frozen
from attrs.validators import min_len
from zope.interface import implementer

from rsscloud_broker.events import (
    Event,
    PingReceived,
    SubscriptionRemoved,
    SubscriptionsSwept,
    SubscriptionStored,
    TopicChanged,
)
from rsscloud_broker.interfaces import IEventSink, ISinkMaker, SinkParts


@frozen
class LineLogOptions:
    """Keys of ``[sinks.line_log]``.

    :ivar path: the file; it has no default, so the table must have it.
    """

    path: str = field(validator=min_len(1))


@implementer(IEventSink)
class LineLog:
    """Appends a line of JSON to a file for every event: its name, then its facts."""

    name = "line_log"
    handles = (
        PingReceived,
        TopicChanged,
        SubscriptionStored,
        SubscriptionRemoved,
        SubscriptionsSwept,
    )

    def __init__(self, options: LineLogOptions, parts: SinkParts) -> None:
        self._path = Path(options.path)
        self._in_thread = parts.in_thread

    async def handle(self, event: Event) -> None:
        line = json.dumps({"event": type(event).__name__, **asdict(event)})
        # A disk can be slow: other sinks and requests go on meanwhile.
        await self._in_thread(self._append, line)

    def _append(self, line: str) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


@implementer(ISinkMaker)
class LineLogMaker:
    """Makes a `LineLog`."""

    name = "line_log"
    help = "Writes a line to a file for every event."
    options = LineLogOptions
    needs = ("in_thread",)

    def make(self, options: LineLogOptions, parts: SinkParts) -> IEventSink:
        return LineLog(options, parts)
