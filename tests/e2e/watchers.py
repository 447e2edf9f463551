"""Many clients of an event stream, in one thread."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Collection, Mapping

from tests.e2e.fixture import TIMEOUT
from tests.front_doors.exchange import request_bytes


class Watchers:
    """Clients of a broker, each with a connection of its own.

    :ivar received: what has come to each.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._selector = selectors.DefaultSelector()
        self.received: dict[socket.socket, bytes] = {}

    def open(self, path: str, headers: Mapping[str, str] | None = None) -> socket.socket:
        """Begin to watch."""
        client = socket.create_connection(("127.0.0.1", self._port), TIMEOUT)
        client.sendall(request_bytes("GET", path, b"", {"Host": "localhost", **(headers or {})}))
        self._selector.register(client, selectors.EVENT_READ)
        self.received[client] = b""
        return client

    def read(self) -> None:
        """Read what has come, and wait for a moment if nothing has."""
        for key, _ in self._selector.select(0.1):
            assert isinstance(key.fileobj, socket.socket)
            data = key.fileobj.recv(65_536)
            self.received[key.fileobj] += data
            if not data:
                self._selector.unregister(key.fileobj)

    def have(self, text: str, some: Collection[socket.socket] | None = None) -> bool:
        """Whether a text has come by now to all, or to each of some."""
        self.read()
        clients = self.received if some is None else some
        return all(text.encode() in self.received[client] for client in clients)

    def close(self) -> None:
        for client in self.received:
            client.close()
        self._selector.close()
