"""A PostgreSQL for the benchmarks: durable, with the settings of a new installation."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from attrs import frozen

from benchmarks.broker import Data
from benchmarks.processes import Deadline, Failed, Running
from rsscloud_broker.storage import migrate

#: Who runs the server if root runs the benchmarks: PostgreSQL refuses to be run by root.
_USER = "postgres"


@frozen
class SharedData(Data):
    """The data directory of one of several brokers on a PostgreSQL.

    :ivar server: the directory with the socket of the server.
    """

    server: Path

    @classmethod
    def on(cls, server: PostgreSQL, directory: Path) -> SharedData:
        """Create the directory, and the tables unless they are there."""
        data = cls(directory, server.sockets)
        directory.mkdir(parents=True)
        migrate(data.url)
        return data

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://{_USER}@/postgres?host={self.server}"

    @property
    def setting(self) -> str:
        """The line of the configuration that names the database."""
        return f'database = "{self.url}"\n'

    @contextlib.contextmanager
    def reading(self) -> Iterator[Any]:
        import psycopg  # noqa: PLC0415 # who measures SQLite need not have it

        with psycopg.connect(
            host=str(self.server), user=_USER, dbname="postgres", autocommit=True
        ) as connection:
            yield connection


class PostgreSQL(Running):
    """A server on a UNIX socket, which ends with its ``with`` block.

    :param beside: a directory on the disk that is measured.
    """

    def __init__(self, beside: Path, deadline: Deadline) -> None:
        programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
        if not programs:
            raise Failed("there is no PostgreSQL in /usr/lib/postgresql")
        # The user of the server may not enter every directory of somebody else.
        below = None if os.geteuid() == 0 else beside.parents[1]
        self.directory = Path(mkdtemp(prefix="benchmarks-", dir=below))
        # The path of a socket has at most 107 bytes.
        self.sockets = Path(mkdtemp(prefix="benchmarks-"))
        user: dict[str, str] = {}
        if os.geteuid() == 0:
            for each in (self.directory, self.sockets):
                shutil.chown(each, _USER)
            user = {"user": _USER, "group": _USER}
        data = self.directory / "data"
        subprocess.run(
            [programs[-1] / "initdb", "-D", data, "-U", _USER, "--auth", "trust", "-E", "UTF8"],
            cwd=self.directory, check=True, stdout=subprocess.DEVNULL, **user,
        )  # type: ignore[call-overload] # fmt: skip
        settings = {"listen_addresses": "", "unix_socket_directories": str(self.sockets)}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with (self.directory / "log").open("wb") as log:
            super().__init__(
                [str(programs[-1] / "postgres"), "-D", str(data), *options],
                cwd=self.directory,
                stdout=log,
                stderr=log,
                **user,
            )
        for _ in deadline.polls("the start of PostgreSQL"):
            if self._is_ready():
                break

    def _is_ready(self) -> bool:
        if self.ended:
            raise Failed(f"PostgreSQL ended: {(self.directory / 'log').read_text()[-2000:]}")
        import psycopg  # noqa: PLC0415

        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(host=str(self.sockets), user=_USER, dbname="postgres").close()
            return True
        return False

    def end(self) -> None:
        """Stop the server at once, and remove its files."""
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait()
        for each in (self.directory, self.sockets):
            shutil.rmtree(each, ignore_errors=True)
