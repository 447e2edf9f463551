"""A PostgreSQL of the tests' own: a cluster in a temporary directory, on a UNIX socket alone.

It starts when a test first asks for it and ends with the process that started it, however
that ends.  Nothing in it survives a crash of the machine, which makes it quick.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from signal import SIGQUIT
from tempfile import mkdtemp

import psycopg
from sqlalchemy import create_engine, make_url, text

from rsscloud_broker.storage import migrate
from rsscloud_broker.storage.schema import metadata
from tests.e2e.programs import missing

#: Seconds until the tests give up waiting for the server to start.
TIMEOUT = 60

#: Who runs the server, if root runs the tests: PostgreSQL refuses to be run by root.
SERVER_USER = "postgres"

_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_directories": "..",  # seen from its data
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "max_connections": "100",
}

_numbers = count(1)

#: Databases with tables and without rows, which nobody uses, by their URL; each with a connection
#: that clears it, for to make a connection takes longer than that.
_free: dict[str, psycopg.Connection] = {}


@contextmanager
def borrowed_database() -> Iterator[str]:
    """The SQLAlchemy URL of a database with the tables of this version and without rows.

    It is cleared and lent again afterwards: to make one takes fifty times as long.

    :raises SkipTest: there is no PostgreSQL; see `programs.missing`.
    """
    url, connection = _free.popitem() if _free else _migrated()
    yield url
    connection.execute("SELECT pg_temp.clear()")
    _free[url] = connection


def _migrated() -> tuple[str, psycopg.Connection]:
    """A new database with tables, and a connection with a function that clears it.

    The function deletes all rows, and has new ones numbered from 1.
    """
    url = empty_database()
    migrate(url)
    parts = make_url(url)
    connection = psycopg.connect(
        host=str(_cluster()), user=parts.username, dbname=parts.database, autocommit=True
    )
    deletions = "".join(f"DELETE FROM {table};" for table in reversed(metadata.sorted_tables))
    connection.execute(
        "CREATE FUNCTION pg_temp.clear() RETURNS void LANGUAGE plpgsql AS $$ BEGIN "
        f"{deletions} PERFORM setval(oid, 1, false) FROM pg_class WHERE relkind = 'S'; END $$"
    )
    return url, connection


def empty_database() -> str:
    """The URL of a new database without any table.

    :raises SkipTest: there is no PostgreSQL; see `programs.missing`.
    """
    name = f"test{next(_numbers)}"
    _run(f"CREATE DATABASE {name}")
    return _url(name)


def _run(statement: str) -> None:
    engine = create_engine(server_url(), isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as conn:
            conn.execute(text(statement))
    finally:
        engine.dispose()


def server_url() -> str:
    """The URL of the database that each server has."""
    return _url("postgres")


def _url(name: str) -> str:
    return f"postgresql+psycopg://{SERVER_USER}@/{name}?host={_cluster()}"


class Server:
    """A PostgreSQL in a directory of its own.

    It ends with the thread that started it, however that ends.

    :param settings: as of ``postgresql.conf``.
    :ivar directory: where it is; its path is short, as those of sockets must be.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.directory = Path(mkdtemp(prefix="postgresql-"))
        if os.geteuid() == 0:
            shutil.chown(self.directory, SERVER_USER)
        self._log = self.directory / "log"
        self._settings = {"fsync": "off", "log_min_messages": "warning", **settings}
        self._process: subprocess.Popen[bytes] | None = None

    def initialise(self) -> None:
        """Make its files."""
        command = [programs() / "initdb", "--pgdata", self.directory / "data", "--auth", "trust"]
        command += ["--username", SERVER_USER, "--encoding", "UTF8", "--locale", "C", "--no-sync"]
        self.run_program(command)

    def run_program(self, command: Sequence[object]) -> None:
        """Run another program of PostgreSQL, which must succeed, in the directory."""
        made = subprocess.run(
            [*map(str, command)], cwd=self.directory, capture_output=True, text=True, check=False,
            **server_options(),
        )  # type: ignore[call-overload] # fmt: skip
        assert made.returncode == 0, f"{command} failed: {made.stdout}{made.stderr}"

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        data = self.directory / "data"
        command = ["setpriv", "--pdeathsig", "QUIT", programs() / "postgres", "-D", data]
        for name, value in self._settings.items():
            command += ["-c", f"{name}={value}"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*map(str, command)], cwd=self.directory, stdout=log, stderr=log,
                **server_options(),
            )  # type: ignore[call-overload] # fmt: skip
        until = time.monotonic() + TIMEOUT
        while "ready" not in self._status():
            if self._process.poll() is not None or time.monotonic() > until:
                log_text = self._log.read_text(encoding="utf-8")
                raise AssertionError(f"postgres did not start: {log_text}")
            time.sleep(0.02)

    def _status(self) -> str:
        try:
            return (self.directory / "data" / "postmaster.pid").read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

    def crash(self) -> None:
        """Stop it as ``pg_ctl stop -m immediate`` does: after the next start it recovers."""
        if self._process is not None:
            self._process.send_signal(SIGQUIT)
            self._process.wait(TIMEOUT)

    def end(self) -> None:
        """End it for good."""
        self.crash()
        shutil.rmtree(self.directory, ignore_errors=True)


@cache
def _cluster() -> Path:
    """The directory with the socket of a server that runs."""
    server = Server(_SETTINGS)
    server.initialise()
    server.start()
    atexit.register(server.end)
    return server.directory


def server_options() -> dict[str, str | list[str]]:
    """Options of ``subprocess`` for the programs of PostgreSQL."""
    if os.geteuid() != 0:
        return {}
    return {"user": SERVER_USER, "group": SERVER_USER, "extra_groups": []}


def programs() -> Path:
    """The directory with the programs of PostgreSQL.

    :raises SkipTest: there is no PostgreSQL; see `programs.missing`.
    """
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=_version)
    beside = shutil.which("postgres")
    if beside:
        return Path(os.path.realpath(beside)).parent
    if not found:
        missing("postgresql")
    return found[-1].parent


def _version(path: Path) -> float:
    return float(path.parent.parent.name)
