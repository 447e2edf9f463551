"""The subscribers and the servers of topics, all in one cheap process.

The process listens on all addresses of this machine, so that each subscriber can have its own.  It
shares the processors with the broker that is measured, so it is a loop over bare sockets that reads
no more of a request than it needs::

    POST /n/NUMBER      a notification to that subscriber: 200
    GET /feed/NAME      a feed that does not change
    GET /changing       a feed that changes on command

It also has two ports for dead hosts: one accepts connections and never answers, the other drops the
packets of connections.
"""

from __future__ import annotations

import hmac
import os
import re
import select
import socket
import sys
import time
from array import array
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from cryptography.x509 import Certificate
from OpenSSL import SSL

from benchmarks import control
from benchmarks.addresses import address, secret
from benchmarks.certificates import Authority
from benchmarks.control import Message

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection:[ \t]*close", re.IGNORECASE)

_SIGNATURE = re.compile(rb"\r\nx-hub-signature:[ \t]*([^\r]*)", re.IGNORECASE)

_BACKLOG = 4096

#: Roughly the size of a small feed.
_FEED_SIZE = 4000

#: One of this many signatures is checked.
_SIGNATURES = 100


class _Peer(Protocol):
    """The methods of a socket that the receiver needs."""

    def recv(self, size: int, /) -> bytes: ...
    def send(self, data: bytes, /) -> int: ...
    def close(self) -> None: ...


class _Secured:
    """TLS over an accepted connection; raises the same errors as a socket."""

    def __init__(self, context: SSL.Context, certificate: Certificate, sock: socket.socket) -> None:
        self._connection = SSL.Connection(context, sock)
        self._connection.use_certificate(certificate)
        self._connection.set_accept_state()
        self._socket = sock

    def recv(self, size: int, /) -> bytes:
        try:
            return self._connection.recv(size)
        except (SSL.WantReadError, SSL.WantWriteError) as error:
            raise BlockingIOError from error
        except SSL.Error:  # the connection has ended
            return b""

    def send(self, data: bytes, /) -> int:
        try:
            return self._connection.send(data)
        except SSL.Error as error:
            raise ConnectionError from error

    def close(self) -> None:
        with suppress(SSL.Error):  # the client has closed it
            self._connection.shutdown()
        self._socket.close()


