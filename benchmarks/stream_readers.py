"""Many browsers that read server-sent events, each on a connection of its own, in one process.

It posts texts to the server, and measures how long each takes to arrive in each stream.
"""

from __future__ import annotations

import http.client
import select
import socket
import time
from collections.abc import Sequence

from benchmarks import control
from benchmarks.addresses import source
from benchmarks.load import LoadError

_READ = 1 << 16


class Readers:
    """The streams of one server.

    :param cookies: the header Cookie of each; empty for none.
    """

    def __init__(self, port: int, path: str, cookies: Sequence[str]) -> None:
        self._port = port
        self._poll = select.epoll()
        self._socks: dict[int, socket.socket] = {}
        for number, cookie in enumerate(cookies):
            sock = socket.socket()
            sock.bind((source(number), 0))
            sock.connect(("127.0.0.1", port))
            cookie_line = f"Cookie: {cookie}\r\n" if cookie else ""
            head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{cookie_line}\r\n"
            sock.sendall(head.encode())
            self._socks[sock.fileno()] = sock
            self._poll.register(sock, select.EPOLLIN)

    def wait(self, text: bytes, seconds: float) -> list[float]:
        """Wait until a text has come in each stream; the times when it came, in order.

        :raises LoadError: it did not come in time, or came twice, or the server hung up.
        """
        unread = dict.fromkeys(self._socks, b"")
        came: dict[int, float] = {}
        deadline = time.monotonic() + seconds
        while len(came) < len(unread):
            if time.monotonic() > deadline:
                raise LoadError(f"{len(unread) - len(came)} streams have not got {text!r}")
            for descriptor, _ in self._poll.poll(1.0):
                data = self._socks[descriptor].recv(_READ)
                if not data:
                    raise LoadError(f"the server hung up after {unread[descriptor][:300]!r}")
                unread[descriptor] += data
                if text in unread[descriptor]:
                    if descriptor in came:
                        raise LoadError(f"{text!r} came twice")
                    came[descriptor] = time.monotonic()
                    unread[descriptor] = b""
        return sorted(came.values())

    def post(self, text: str, marker: str, seconds: float) -> list[float]:
        """Post a text, and wait for it; the seconds until it came in each stream, in order.

        :param marker: a part of the text that no other text has.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=seconds)
        connection.connect()
        began = time.monotonic()
        connection.request("POST", "/post", text.encode())
        came = self.wait(marker.encode(), seconds)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        if answer.status != 200:
            raise LoadError(f"a post was answered by {answer.status}")
        return [at - began for at in came]


def main() -> None:
    """Open the streams, and post, as the benchmark says."""
    given = control.arguments()
    readers = Readers(given["port"], given["path"], given["cookies"])
    readers.wait(given["greeting"].encode(), given["seconds"])
    control.answer()
    for question in control.questions():
        seconds = readers.post(question["text"], question["marker"], question["seconds"])
        control.answer(seconds=seconds)


if __name__ == "__main__":
    main()
