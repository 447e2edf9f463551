"""A real pgbouncer, between brokers and their PostgreSQL."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from tempfile import mkdtemp

from sqlalchemy import make_url

from tests.e2e.fixture import TIMEOUT, until
from tests.e2e.programs import program
from tests.postgresql import SERVER_USER, server_options
from tests.processes import accepts, free_port

# It lets everybody in, as the PostgreSQL of the tests does.
_CONFIGURATION = """
[databases]
* = host={url.host} port={url.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = users
logfile = log
{settings}
"""


class PgBouncer:
    """A pgbouncer in the foreground, on a port of loopback.

    It ends with the thread that started it, however that ends.

    :param url: the SQLAlchemy URL of a database; its user is the one whom pgbouncer lets in.
    :param settings: lines of its section ``[pgbouncer]``.
    :raises SkipTest: there is none on this machine; see `programs.missing`.
    """

    def __init__(self, url: str, settings: str) -> None:
        self._program = program("pgbouncer")
        self._url = make_url(url)
        self._port = free_port()
        self._directory = Path(mkdtemp(prefix="pgbouncer-"))
        configuration = _CONFIGURATION.format(url=self._url, port=self._port, settings=settings)
        (self._directory / "pgbouncer.ini").write_text(configuration, encoding="utf-8")
        (self._directory / "users").write_text(f'"{self._url.username}" ""\n', encoding="utf-8")
        if os.geteuid() == 0:  # which runs PostgreSQL and pgbouncer as another user
            shutil.chown(self._directory, SERVER_USER)

    @property
    def url(self) -> str:
        """The SQLAlchemy URL of the same database, through pgbouncer."""
        return self._url.set(host="127.0.0.1", port=self._port).render_as_string()

    @property
    def log(self) -> str:
        return (self._directory / "log").read_text(encoding="utf-8")

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        command = ["setpriv", "--pdeathsig", "KILL", self._program, "--quiet", "pgbouncer.ini"]
        self._process = subprocess.Popen(
            command, cwd=self._directory, stdin=subprocess.DEVNULL, **server_options()
        )  # type: ignore[call-overload]
        until(
            lambda: self._process.poll() is not None or accepts(self._port), "pgbouncer to answer"
        )
        assert self._process.poll() is None, self.log

    def kill(self) -> None:
        """End it at once, and with it all connections."""
        self._process.kill()
        self._process.wait(TIMEOUT)

    def end(self) -> None:
        """End it for good."""
        self.kill()
        shutil.rmtree(self._directory, ignore_errors=True)
