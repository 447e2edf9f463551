"""The load generator: makes requests as fast as they are answered, over persistent connections.

It builds the requests before the measurement begins and uses a loop over bare sockets, so that the
server never waits for it.
"""

from __future__ import annotations

import re
import select
import socket
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping

from benchmarks import control
from benchmarks.addresses import source
from benchmarks.control import Message

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)

#: Of each answer about this many bytes are kept, to look for the expected text.
_KEPT_BYTES = 16_384


class LoadError(Exception):
    """The server gave no answer, or an invalid one."""


def build(
    method: str,
    path: str,
    headers: Mapping[str, str],
    body: str,
    numbers: Iterable[int],
) -> list[bytes]:
    """A request for each number, which replaces ``{n}`` in the path and the body."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    requests = []
    for number in numbers:
        content = body.replace("{n}", str(number)).encode()
        start = f"{method} {path.replace('{n}', str(number))} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        length = f"Content-Length: {len(content)}\r\n" if content else ""
        requests.append(f"{start}{lines}{length}\r\n".encode() + content)
    return requests


class _Connection:
    """One connection, and the answer that is arriving on it."""

    __slots__ = ("asked", "left", "sock", "text")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.text = b""
        self.left = -1  # bytes of the body still to come; -1 before the head has come
        self.asked = 0.0

    def ask(self, request: bytes) -> None:
        self.text, self.left = b"", -1
        self.asked = time.monotonic()
        self.sock.sendall(request)

    def read(self) -> bool:
        """Read what has arrived.  Returns whether the answer is complete."""
        data = self.sock.recv(1 << 18)
        if not data:
            raise LoadError(f"the server hung up after {self.text[:200]!r}")
        if self.left >= 0:
            self.left -= len(data)
            if len(self.text) < _KEPT_BYTES:
                self.text += data
            return self.left == 0
        self.text += data
        head = self.text.find(b"\r\n\r\n")
        if head < 0:
            return False
        length = _LENGTH.search(self.text, 0, head)
        if length is None and self.status != "304":
            raise LoadError(f"an answer without a length: {self.text[:200]!r}")
        self.left = (int(length[1]) if length else 0) - (len(self.text) - head - 4)
        if self.status == "304":  # a 304 has no body, but may name a length
            self.left = 0
        return self.left == 0

    @property
    def status(self) -> str:
        return self.text[9:12].decode("ascii")


class Load:
    """The connections to one server.

    :param connections: how many connections are made.
    :param sources: from how many different addresses they come.
    """

    def __init__(self, port: int, connections: int, sources: int) -> None:
        self._poll = select.epoll()
        self._connections: dict[int, _Connection] = {}
        for number in range(connections):
            sock = socket.socket()
            sock.bind((source(number % sources), 0))
            sock.connect(("127.0.0.1", port))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connections[sock.fileno()] = _Connection(sock)
            self._poll.register(sock, select.EPOLLIN)

    def run(
        self, requests: Iterable[bytes], expected: str, seconds: float, rate: float = 0.0
    ) -> Message:
        """Make requests, one at a time on each connection.

        :param expected: a text that answers should contain; those that do are counted.
        :param seconds: the time within which all answers must come.
        :param rate: requests a second; 0 for as many as are answered.
        :returns: the time of the last answer, the seconds that all took, the slowest answer, and
            counts.
        :raises LoadError: an answer did not come in time, or is invalid.
        """
        waiting = deque(requests)
        statuses: Counter[str] = Counter()
        as_expected = busy = 0
        slowest = 0.0
        wanted = expected.encode()
        began = time.monotonic()
        made, idle = 0, deque(self._connections.values())
        while busy or waiting:
            due = made + len(waiting) if not rate else int((time.monotonic() - began) * rate) + 1
            while idle and waiting and made < due:
                idle.popleft().ask(waiting.popleft())
                made, busy = made + 1, busy + 1
            if time.monotonic() > began + seconds:
                raise LoadError(f"{busy} of the answers did not come in {seconds:.0f} seconds")
            for descriptor, _ in self._poll.poll(0.001 if rate else 1.0):
                connection = self._connections[descriptor]
                if not connection.read():
                    continue
                statuses[connection.status] += 1
                as_expected += wanted in connection.text
                slowest = max(slowest, time.monotonic() - connection.asked)
                idle.append(connection)
                busy -= 1
        return {
            "ended": time.monotonic(),
            "seconds": time.monotonic() - began,
            "slowest": slowest,
            "statuses": statuses,
            "as_expected": as_expected,
        }


def main() -> None:
    """Build and make requests, as the benchmark says."""
    load = Load(**control.arguments())
    control.answer()
    requests: list[bytes] = []
    for question in control.questions():
        if question["do"] == "build":
            numbers = range(question["first"], question["first"] + question["count"])
            requests = build(
                question["method"],
                question["path"],
                question["headers"],
                question["body"],
                numbers,
            )
            control.answer()
        else:
            rate = question.get("rate", 0.0)
            control.answer(**load.run(requests, question["expected"], question["seconds"], rate))


if __name__ == "__main__":
    main()
