"""Sends files as one ZIP archive, which is made while it is sent, so that it needs little memory.

Nothing is compressed: what takes room is pictures and sound, which are compressed already.
"""

from __future__ import annotations

import io
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final
from zipfile import ZipFile, ZipInfo

from twisted.logger import Logger
from twisted.web.server import Request

from rsscloud_broker.interfaces import AccountFile
from rsscloud_broker.web.streams import Stream

log: Final = Logger()


class _Buffer(io.RawIOBase):
    """Collects what an archive writes, until it is taken."""

    def __init__(self) -> None:
        super().__init__()
        self._written: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self._written.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        """What was written since it was last taken."""
        written, self._written = self._written, []
        return b"".join(written)


async def send_archive(
    request: Request, files: AsyncIterator[AccountFile], headers: Mapping[str, str], now: float
) -> None:
    """Send an archive, and end the request; or cut the connection off if that fails, so that nobody
    takes a half for the whole.

    :param headers: further headers of the answer.
    :param now: the time of the files, in seconds since the epoch.
    """
    for name, value in {"content-type": "application/zip", **headers}.items():
        request.setHeader(name, value)
    stream = Stream(request)
    stream.begin()
    try:
        if request.method != b"HEAD":
            await _write(stream, files, now)
    except Exception:  # a file is gone, the database is down, or there is a bug
        log.failure("What belongs to an account could not be sent to its end.")
        stream.cut_off()
        return
    if not stream.over:
        request.unregisterProducer()
        request.finish()


async def _write(stream: Stream, files: AsyncIterator[AccountFile], now: float) -> None:
    """Write the archive to the stream, piece by piece, while the client is there."""
    buffer, at = _Buffer(), time.gmtime(now)[:6]
    with ZipFile(buffer, "w") as archive:
        async for file in files:
            with archive.open(ZipInfo(file.name, at), "w") as entry:
                async for piece in file.pieces:
                    if stream.over:
                        return
                    entry.write(piece)
                    await stream.send(buffer.take())
    await stream.send(buffer.take())
