"""Subscribers of WebSub: one of the standard library, and one of another project."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from json import loads
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from attrs import frozen

from tests.e2e.servers import Server

#: Where Flask-WebSub is installed: apart, since it brings a package "tests" that would
#: be taken for ours.
APART = Path(sys.prefix, "apart")


@frozen
class Delivery:
    """What a hub sent; names of headers in lower case."""

    headers: Mapping[str, str]
    body: bytes


class HubReceiver(Server):
    """A subscriber.

    :ivar asked: the queries of the hub's questions, and of its denials.
    :ivar delivered: what it sent.
    :ivar agrees: whether challenges are repeated.
    :ivar status: what deliveries are answered with.
    :ivar heard: the topics of which something was delivered.
    """

    protocol = "websub"

    def __init__(self) -> None:
        handler = type("Handler", (_Handler,), {"owner": self})
        super().__init__(_HTTPServer(("127.0.0.1", 0), handler))
        self.asked: list[dict[str, str]] = []
        self.delivered: list[Delivery] = []
        self.heard: list[str] = []
        self.agrees = True
        self.status = 202

    @property
    def callback(self) -> str:
        """With a query of its own."""
        return f"http://127.0.0.1:{self.port}/websub?mine=1"

    @property
    def bodies(self) -> list[bytes]:
        return [delivery.body for delivery in self.delivered]


class _HTTPServer(ThreadingHTTPServer):
    daemon_threads = True


class _Handler(BaseHTTPRequestHandler):
    owner: ClassVar[Any]

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 # it is called so
        pass

    def do_GET(self) -> None:
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        challenge = query.get("hub.challenge", "thanks")
        self.answer(200 if self.owner.agrees else 404, challenge.encode())
        self.owner.asked.append(query)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.answer(self.owner.status)
        self.owner.delivered.append(Delivery(headers, body))
        self.owner.heard += re.findall(r'<([^>]*)>; rel="self"', headers["link"])

    def answer(self, status: int, body: bytes = b"") -> None:
        with suppress(ConnectionError):  # who asked may have been killed
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)


class GoneOrigin(Server):
    """A site that has closed: whatever is asked for was there once."""

    def __init__(self) -> None:
        super().__init__(_HTTPServer(("127.0.0.1", 0), _GoneHandler))

    @property
    def topic(self) -> str:
        return f"http://127.0.0.1:{self.port}/rss.xml"


class _GoneHandler(_Handler):
    def do_GET(self) -> None:
        self.answer(410)


class FlaskSubscriber:
    """A subscriber made with Flask-WebSub, in a process of its own.

    :param directory: where its databases and its log go.
    """

    def __init__(self, directory: Path, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._log = directory / "events"
        script = Path(__file__).with_name("flask_subscriber.py")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(script), str(port)],
                cwd=directory,
                env={**os.environ, "PYTHONPATH": str(APART), "NO_PROXY": "*", "no_proxy": "*"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")

    @property
    def events(self) -> list[list[str]]:
        """What happened: kind, topic, and what goes with it."""
        lines = self.log.splitlines()
        return [loads(line) for line in lines if line.startswith("[")]

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
