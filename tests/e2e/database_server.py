"""PostgreSQL servers of a test's own, which it stops, restarts, hangs and replaces by a standby.

They listen on a port of loopback, as a server on another machine does.  What was committed
survives an immediate stop, but not a crash of the machine, which makes them quick.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from signal import SIGCONT, SIGQUIT, Signals
from tempfile import mkdtemp

from sqlalchemy import create_engine, text

from tests.postgresql import SERVER_USER, initialise, programs, server_options
from tests.processes import free_port

#: Seconds until a test gives up waiting for a server.
TIMEOUT = 60

_SETTINGS = {
    "fsync": "off",
    "listen_addresses": "127.0.0.1",
    "max_connections": "60",
    "log_min_messages": "warning",
    "wal_level": "replica",
    "max_wal_senders": "4",
    "hot_standby": "on",
    "unix_socket_directories": "",
}


class DatabaseServer:
    """A PostgreSQL in a directory of its own.

    It ends with the thread that started it, however that ends.

    :ivar port: where it listens.
    """

    def __init__(self) -> None:
        self.port = free_port()
        self._directory = Path(mkdtemp(prefix="postgresql-"))
        if os.geteuid() == 0:
            shutil.chown(self._directory, SERVER_USER)
        self._data = self._directory / "data"
        self._log = self._directory / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self._settings = dict(_SETTINGS)

    @classmethod
    def make(cls) -> DatabaseServer:
        """A server that runs, and has no database of anybody's yet."""
        server = cls()
        initialise(server._directory)
        server.start()
        return server

    def standby(self, name: str) -> DatabaseServer:
        """A streaming standby of this server, which runs.

        From now on this server answers a commit only when the standby has it, so that nothing
        that was acknowledged is lost if the standby takes over.
        """
        other = DatabaseServer()
        source = f"host=127.0.0.1 port={self.port} user={SERVER_USER} application_name={name}"
        copy = [programs() / "pg_basebackup", "--dbname", source, "--pgdata", other._data]
        copy += ["--wal-method", "stream", "--write-recovery-conf", "--checkpoint", "fast"]
        made = subprocess.run(
            [*map(str, copy), "--no-sync"], capture_output=True, text=True, check=False,
            cwd=other._directory, **server_options(),
        )  # type: ignore[call-overload] # fmt: skip
        assert made.returncode == 0, made.stderr
        other.start()
        self.run(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'", autocommit=True)
        self.run("SELECT pg_reload_conf()")
        return other

    def url(self, name: str = "postgres") -> str:
        """The SQLAlchemy URL of a database."""
        return f"postgresql+psycopg://{SERVER_USER}@127.0.0.1:{self.port}/{name}"

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        command = ["setpriv", "--pdeathsig", "QUIT", programs() / "postgres", "-D", self._data]
        for name, value in (self._settings | {"port": str(self.port)}).items():
            command += ["-c", f"{name}={value}"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*map(str, command)], cwd=self._directory, stdout=log, stderr=log,
                **server_options(),
            )  # type: ignore[call-overload] # fmt: skip
        until = time.monotonic() + TIMEOUT
        while "ready" not in self._status():
            if self._process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"postgres did not start: {self.log}")
            time.sleep(0.02)

    def _status(self) -> str:
        try:
            return (self._data / "postmaster.pid").read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def crash(self) -> None:
        """Stop it as ``pg_ctl stop -m immediate`` does: after the next start it recovers."""
        self._end(SIGQUIT)

    def restart(self, down_for: float = 0.0) -> None:
        """Stop it immediately, and start it again after some seconds."""
        self.crash()
        time.sleep(down_for)
        self.start()

    def promote(self) -> None:
        """Make a standby the server that takes writes."""
        self.run("SELECT pg_promote(true, 30)")

    def send(self, number: Signals) -> None:
        """Signal it and all its processes, such as to stop them for a while."""
        assert self._process is not None
        for pid in [self._process.pid, *_children(self._process.pid)]:
            with suppress(ProcessLookupError):  # a process of a connection has ended just now
                os.kill(pid, number)

    def run(self, statement: str, name: str = "postgres", *, autocommit: bool = False) -> None:
        """Run a statement in a database."""
        engine = create_engine(self.url(name))
        if autocommit:
            engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        try:
            with engine.begin() as connection:
                connection.execute(text(statement))
        finally:
            engine.dispose()

    def end(self) -> None:
        """End it for good."""
        if self._process is not None and self._process.poll() is None:
            self.send(SIGCONT)
            self._end(SIGQUIT)
        shutil.rmtree(self._directory, ignore_errors=True)

    def _end(self, number: Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(TIMEOUT)


def _children(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return [*map(int, children.split())]
