"""Subscribers of WebSub: one of the standard library, and one of another project."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from json import loads
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from attrs import frozen

from tests.e2e.servers import Handler, Server, http_server

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
    :ivar status: what deliveries are answered with.
    :ivar heard: the topics of which something was delivered.
    """

    protocol = "websub"

    def __init__(self) -> None:
        super().__init__(http_server(_Handler, self))
        self.asked: list[dict[str, str]] = []
        self.delivered: list[Delivery] = []
        self.heard: list[str] = []
        self.status = 202

    @property
    def callback(self) -> str:
        """With a query of its own."""
        return f"http://127.0.0.1:{self.port}/websub?mine=1"

    @property
    def bodies(self) -> list[bytes]:
        return [delivery.body for delivery in self.delivered]


class _Handler(Handler):
    def do_GET(self) -> None:
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        challenge = query.get("hub.challenge", "thanks")
        self.answer(200, challenge.encode())
        self.owner.asked.append(query)

    def do_POST(self) -> None:
        body = self.body()
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.answer(self.owner.status)
        self.owner.delivered.append(Delivery(headers, body))
        self.owner.heard += re.findall(r'<([^>]*)>; rel="self"', headers["link"])


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
