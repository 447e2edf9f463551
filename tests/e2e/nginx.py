"""Real reverse proxies; and an nginx that serves feeds as files, with validators."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from json import loads
from pathlib import Path
from typing import ClassVar

from attrs import frozen

from tests.e2e.fixture import TIMEOUT, until
from tests.e2e.programs import program
from tests.processes import accepts, free_port

_FEEDS = """
    log_format seen escape=json '{{"uri": "$request_uri", "status": $status, "sent": $bytes_sent, '
        '"agent": "$http_user_agent", "etag": "$http_if_none_match", '
        '"since": "$http_if_modified_since"}}';
    access_log access.log seen;
    types {{ application/rss+xml xml; }}
    gzip on;
    gzip_types application/rss+xml;
    gzip_min_length 1;
    server {{
        listen 127.0.0.1:{port};
        root pages;
    }}
"""

#: Before any time at which a test runs.
_LONG_AGO = 1_700_000_000


@frozen
class Logged:
    """A request, as the access log has it.

    :ivar sent: bytes of the answer, with its headers.
    :ivar agent: its User-Agent.
    :ivar etag: its If-None-Match.
    :ivar since: its If-Modified-Since.
    """

    uri: str
    status: int
    sent: int
    agent: str
    etag: str
    since: str


_MODULES = "".join(
    f"LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"
    for name in ("mpm_event", "authz_core", "ssl", "proxy", "proxy_http")
)


class ProxyProcess:
    """A web server in the foreground.

    :param directory: what it writes goes there.
    :ivar port: a port for one of its servers, which was free.
    :cvar NAME: its program.
    :cvar OPTIONS: its command line, where the file ``configuration`` is in its directory.
    :cvar CONFIGURATION: that file, whose paths are below its directory.
    :raises SkipTest: there is none on this machine; see `programs.missing`.
    """

    NAME: ClassVar[str]
    OPTIONS: ClassVar[Sequence[str]]
    CONFIGURATION: ClassVar[str]

    def __init__(self, directory: Path) -> None:
        self._program = program(self.NAME)
        self._directory = directory
        self.port = free_port()
        directory.mkdir(parents=True, exist_ok=True)

    def start_with(self, servers: str) -> None:
        """Start it, and wait until somebody accepts connections at its port.

        :param servers: what its ``http`` block has besides: the servers, one at ``port``.
        """
        configuration = self.CONFIGURATION.format(servers=servers, port=self.port, modules=_MODULES)
        (self._directory / "configuration").write_text(configuration, encoding="utf-8")
        log = self._directory / "error.log"
        with log.open("wb") as written:
            self._process = subprocess.Popen(
                [self._program, *self.OPTIONS],
                stdin=subprocess.DEVNULL,
                stderr=written,
                cwd=self._directory,
                env={**os.environ, "HOME": str(self._directory)},
            )
        until(lambda: self._process.poll() is not None or accepts(self.port), "it to answer")
        if self._process.poll() is not None:
            raise AssertionError(f"{self.NAME} did not start:\n{log.read_text('utf-8')}")

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(TIMEOUT)


class NginxProcess(ProxyProcess):
    NAME = "nginx"
    OPTIONS = ("-p", ".", "-c", "configuration", "-e", "error.log")
    CONFIGURATION = """
daemon off;
master_process off;
pid pid;
error_log error.log;
events {{ worker_connections 64; }}
http {{
    client_body_temp_path temporary;
    proxy_temp_path temporary;
    fastcgi_temp_path temporary;
    uwsgi_temp_path temporary;
    scgi_temp_path temporary;
    {servers}
}}
"""


class CaddyProcess(ProxyProcess):
    NAME = "caddy"
    OPTIONS = ("run", "--config", "configuration", "--adapter", "caddyfile")
    CONFIGURATION = """
{{
    admin off
    auto_https disable_redirects
}}
{servers}
"""


class ApacheProcess(ProxyProcess):
    NAME = "apache2"
    OPTIONS = ("-d", ".", "-f", "configuration", "-DFOREGROUND")
    CONFIGURATION = """
ServerRoot .
PidFile pid
ErrorLog error.log
Mutex pthread
User www-data
Group www-data
ServerName localhost
Listen 127.0.0.1:{port}
{modules}
{servers}
"""


class Nginx(NginxProcess):
    """One that serves feeds, on loopback.

    :param directory: what it serves and writes goes there.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._pages = directory / "pages"
        self._written = 0
        self._pages.mkdir()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self.start_with(_FEEDS.format(port=self.port))

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def write(self, path: str, body: bytes) -> str:
        """Put bytes at a path, from one moment to the next; their URL.

        They have validators of their own, for each file is a second older than the next.
        """
        file = self._pages / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_suffix(".part")
        new.write_bytes(body)
        self._written += 1
        os.utime(new, times=(_LONG_AGO, _LONG_AGO + self._written))
        new.replace(file)
        return self.url(path)

    def logged(self, path: str, status: int) -> list[Logged]:
        """The requests for a path that were answered with a status."""
        lines = (self._directory / "access.log").read_text(encoding="utf-8").splitlines()
        logged = [Logged(**loads(line)) for line in lines]
        return [one for one in logged if (one.uri, one.status) == (path, status)]
