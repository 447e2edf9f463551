"""The broker that is measured, with a database that was filled before the broker started."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from attrs import frozen
from sqlalchemy import insert

from benchmarks.processes import TOP, Deadline, Failed, Running, environment, free_port
from rsscloud_broker.config import Config
from rsscloud_broker.database.columns import (
    to_micros,
)
from rsscloud_broker.model import Ping
from rsscloud_broker.storage import import_in_parts, migrate, open_database
from rsscloud_broker.storage.pings import count_new, fingerprint
from rsscloud_broker.storage.schema import (
    ping,
)

_FORM = {"Content-Type": "application/x-www-form-urlencoded"}
_LEASE_SECONDS = 90_000
_CHUNK = 5000


@frozen
class Data:
    """The data directory of a broker; fills and reads the database."""

    directory: Path

    @classmethod
    def make(cls, directory: Path) -> Data:
        """Create the directory, with an empty database."""
        data = cls(directory)
        directory.mkdir(parents=True)
        migrate(data.url)
        return data

    @property
    def url(self) -> str:
        """The SQLAlchemy URL of the database."""
        return Config(data=str(self.directory)).database_url

    @property
    def database(self) -> Path:
        return self.directory / "broker.sqlite"

    @property
    def change_list(self) -> Path:
        return self.directory / "public" / "changes.xml"

    def subscribe(
        self,
        callbacks: Mapping[str, Iterable[str]],
        protocol: str = "http-post",
        options: Callable[[str], Mapping[str, str]] | None = None,
    ) -> None:
        """Add subscriptions to the database, in the given order.

        :param callbacks: the callbacks of each topic.
        :param options: gives the subscription options of a callback; None if notifications carry
            no content.
        """
        now = time.time()
        granted = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
        topics = [
            {
                "url": url,
                "subscriptions": [
                    {
                        "callback": callback,
                        "protocol": protocol,
                        "granted_at": granted,
                        "lease_seconds": _LEASE_SECONDS,
                        "options": options(callback) if options else {},
                        "wants_content": options is not None,
                    }
                    for callback in topic_callbacks
                ],
            }
            for url, topic_callbacks in callbacks.items()
        ]
        document = {"format": "rsscloud-broker", "version": 1, "topics": topics}
        import_in_parts(lambda: open_database(self.url), document, now)

    def add_pings(self, count: int, seconds: float) -> None:
        """Add pings that are spread evenly over the last ``seconds`` seconds."""
        now = time.time()
        rows: list[dict[str, object]] = []
        with open_database(self.url) as connection:
            count_new(connection, count, None)
            for number in range(count):
                url = f"http://blog{number}.example/"
                record = Ping(f"Weblog number {number}", url, now - seconds * number / count)
                rows.append(
                    {
                        "received_at": to_micros(record.received_at),
                        "name": record.name,
                        "url": record.url,
                        "changes_url": "",
                        "rss_url": "",
                        "tags": "",
                        "fingerprint": fingerprint(record),
                    }
                )
                if len(rows) == _CHUNK or number == count - 1:
                    connection.execute(insert(ping), rows)
                    rows = []

    def count(self, table: str) -> int:
        """How many rows a table has, such as ``ping`` or ``fanout``."""
        with self.reading() as connection:
            return _count(connection, table)

    @contextlib.contextmanager
    def reading(self) -> Iterator[Any]:
        """A connection to read by, in which each statement sees what is committed by then."""
        connection = sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)
        try:
            yield connection
        finally:
            connection.close()

    def wait_for_walks(self, deadline: Deadline) -> float:
        """Wait until every fan-out is over and stored; return the time, by the monotonic clock."""
        with self.reading() as connection:
            for _ in deadline.polls("the end of the fan-out", 0.005):
                if not _count(connection, "fanout"):
                    break
        return time.monotonic()


def _count(connection: Any, table: str) -> int:
    return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


class Broker(Running):
    """A broker under ``twistd``, with the default settings but for these.

    Loopback is allowed, and more connections, since all clients are on this machine.  Fetches are
    not limited, since all topics are on one host.  Change lists hold every ping.  Topics are not
    polled by default, since a poll would find changes before the measured ping does.

    :param trusted: a file with the only trusted authority; None for those of the system.
    :param name_server: the port of the only name server; None for those of the system.
    :param polls: whether topics are polled.
    :param port: where the broker listens; 0 for a port that is free.
    :param top, more: more keys at the top of the configuration, and more tables.
    :param plugins: a directory with further plugins; None for none.
    """

    def __init__(
        self,
        data: Data,
        deadline: Deadline,
        trusted: Path | None = None,
        name_server: int | None = None,
        polls: bool = False,
        port: int = 0,
        top: str = "",
        more: str = "",
        plugins: Path | None = None,
    ) -> None:
        self.data = data
        self.port = port or free_port()
        self._deadline = deadline
        config = data.directory / "broker.toml"
        config.write_text(
            f"data = {json.dumps(str(data.directory))}\n{top}"
            f'listen = ["tcp:{self.port}:interface=127.0.0.1:backlog=4096"]\n'
            "[http]\nmax_connections = 50000\nmax_connections_per_address = 50000\n"
            "[sinks.change_list]\nmax_lines = 1000000\n"
            "[limits]\nfetches_per_host = 0\n"
            f"[polling]\nenabled = {json.dumps(polls)}\n"
            '[egress]\nallow_topics = ["127.0.0.0/8"]\nallow_callbacks = ["127.0.0.0/8"]\n'
            + (f'name_servers = ["127.0.0.1:{name_server}"]\n' if name_server else "")
            + more,
            encoding="utf-8",
        )
        self._log = data.directory / "twistd.log"
        extra = {"SSL_CERT_FILE": str(trusted)} if trusted else {}
        if plugins is not None:
            extra["PYTHONPATH"] = f"{plugins}{os.pathsep}{TOP}"
        self.started_at = time.monotonic()
        super().__init__(
            [
                str(Path(sys.executable).parent / "twistd"),
                "--nodaemon",
                "--pidfile=",
                f"--logfile={self._log}",
                "rsscloud-broker",
                f"--config={config}",
            ],
            cwd=data.directory,
            env=environment(extra),
            stdin=subprocess.DEVNULL,
        )
        try:
            self.answered_at = self._first_answer()
        except BaseException:
            self.end()
            raise

    def _first_answer(self) -> float:
        for _ in self._deadline.polls("the first page of the broker", 0.002):
            if self.ended:
                raise Failed(f"the broker ended: {self.log_end()}")
            with contextlib.suppress(ConnectionRefusedError):
                self.get("/", 200)
                return time.monotonic()
        raise AssertionError("the loop ends by returning or raising")

    def end(self) -> None:
        """Kill the broker: it loses nothing by that, and it is quicker than stopping."""
        self.kill()

    def log_end(self) -> str:
        """The end of the broker's log."""
        lines = self._log.read_text(encoding="utf-8") if self._log.exists() else "it wrote nothing"
        return lines[-2000:]

    def get(self, path: str, status: int, headers: Mapping[str, str] | None = None) -> bytes:
        """GET a page.

        :raises Failed: the answer has another status.
        """
        return self.request("GET", path, status, headers=headers)

    def ping_topic(self, url: str) -> None:
        """Ping a topic by rssCloud's REST interface."""
        answer = self.request(
            "POST", "/rsscloud/ping", 200, urlencode({"url": url}).encode(), _FORM
        )
        if b'success="true"' not in answer:
            raise Failed(f"the broker refused a ping: {answer!r}")

    def request(
        self,
        method: str,
        path: str,
        status: int,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """Make a request, and return the body of the answer.

        :raises Failed: the answer has another status.
        """
        left = self._deadline.left(f"{method} {path}")
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=left)
        try:
            connection.request(method, path, body, dict(headers or {}))
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        if response.status != status:
            raise Failed(f"{method} {path} was answered by {response.status}: {content[:500]!r}")
        return content
