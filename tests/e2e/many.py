"""Many subscribers at once, well-behaved and not, on an asyncio loop in one thread.

The servers of ``servers`` need a thread for each connection; these do not.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from threading import Thread
from typing import Any, cast
from urllib.parse import parse_qs

from tests.e2e.fixture import TIMEOUT, request, until

#: What a subscriber does with a notification: it takes the URL of the callback
#: and the topic, and gives the status of the answer.
Hear = Callable[[str, str], int]


class ManyServers:
    """Servers on loopback addresses, all on one loop.

    :ivar urls: the base URL of each, by host.
    :ivar connected: how many connections each has, by host.
    """

    def __init__(self) -> None:
        self.urls: dict[str, str] = {}
        self.connected: dict[str, int] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def listen(self, host: str, make: Callable[[], Connection]) -> str:
        """Listen at an address; its base URL.

        :param make: makes the protocol of a connection.
        """

        def build() -> Connection:
            connection = make()
            connection.servers, connection.host = self, host
            return connection

        async def listening() -> int:
            server = await self._loop.create_server(build, host, 0, backlog=1000)
            return cast(int, server.sockets[0].getsockname()[1])

        self.connected[host] = 0
        self.urls[host] = f"http://{host}:{self._run(listening()).result(TIMEOUT)}"
        return self.urls[host]

    def _run(self, work: Coroutine[Any, Any, int]) -> Future[int]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def drain(self) -> None:
        """Wait until all is heard that a process which is gone had sent.

        Connections are accepted in order: after one of ours there is none of
        its own left that nobody has looked at.
        """
        for url in self.urls.values():
            request(url)
        until(lambda: not any(self.connected.values()), "the last connections to end")


class Connection(asyncio.Protocol):
    """One connection, which is counted."""

    servers: ManyServers
    host: str
    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.servers.connected[self.host] += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self.servers.connected[self.host] -= 1


class Subscriber(Connection):
    """Answers each notification with a status, and keeps the connection.

    A subscriber is a path; one address may have many.
    """

    def __init__(self, hear: Hear) -> None:
        self._hear = hear
        self._buffer = b""

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, end, rest = self._buffer.partition(b"\r\n\r\n")
        length = _content_length(head)
        if not end or len(rest) < length:
            return
        self._buffer = rest[length:]
        method, path, _ = head.decode().split(" ", 2)
        status = 200
        if method == "POST":
            callback = f"{self.servers.urls[self.host]}{path}"
            status = self._hear(callback, parse_qs(rest[:length].decode())["url"][0])
        self.transport.write(b"HTTP/1.1 %d That Is So\r\nContent-Length: 0\r\n\r\n" % status)


def _content_length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


# --- those that behave badly ------------------------------------------------


class Silent(Connection):
    """Accepts, and never answers."""


class Dripping(Connection):
    """Answers one byte a second."""

    _answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"." * 1000

    def data_received(self, data: bytes) -> None:
        self._drip(0)

    def _drip(self, position: int) -> None:
        if not self.transport.is_closing():
            self.transport.write(self._answer[position : position + 1])
            asyncio.get_running_loop().call_later(1.0, self._drip, position + 1)


class Flooding(Connection):
    """Answers with 100 MB, as fast as they are taken."""

    _size = 100 * 1024 * 1024
    _piece = b"." * 256 * 1024

    def data_received(self, data: bytes) -> None:
        self._left = self._size
        self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % self._size)
        self._paused = False
        self._pour()

    def _pour(self) -> None:
        while self._left and not self._paused and not self.transport.is_closing():
            self.transport.write(self._piece)
            self._left -= len(self._piece)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._pour()


class Babbling(Connection):
    """Answers with what is not HTTP, and waits for more."""

    def data_received(self, data: bytes) -> None:
        self.transport.write(b"\x16\x03\x01\xff\xfe\x00 220 welcome\r\n\n\r\x00" * 100)


class Resetting(Connection):
    """Resets the connection when the notification comes."""

    def data_received(self, data: bytes) -> None:
        sock = self.transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()


class Closing(Connection):
    """Closes the connection at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.close()
