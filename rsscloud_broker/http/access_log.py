r"""Writes the access log: a line for each request that was answered, in the combined format.

The combined format is the one of Apache and nginx, which programs that analyse logs read::

    203.0.113.9 - - [22/Nov/2026:10:30:18 +0000] "POST /rsscloud/ping HTTP/1.1" 200 93 "-" "curl/8"

Queries are left out, of the request's URL and of the Referer's, since they may hold secrets.
Control characters, quotes and backslashes are written as in ``\x1b`` and ``\"``, so that nobody can
add lines or fields of his own.

The reactor's thread only gathers lines; a thread writes them, once a second.  If the thread cannot
keep up, or the file cannot be written, lines are lost: a counter and the log of the broker say so.
"""

from __future__ import annotations

import os
import select
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import IO, Any, Final

from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredLock
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.web.http import Request, datetimeToLogString

from rsscloud_broker.counters import Counters
from rsscloud_broker.interfaces import IClock
from rsscloud_broker.util.clock import call_off
from rsscloud_broker.util.deferreds import returns_deferred

#: The most lines that wait to be written; further lines are lost.
MAX_LINES: Final = 20_000

_ESCAPES: Final = {
    **{code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0x100))},
    ord('"'): '\\"',
    ord("\\"): "\\\\",
}


def as_line(request: Request, at: float) -> str:
    """The line of a request, without its end.

    :param at: the time of the answer, in seconds since the epoch.
    """
    client = str(getattr(request.getClientAddress(), "host", "-"))
    target = request.uri.partition(b"?")[0]
    asked = b" ".join((request.method, target, request.clientproto))
    return (
        f'{client} - - {_time(int(at))} "{_escaped(asked)}" {request.code} '
        f'{request.sentLength or "-"} "{_header(request, "referer").partition("?")[0]}" '
        f'"{_header(request, "user-agent")}"'
    )


#: The time as the format has it; cached, since most lines are of the second of the line before.
_time = lru_cache(1)(datetimeToLogString)


def _header(request: Request, name: str) -> str:
    """A header as a field of a line; ``-`` if the request has none."""
    values = request.requestHeaders.getRawHeaders(name.encode("ascii"))
    return _escaped(values[0]) if values else "-"


def _escaped(value: bytes) -> str:
    """Bytes as a field of a line, cut and escaped, so that they end neither."""
    return value[:1000].decode("latin-1").translate(_ESCAPES)  # strangers write longer ones


class AccessLog(Service):
    """The access log; it does nothing while it has no file.

    :param path: the file; ``-`` for stdout, empty for none.
    :param in_thread: calls a function in a thread of the log's own.
    :param counters: count the lines that are lost.
    """

    name = "access log"
    log = Logger()

    def __init__(
        self, path: str, clock: IClock, in_thread: Callable[..., Awaitable[Any]], counters: Counters
    ) -> None:
        self._path = path
        self._clock = clock
        self._in_thread = in_thread
        self._lost = counters.unlogged
        self._lines: list[str] = []
        self._timer: IDelayedCall | None = None
        self._turn = DeferredLock()  # held while the thread writes
        self._stale = False  # the file is to be opened again
        self._failed = False  # the last write failed, and the log of the broker says so
        self._file: IO[bytes] | None = None  # only the thread uses it, and the next one
        self._is_cut = False  # the file ends within a line, as the disk was full

    def add(self, request: Request) -> None:
        """Add the line of a request that was answered."""
        if not self._path:
            return
        if len(self._lines) >= MAX_LINES:
            self._lost.inc()
            return
        self._lines.append(as_line(request, self._clock.wall_seconds()))
        self._write_later()

    def change(self, path: str) -> None:
        """Write to another file from now on, or to none."""
        if path != self._path:
            self._path = path
            self.reopen()

    def reopen(self) -> None:
        """Close the file and open it again by its name, since another program has renamed it."""
        self._stale = True
        Deferred.fromCoroutine(self._write())

    @returns_deferred
    async def stopService(self) -> None:
        """Write all lines that wait, and wait until they are written."""
        super().stopService()
        while self._lines or self._turn.locked:
            await self._write()

    def _write_later(self) -> None:
        """Write the lines within a second, with those that come until then."""
        if self._timer is None and not self._turn.locked:
            self._timer = self._clock.callLater(1.0, lambda: Deferred.fromCoroutine(self._write()))

    async def _write(self) -> None:
        """Have the thread write the lines that wait, as soon as it does not write."""
        call_off(self._timer)
        self._timer = None
        async with self._turn:
            await self._write_lines()
        if self._lines:
            self._write_later()

    async def _write_lines(self) -> None:
        """Have the thread write the lines that wait; if it cannot, they are lost and counted."""
        lines, self._lines = self._lines, []
        stale, self._stale = self._stale, False
        path = self._path
        try:
            await self._in_thread(self._append, path, lines, stale)
        except OSError as error:
            self._lost.inc(len(lines))
            if not self._failed:  # log once, and not each second
                self._failed = True
                self.log.error(
                    "The access log {path} cannot be written: {error}. Its lines are lost until "
                    "it can.",
                    path=path,
                    error=error,
                )
        except Exception:  # log a bug; the next lines may be written
            self._lost.inc(len(lines))
            self.log.failure("Some lines of the access log {path} are lost.", path=path)
        else:
            if self._failed and lines:
                self._failed = False
                self.log.info("The access log {path} is written again.", path=path)

    # --- in the thread

    def _append(self, path: str, lines: Sequence[str], stale: bool) -> None:
        """Write lines to the end of the file, which is opened again if it is stale."""
        if stale and self._file is not None:
            self._file.close()
            self._file, self._is_cut = None, False
        if not path:
            return
        if self._file is None:
            self._file = _open(path)
        # Writes of this size to a pipe are whole, beside the lines of the broker's log.
        limit = select.PIPE_BUF if path == "-" else 1 << 20
        for portion in _join_lines(lines, limit):
            left = memoryview(b"\n" + portion if self._is_cut else portion)
            while left:
                size = os.write(self._file.fileno(), left)
                self._is_cut, left = left[size - 1] != ord("\n"), left[size:]


def _open(path: str) -> IO[bytes]:
    """Open a file for appending; only its owner and its group may read it."""
    if path == "-":
        return open(1, "ab", buffering=0, closefd=False)
    return open(path, "ab", buffering=0, opener=lambda name, flags: os.open(name, flags, 0o640))


def _join_lines(lines: Sequence[str], limit: int) -> Sequence[bytes]:
    """Lines as bytes, joined to portions that are no longer than a limit, if no line is."""
    portions: list[bytearray] = []
    for line in lines:
        encoded = line.encode("ascii", "backslashreplace") + b"\n"
        if not portions or len(portions[-1]) + len(encoded) > limit:
            portions.append(bytearray())
        portions[-1] += encoded
    return [bytes(portion) for portion in portions]
