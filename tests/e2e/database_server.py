"""PostgreSQL servers of a test's own, which it stops, restarts, hangs and replaces by a standby.

They listen on a port of loopback, as a server on another machine does.  What was committed
survives an immediate stop, but not a crash of the machine, which makes them quick.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from signal import SIGCONT, Signals
from unittest import TestCase

from sqlalchemy import create_engine, text

from tests.postgresql import SERVER_USER, Server, programs
from tests.processes import children_of, free_port

_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "60",
    "wal_level": "replica",
    "max_wal_senders": "4",
    "hot_standby": "on",
    "unix_socket_directories": "",
}


class DatabaseServer(Server):
    """
    :ivar port: where it listens.
    """

    def __init__(self) -> None:
        self.port = free_port()
        super().__init__(_SETTINGS | {"port": str(self.port)})

    @classmethod
    def make(cls, test: TestCase) -> DatabaseServer:
        """A server that runs until the end of a test, with an empty database ``broker``."""
        server = cls()
        test.addCleanup(server.end)
        server.initialise()
        server.start()
        server.run("CREATE DATABASE broker", autocommit=True)
        return server

    def standby(self, name: str) -> DatabaseServer:
        """A streaming standby of this server, which runs.

        From now on this server answers a commit only when the standby has it, so that nothing
        that was acknowledged is lost if the standby takes over.
        """
        other = DatabaseServer()
        source = f"host=127.0.0.1 port={self.port} user={SERVER_USER} application_name={name}"
        command = [programs() / "pg_basebackup", "--dbname", source]
        command += ["--pgdata", other.directory / "data", "--no-sync"]
        command += ["--wal-method", "stream", "--write-recovery-conf", "--checkpoint", "fast"]
        other.run_program(command)
        other.start()
        self.run(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'", autocommit=True)
        self.run("SELECT pg_reload_conf()")
        return other

    def url(self, name: str = "postgres") -> str:
        """The SQLAlchemy URL of a database."""
        return f"postgresql+psycopg://{SERVER_USER}@127.0.0.1:{self.port}/{name}"

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
        for pid in [self._process.pid, *children_of(self._process.pid)]:
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
        if self._process is not None and self._process.poll() is None:
            self.send(SIGCONT)
        super().end()