class Receiver:
    """The loop that serves all requests, and the counts of notifications.

    :param authority: the file of an authority, for notifications over TLS.
    :param first: the number of the first subscriber with a certificate.
    :param count: how many subscribers have one.
    """

    def __init__(self, authority: str | None = None, first: int = 0, count: int = 0) -> None:
        self._poll = select.epoll()
        self._listeners: dict[int, Callable[[], None]] = {}
        self._peers: dict[int, _Peer] = {}
        self._unread: dict[int, bytes] = {}
        self._ready: dict[int, Callable[[int], None]] = {}
        self._late: deque[tuple[float, int, bytes]] = deque()
        self._awaited: tuple[int, float] | None = None
        self._questions = b""
        self._feed = _document(0)
        self._version = 0
        self._changing = _feed_answer(_document(0))
        self._delay = self._slowness = 0.0
        self._validates = False
        self.expect(0, 0, "")
        self._certificates: dict[str, Certificate] = {}
        if authority is not None:
            vouching = Authority.load(Path(authority))
            self._context = SSL.Context(SSL.TLS_SERVER_METHOD)
            self._context.use_certificate(vouching.certificate)  # replaced for each connection
            self._context.use_privatekey(vouching.key)
            hosts = map(address, range(first, first + count))
            self._certificates = {host: vouching.certify(host) for host in hosts}

        self.port = self._listen(self._request_ready)
        self.secure_port = self._listen(self._request_ready, secure=True) if authority else 0
        self.silent_port = self._listen(self._ignore)
        self.dropping_port, self._full = _full_listener()

    def _listen(self, ready: Callable[[int], None], secure: bool = False) -> int:
        listener = socket.create_server(("0.0.0.0", 0), backlog=_BACKLOG)
        listener.setblocking(False)
        self._listeners[listener.fileno()] = lambda: self._accept(listener, ready, secure)
        self._poll.register(listener, select.EPOLLIN)
        return int(listener.getsockname()[1])

    # --- the commands

    def expect(self, first: int, count: int, body: str, signed: bool = False) -> Message:
        """Reset all counts, and expect notifications to ``count`` subscribers.

        :param body: the body that each notification must have.
        :param signed: whether each must be signed with its subscriber's secret.
        """
        self._first = first
        self._signed = signed
        self._body = body.encode("ascii")
        self._seen = bytearray(count)
        self._times = array("d", bytes(8 * count))
        self._received = self._repeated = self._strange = self._fetches = 0
        self._not_modified = 0
        self._last = 0.0
        return {}

    def change(self, size: int) -> Message:
        """Change the changing feed; return the new document, which has ``size`` bytes."""
        self._version += 1
        document = _document(self._version, size)
        self._changing = _feed_answer(document)
        return {"document": document.decode("ascii")}

    def slow_down(self, delay: float) -> Message:
        """Delay the answers to fetches by this many seconds."""
        self._delay = delay
        return {}

    def take_time(self, delay: float) -> Message:
        """Delay the answers to notifications by this many seconds."""
        self._slowness = delay
        return {}

    def validate(self) -> Message:
        """Serve feeds with an ETag, and answer conditional requests with 304."""
        self._validates = True
        return {}

    def counts(self) -> Message:
        """The counts since ``expect``."""
        return {
            "received": self._received,
            "missing": self._seen.count(0),
            "repeated": self._repeated,
            "strange": self._strange,
            "fetches": self._fetches,
            "not_modified": self._not_modified,
            "last": self._last,
        }

    def latencies(self, since: float) -> Message:
        """The percentiles of the seconds from ``since`` to the notifications."""
        times = sorted(time - since for time in self._times if time)
        return {"p50": times[len(times) // 2], "p99": times[int(len(times) * 0.99)]}

    def _ask(self, question: Message) -> None:
        match question.pop("do"):
            case "await":  # answered when so many have come, or after this many seconds
                self._awaited = question["count"], time.monotonic() + question["seconds"]
                self._answer_waiting()
            case "expect":
                control.answer(**self.expect(**question))
            case "change":
                control.answer(**self.change(**question))
            case "slow_down":
                control.answer(**self.slow_down(**question))
            case "take_time":
                control.answer(**self.take_time(**question))
            case "validate":
                control.answer(**self.validate())
            case "latencies":
                control.answer(**self.latencies(**question))
            case _:
                control.answer(**self.counts())

    def _answer_waiting(self) -> None:
        if self._awaited is None:
            return
        count, until = self._awaited
        if self._received >= count or time.monotonic() >= until:
            self._awaited = None
            control.answer(**self.counts())

    # --- the loop

    def run(self) -> None:
        """Serve until stdin is closed."""
        self._poll.register(sys.stdin, select.EPOLLIN)
        stdin = sys.stdin.fileno()
        while True:
            for descriptor, _ in self._poll.poll(self._timeout()):
                if accept := self._listeners.get(descriptor):
                    accept()
                elif descriptor == stdin:
                    data = os.read(stdin, 65536)
                    if not data:
                        return
                    self._read_questions(data)
                else:
                    self._ready[descriptor](descriptor)
            self._answer_waiting()
            while self._late and self._late[0][0] <= time.monotonic():
                _, descriptor, answer = self._late.popleft()
                if descriptor in self._peers:
                    self._send(descriptor, answer)

    def _timeout(self) -> float:
        ends = [self._awaited[1]] if self._awaited else []
        if self._late:
            ends.append(self._late[0][0])
        return max(0.0, min(ends) - time.monotonic()) if ends else -1

    def _read_questions(self, data: bytes) -> None:
        *lines, self._questions = (self._questions + data).split(b"\n")
        for line in lines:
            self._ask(control.parse(line))

    def _accept(self, listener: socket.socket, ready: Callable[[int], None], secure: bool) -> None:
        for _ in range(100):  # then serve other connections
            try:
                sock, _ = listener.accept()
            except BlockingIOError:
                return
            sock.setblocking(False)
            descriptor = sock.fileno()
            peer: _Peer = sock
            if secure:
                certificate = self._certificates[sock.getsockname()[0]]
                peer = _Secured(self._context, certificate, sock)
            self._peers[descriptor] = peer
            self._ready[descriptor] = ready
            self._poll.register(descriptor, select.EPOLLIN)

    def _read(self, descriptor: int) -> bytes:
        """The data that has arrived; empty if there is none, or at the end of the connection."""
        try:
            data = self._peers[descriptor].recv(65536)
        except BlockingIOError:
            return b""
        except OSError:
            data = b""
        if not data:
            self._close(descriptor)
        return data

    def _ignore(self, descriptor: int) -> None:
        self._read(descriptor)

    def _request_ready(self, descriptor: int) -> None:
        data = self._read(descriptor)
        if data and descriptor in self._unread:
            data = self._unread.pop(descriptor) + data
        while data:
            end = _end_of_request(data)
            if not end or end > len(data):
                self._unread[descriptor] = data
                return
            request, data = data[:end], data[end:]
            self._take(descriptor, request)
            if descriptor not in self._peers:
                return

    def _take(self, descriptor: int, request: bytes) -> None:
        if request.startswith(b"POST /n/"):
            self._notified(request)
            answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
            if self._slowness:
                self._late.append((time.monotonic() + self._slowness, descriptor, answer))
                return
            self._send(descriptor, answer)
        else:
            self._fetches += 1
            changing = request.startswith(b"GET /changing")
            answer = self._changing if changing else self._unchanging(request)
            if self._delay:
                self._late.append((time.monotonic() + self._delay, descriptor, answer))
                return
            self._send(descriptor, answer)
        if descriptor in self._peers and _CLOSE.search(request, 0, _head(request)):
            self._close(descriptor)

    def _unchanging(self, request: bytes) -> bytes:
        """The answer with the feed that does not change, or a 304."""
        if not self._validates:
            return _feed_answer(self._feed)
        if b"\r\nif-none-match:" in request.lower():
            self._not_modified += 1
            return b'HTTP/1.1 304 Not Modified\r\nETag: "1"\r\n\r\n'
        return _feed_answer(self._feed).replace(b"\r\n", b'\r\nETag: "1"\r\n', 1)

    def _notified(self, request: bytes) -> None:
        number = int(request[8 : request.index(b" ", 8)]) - self._first
        if not (0 <= number < len(self._seen) and self._is_right(number, request)):
            self._strange += 1
            return
        if self._seen[number]:
            self._repeated += 1
            return
        self._seen[number] = 1
        self._times[number] = self._last = time.monotonic()
        self._received += 1

    def _is_right(self, number: int, request: bytes) -> bool:
        """Whether a notification has the expected body and signature."""
        if not request.endswith(b"\r\n\r\n" + self._body):
            return False
        if not self._signed or number % _SIGNATURES:
            return True
        key = secret(self._first + number).encode()
        signature = b"sha256=" + hmac.digest(key, self._body, "sha256").hex().encode()
        found = _SIGNATURE.search(request, 0, _head(request))
        return found is not None and found[1] == signature

    def _send(self, descriptor: int, answer: bytes) -> None:
        try:
            sent = self._peers[descriptor].send(answer)
        except OSError:
            self._close(descriptor)
        else:
            assert sent == len(answer)  # smaller than any buffer

    def _close(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        self._peers.pop(descriptor).close()
        del self._ready[descriptor]
        self._unread.pop(descriptor, None)


def _end_of_request(data: bytes) -> int:
    """The length in bytes of the first request in ``data``; 0 if it is not known yet."""
    head = _head(data)
    if head < 0:
        return 0
    length = _LENGTH.search(data, 0, head)
    return head + 4 + (int(length[1]) if length else 0)


def _head(data: bytes) -> int:
    """The offset of the end of a request's head; -1 if it has not come yet."""
    return data.find(b"\r\n\r\n")


def _document(version: int, size: int = _FEED_SIZE) -> bytes:
    start = b'<rss version="2.0"><channel><title>%d</title></channel></rss>' % version
    return start.ljust(size)


def _feed_answer(document: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/xml\r\nContent-Length: %d\r\n\r\n%b" % (
        len(document),
        document,
    )


def _full_listener() -> tuple[int, list[socket.socket]]:
    """A listening port whose queue is full, so that the system drops the packets of connections.

    :returns: the port, and the sockets that must stay open.
    """
    listener = socket.create_server(("0.0.0.0", 0), backlog=0)
    port = int(listener.getsockname()[1])
    kept = [listener]
    for _ in range(4):
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(("127.0.0.1", port))
        kept.append(filler)
    return port, kept


def main() -> None:
    """Serve until stdin is closed."""
    receiver = Receiver(**control.arguments())
    control.answer(
        port=receiver.port,
        secure=receiver.secure_port,
        silent=receiver.silent_port,
        dropping=receiver.dropping_port,
    )
    receiver.run()


if __name__ == "__main__":
    main()
