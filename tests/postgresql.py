"""A PostgreSQL of the tests' own: a cluster in a temporary directory, on a UNIX socket alone.

It starts when a test first asks for it and ends with the process that started it, however
that ends.  Nothing in it survives a crash of the machine, which makes it quick.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
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
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "max_connections": "100",
    "log_min_messages": "warning",
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


@cache
def _cluster() -> Path:
    """The directory with the socket of a server that runs."""
    directory = Path(mkdtemp(prefix="postgresql-"))  # short, as paths of sockets must be
    if os.geteuid() == 0:
        shutil.chown(directory, SERVER_USER)
    log = directory / "log"
    initialise(directory)
    command = ["setpriv", "--pdeathsig", "QUIT", programs() / "postgres", "-D", directory / "data"]
    for name, value in (_SETTINGS | {"unix_socket_directories": str(directory)}).items():
        command += ["-c", f"{name}={value}"]
    with log.open("wb") as output:
        server = subprocess.Popen(
            [*map(str, command)], cwd=directory, stdout=output, stderr=output, **server_options()
        )  # type: ignore[call-overload]
    atexit.register(_end, server, directory)
    until = time.monotonic() + TIMEOUT
    while not list(directory.glob(".s.PGSQL.*[0-9]")) or "ready" not in _status(directory):
        if server.poll() is not None or time.monotonic() > until:
            raise AssertionError(f"postgres did not start: {log.read_text()}")
        time.sleep(0.02)
    return directory


def server_options() -> dict[str, str | list[str]]:
    """Options of ``subprocess`` for the programs of PostgreSQL."""
    if os.geteuid() != 0:
        return {}
    return {"user": SERVER_USER, "group": SERVER_USER, "extra_groups": []}


def initialise(directory: Path) -> None:
    """Make the files of a server in ``data`` of a directory that belongs to who runs it."""
    command = [programs() / "initdb", "--pgdata", directory / "data", "--auth", "trust"]
    command += ["--username", SERVER_USER, "--encoding", "UTF8", "--locale", "C", "--no-sync"]
    made = subprocess.run(  # ours
        [*map(str, command)], cwd=directory, capture_output=True, text=True, check=False,
        **server_options(),
    )  # type: ignore[call-overload] # fmt: skip
    if made.returncode:
        raise AssertionError(f"initdb failed: {made.stdout}{made.stderr}")


def _status(directory: Path) -> str:
    try:
        return (directory / "data" / "postmaster.pid").read_text()
    except FileNotFoundError:
        return ""


def _end(server: subprocess.Popen[bytes], directory: Path) -> None:
    server.send_signal(signal.SIGQUIT)  # at once: SIGTERM waits until all connections are closed
    try:
        server.wait(5)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    shutil.rmtree(directory, ignore_errors=True)


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
