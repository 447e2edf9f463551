"""Processes that tests start, read and stop."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from os import environ
from pathlib import Path
from queue import Empty, SimpleQueue
from signal import SIGINT, SIGKILL, SIGTERM
from threading import Thread
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests import nursery

#: Where the commands of the environment are in which the tests run.
BIN = Path(sys.executable).parent

#: Seconds until a test gives up waiting for a process and fails.
TIMEOUT = 60.0

#: What twistd says when the broker listens, at which port.
LISTENS = r"HTTP server.* starting on (\d+)"


#: Ports to choose from: below those that the system takes for connections, and
#: none that the broker would not call.
_PORTS = range(20_000, 27_000)

_taken: list[socket.socket] = []


def free_port() -> int:
    """A port of loopback that nobody uses now, and that no other test was given.

    Tests run in several processes at a time.  Each port that one of them was given is
    the name of a socket that it has, for as long as it lives.
    """
    while True:
        port = secrets.choice(_PORTS)
        mine = socket.socket(socket.AF_UNIX)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            mine.bind(f"\0rsscloud-broker tests: port {port}")
            _taken.append(mine)
            return port
        mine.close()


def accepts(port: int) -> bool:
    """Whether somebody accepts connections at a port of loopback."""
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def new_directory(test: SynchronousTestCase) -> Path:
    """A directory of a test's own."""
    path = Path(test.mktemp()).absolute()
    path.mkdir()
    return path


def children_of(pid: int) -> list[int]:
    """The ids of the processes that a process has started; none if it has ended."""
    with contextlib.suppress(FileNotFoundError):
        told = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
        return [*map(int, told.split())]
    return []


def files_of(pid: int, below: Path | str = "") -> list[str]:
    """What the descriptors of a process are for.

    :param below: only files in this directory; empty for all.
    """
    names = []
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it has been closed since
            names.append(os.readlink(descriptor))
    return [name for name in names if name.startswith(str(below))]


def no_proxies() -> dict[str, str]:
    """The environment without what names a proxy: whom tests talk to is on this machine."""
    return {name: value for name, value in environ.items() if not name.lower().endswith("_proxy")}


class Process:
    """A process whose output is read line by line.

    It ends with the test at the latest.

    :param test: what fails where an expectation is not met.
    :param env: variables besides ``no_proxies``.
    :param options: more for `nursery.start`.
    """

    def __init__(
        self,
        test: SynchronousTestCase,
        arguments: Sequence[str],
        env: dict[str, str] | None = None,
        **options: Any,
    ) -> None:
        self._test = test
        self._seen: list[str] = []
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        theirs_in, ours_in = os.pipe()
        ours_out, theirs_out = os.pipe()
        self._stdin = os.fdopen(ours_in, "w", buffering=1)
        self._stdout = os.fdopen(ours_out)
        try:
            self._process = nursery.start(
                arguments,
                env=no_proxies() | (env or {}),
                stdin=theirs_in,
                stdout=theirs_out,
                **options,
            )
        finally:
            os.close(theirs_in)
            os.close(theirs_out)
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()
        test.addCleanup(self.stop)

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def send(self, text: str) -> None:
        """Give it something to read."""
        self._stdin.write(text)
        self._stdin.flush()

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Read on until a line matches."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            line = self._next_line(deadline)
            if line is None:
                self._test.fail(f"no line matches {pattern!r} in:\n{self.output}")
            if found := re.search(pattern, line):
                return found

    @property
    def output(self) -> str:
        """What was read so far."""
        return "".join(self._seen)

    def wait(self) -> int:
        """Read until it ends by itself; its exit status."""
        deadline = time.monotonic() + TIMEOUT
        while self._next_line(deadline) is not None:
            pass
        return self._process.wait(TIMEOUT)

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def interrupt(self) -> None:
        """Do as Ctrl-C does: interrupt its group, which must be its own (``process_group=0``)."""
        os.killpg(self._process.pid, SIGINT)

    def stop(self) -> None:
        """Ask it to end, and insist."""
        self._process.send_signal(SIGTERM)
        try:
            self._process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.send_signal(SIGKILL)
            self._process.wait()
        self._reader.join(TIMEOUT)
        self._stdin.close()
        if not self._reader.is_alive():  # else a process that it has left behind writes on
            self._stdout.close()

    def _next_line(self, deadline: float) -> str | None:
        try:
            line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            return None
        if line is not None:
            self._seen.append(line)
        return line

    def _read(self) -> None:
        for line in self._stdout:
            self._lines.put(line)
        self._lines.put(None)
