"""Processes that a benchmark starts, asks, measures and ends."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import Any

from attrs import define, frozen

from benchmarks.control import Message

#: The checkout: where ``python -m benchmarks...`` finds the modules.
TOP = Path(__file__).parent.parent

#: Seconds that a process that was asked to end is given.
PATIENCE = 10.0

_TICKS = os.sysconf("SC_CLK_TCK")


@frozen
class Sample:
    """One round of something.

    :ivar value: in the unit of its line.
    :ivar cpu: seconds of CPU of the process that did it, where they were measured.
    """

    value: float
    cpu: float | None = None


class Failed(Exception):
    """A benchmark did not end, or not with what it had to.  Its text says how, to people."""


@define
class Deadline:
    """A point in time by which a row must be done."""

    _at: float

    @classmethod
    def within(cls, seconds: float) -> Deadline:
        return cls(time.monotonic() + seconds)

    def left(self, what: str) -> float:
        """The seconds that are left.

        :param what: what is to be waited for.
        :raises Failed: there are none.
        """
        left = self._at - time.monotonic()
        if left <= 0:
            raise Failed(f"{what}: not within the row's time; --deadline gives it more")
        return left

    def polls(self, what: str, pause: float = 0.01) -> Iterator[None]:
        """Go round until the caller leaves the loop.

        :raises Failed: it did not in time.
        """
        while self.left(what):
            yield
            Event().wait(pause)


class Running:
    """A process that ends with its ``with`` block at the latest."""

    def __init__(self, arguments: list[str], **options: Any) -> None:
        self._process = subprocess.Popen(arguments, **options)

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        """End it as a crash would."""
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        """Ask it to end, and insist."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()  # helpers end when nobody listens
        self._process.terminate()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()

    def cpu_seconds(self) -> float:
        """Seconds of CPU that it has used, in all its threads."""
        text = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii")
        fields = text.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def peak_megabytes(self) -> float:
        """The most that it had resident, in 10^6 bytes."""
        for line in Path(f"/proc/{self.pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
        raise Failed(f"process {self.pid} has ended")


#: Keeps a core busy, and ends by itself even if nobody ends it.
_BUSY = "import time\nend = time.monotonic() + {seconds}\nwhile time.monotonic() < end: pass"


@contextlib.contextmanager
def busy_processes(number: int, seconds: float) -> Iterator[None]:
    """Have processes beside us that want a core each, and do nothing with it.

    :param seconds: after which they end by themselves.
    """
    program = _BUSY.format(seconds=seconds)
    with contextlib.ExitStack() as stack:
        for _ in range(number):
            stack.enter_context(Running([sys.executable, "-c", program]))
        yield


class Helper(Running):
    """One of our own modules as a process, which is asked and answers in lines of JSON.

    :param module: its name.
    :param arguments: what it is given.
    """

    def __init__(self, module: str, deadline: Deadline, **arguments: Any) -> None:
        super().__init__(
            [sys.executable, "-m", f"benchmarks.{module}", json.dumps(arguments)],
            cwd=TOP,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._module = module
        self._deadline = deadline
        self._unread = b""
        try:
            self.ready = self._answer()
        except BaseException:
            self.end()
            raise

    @property
    def port(self) -> int:
        """The port where it listens."""
        return int(self.ready["port"])

    def ask(self, do: str, **arguments: Any) -> Message:
        """Have it do something; what it answers.

        :raises Failed: it ended, or did not answer in time.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Message:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._unread:
            left = self._deadline.left(f"an answer of the {self._module}")
            if not select.select([descriptor], [], [], left)[0]:
                continue
            data = os.read(descriptor, 65536)
            if not data:
                raise Failed(f"the {self._module} ended; what it said stands above")
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        answer: Message = json.loads(line)
        return answer


@frozen
class Stopwatch:
    """Measures a process from one moment on."""

    process: Running
    began: float
    cpu_before: float

    @classmethod
    def start(cls, process: Running) -> Stopwatch:
        return cls(process, time.monotonic(), process.cpu_seconds())

    def rate(self, count: int, ended: float) -> Sample:
        """So many things a second, until a moment of ``time.monotonic``."""
        return Sample(count / max(ended - self.began, 1e-9), self.cpu())

    def cpu(self) -> float:
        """Seconds of CPU since the start."""
        return self.process.cpu_seconds() - self.cpu_before


def raise_file_limit() -> int:
    """Allow as many open files as may be, for this process and those that it starts.

    :returns: how many those are.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else 1 << 20


def free_port() -> int:
    """A port of loopback that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Our environment, and more, without what names a proxy: all is on this machine."""
    ours = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    return ours | dict(extra)
