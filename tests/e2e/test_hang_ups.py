"""Clients that hang up in the middle of a download, over each kind of connection."""

from __future__ import annotations

import os
import re
import socket
import ssl
import struct
from itertools import product
from tempfile import TemporaryDirectory

from tests.e2e.fixture import TIMEOUT, EndToEndTestCase, request, until
from tests.e2e.installed import certified
from tests.e2e.writing import Writer
from tests.processes import files_of, free_port

#: More than the buffers of a connection hold.
SIZE = 8_000_000

ARCHIVE = "/2026/01/01/01.xml"


class HangUpTests(EndToEndTestCase):
    def setUp(self) -> None:
        super().setUp()
        certificate, key = certified(self.directory(), "localhost")
        short = TemporaryDirectory()  # the path of a socket has at most 107 bytes
        self.addCleanup(short.cleanup)
        self.secure_port, self.socket = free_port(), f"{short.name}/socket"
        keys = f"privateKey={key}:certKey={certificate}"
        secure = f"ssl:{self.secure_port}:interface=127.0.0.1:{keys}"
        self.broker = broker = self.own_broker(
            "[apps.writing]\nenabled = true\n[http]\nidle_timeout = 0.5\n"
        )
        listen = ("--listen", secure, "--listen", f"unix:{self.socket}")
        broker.options = ("--local", *listen, "--public-url", broker.url)
        broker.add_account("dave", "correct horse battery")
        broker.start()

    def upload(self) -> str:
        """Upload a file; its path."""
        writer = Writer(self.broker, "dave", "correct horse battery")
        writer.sign_in()
        writer.post("a file", ("a.pdf", b"%PDF-1.7\n" + os.urandom(SIZE)))
        page = request(f"{self.broker.url}/people/dave").text
        found = re.search('/people/dave/files/[^"]+', page)
        assert found is not None
        return found[0]

    def archive(self) -> str:
        """Write a large archive; its path."""
        file = self.broker.data / "public" / ARCHIVE[1:]
        file.parent.mkdir(parents=True)
        file.write_bytes(os.urandom(SIZE))
        return ARCHIVE

    def connected(self, kind: str) -> socket.socket:
        if kind == "unix":
            client = socket.socket(socket.AF_UNIX)
            client.connect(self.socket)
        elif kind == "tcp":
            client = socket.create_connection(("127.0.0.1", self.broker.port))
        else:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            raw = socket.create_connection(("127.0.0.1", self.secure_port))
            client = context.wrap_socket(raw)
        client.settimeout(TIMEOUT)
        return client

    def hang_up(self, kind: str, head: str, length: int, how: str) -> None:
        """Read this many bytes of an answer, and go."""
        with self.connected(kind) as client:
            client.sendall(f"{head}\r\nHost: broker.example\r\n\r\n".encode())
            while length > 0 and (data := client.recv(min(65_536, length))):
                length -= len(data)
            if how == "reset" and kind != "unix":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif how == "half":
                client.shutdown(socket.SHUT_WR)

    def is_at_rest(self) -> bool:
        """Whether the broker has closed the archive."""
        return not any(file.endswith(ARCHIVE) for file in files_of(self.broker.pid))

    def test_in_the_middle(self) -> None:
        for path in (self.archive(), self.upload()):
            for kind, how in product(("tcp", "tls", "unix"), ("close", "reset", "half")):
                for length in (0, 1, SIZE):
                    self.hang_up(kind, f"GET {path} HTTP/1.1", length, how)
                self.hang_up(kind, f"GET {path} HTTP/1.1\r\nRange: bytes=9-", 1, how)
                self.hang_up(kind, f"GET {path} HTTP/1.0", 1, how)
        until(self.is_at_rest, "the broker to close the files")
        self.assert_well()

    def test_who_does_not_read_is_cut_off(self) -> None:
        path = self.archive()
        for kind in ("tcp", "tls", "unix"):
            with self.connected(kind) as client:
                client.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                client.recv(1)
                until(self.is_at_rest, "the broker to close the file")
        self.assert_well()

    def assert_well(self) -> None:
        self.assertEqual(request(f"{self.broker.url}/health/live").status, 200)
        self.assertNotIn("Traceback", self.broker.log)
        self.assertNotIn("Unhandled", self.broker.log)
