"""Starts, asks, measures and ends the processes of a benchmark."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import Any, ClassVar

from attrs import define, frozen

from benchmarks.control import Message

#: The top of the checkout, where ``python -m benchmarks...`` finds the modules.
TOP = Path(__file__).parent.parent

#: Seconds that a terminated process has before it is killed.
STOP_TIMEOUT = 10.0

_TICKS = os.sysconf("SC_CLK_TCK")


@frozen
class Sample:
    """The result of one round.

    :ivar value: the measured value, in the unit of its line.
    :ivar cpu: the CPU seconds of the measured processes; None if not measured.
    :ivar count: how many things they did, of which the value is the rate; None if it is no rate.
    """

    value: float
    cpu: float | None = None
    count: int | None = None


class Failed(Exception):
    """A benchmark did not finish, or its counts are wrong.  The text says why, for people."""


@define
class Deadline:
    """The time by which a row must be finished."""

    _at: float

    @classmethod
    def within(cls, seconds: float) -> Deadline:
        return cls(time.monotonic() + seconds)

    def left(self, what: str) -> float:
        """The seconds that are left.

        :param what: what the caller waits for, for the error.
        :raises Failed: the deadline has passed.
        """
        left = self._at - time.monotonic()
        if left <= 0:
            raise Failed(f"{what}: not within the row's time; --deadline gives it more")
        return left

    def polls(self, what: str, pause: float = 0.01) -> Iterator[None]:
        """Yield until the caller leaves the loop, with a pause in seconds after each time.

        :raises Failed: the deadline has passed.
        """
        while self.left(what):
            yield
            Event().wait(pause)


class Running:
    """A process that ends with its ``with`` block at the latest.

    :cvar start: starts a process as `subprocess.Popen` does, with the same parameters.
    """

    start: ClassVar[Callable[..., Any]] = staticmethod(subprocess.Popen)

    def __init__(self, arguments: list[str], **options: Any) -> None:
        self._process = self.start(arguments, **options)

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
        return int(self._process.pid)

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        """Kill the process, like a crash."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def end(self) -> None:
        """Terminate the process; kill it if it does not end."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()  # helpers end when their stdin is closed
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.kill()

    def cpu_seconds(self) -> float:
        """The CPU seconds that the process, its children and theirs have used, in all threads."""
        return sum(map(_cpu_seconds, self._processes()))

    def own_cpu_seconds(self) -> float:
        """The same without those that its children that run have used."""
        return _cpu_seconds(self.pid)

    def peak_megabytes(self) -> float:
        """The peak resident memory of the process, its children and theirs, in 10^6 bytes."""
        return sum(map(_peak_megabytes, self._processes()))

    def _processes(self) -> list[int]:
        return _with_children(self.pid)


def _with_children(pid: int) -> list[int]:
    """A process, its children and theirs: couriers are forked by a child of the broker."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    try:
        told = children.read_text(encoding="ascii").split()
    except (FileNotFoundError, ProcessLookupError):  # it has just ended
        told = []
    return [pid, *(each for child in told for each in _with_children(int(child)))]


def _cpu_seconds(pid: int) -> float:
    """The CPU seconds of a process, and of those of its children that have ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):  # a child that has just ended
        return 0.0
    fields = text.rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICKS


def _peak_megabytes(pid: int) -> float:
    """The peak of one process, without the part of what it shares now that others account for."""
    try:
        told = [
            line.split()
            for name in ("status", "smaps_rollup")
            for line in Path(f"/proc/{pid}/{name}").read_text(encoding="ascii").splitlines()
        ]
    except (FileNotFoundError, ProcessLookupError):
        raise Failed(f"process {pid} has ended") from None
    kilobytes = {words[0]: int(words[1]) for words in told if words[2:] == ["kB"]}
    if "VmHWM:" not in kilobytes:  # it has ended, and nobody has noticed yet
        raise Failed(f"process {pid} has ended")
    others = kilobytes["Rss:"] - kilobytes["Pss:"]
    return (kilobytes["VmHWM:"] - others) * 1024 / 1e6


#: A program that keeps a core busy and ends by itself.
_BUSY = "import time\nend = time.monotonic() + {seconds}\nwhile time.monotonic() < end: pass"


@contextlib.contextmanager
def busy_processes(number: int, seconds: float) -> Iterator[None]:
    """Run processes that keep a core busy each, while the context lasts.

    :param seconds: the processes end by themselves after this many seconds.
    """
    program = _BUSY.format(seconds=seconds)
    with contextlib.ExitStack() as stack:
        for _ in range(number):
            stack.enter_context(Running([sys.executable, "-c", program]))
        yield


class Helper(Running):
    """A module of this package as a process, which gets commands and answers them; see ``control``.

    :param module: the module's name.
    :param arguments: the arguments of the process.
    :ivar ready: the first answer of the process.
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
            self.ready = self.answer()
        except BaseException:
            self.end()
            raise

    @property
    def port(self) -> int:
        """The port on which the process listens."""
        return int(self.ready["port"])

    def ask(self, do: str, **arguments: Any) -> Message:
        """Send a command and return the answer.

        :raises Failed: the process ended, or did not answer in time.
        """
        self.begin(do, **arguments)
        return self.answer()

    def begin(self, do: str, **arguments: Any) -> None:
        """Send a command, whose answer the caller gets later."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            self._process.stdin.flush()

    def answer(self) -> Message:
        """The answer to the first command that has not been answered yet.

        :raises Failed: the process ended, or did not answer in time.
        """
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        selector = selectors.PollSelector()  # select() knows no descriptor above 1023
        selector.register(descriptor, selectors.EVENT_READ)
        while b"\n" not in self._unread:
            left = self._deadline.left(f"an answer of the {self._module}")
            if not selector.select(left):
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
    """Measures the time and the CPU time of a process from its start on."""

    process: Running
    began: float
    cpu_before: float

    @classmethod
    def start(cls, process: Running) -> Stopwatch:
        return cls(process, time.monotonic(), process.cpu_seconds())

    def rate(self, count: int, ended: float) -> Sample:
        """The rate per second of ``count`` things until ``ended`` (by ``time.monotonic``)."""
        return Sample(count / max(ended - self.began, 1e-9), self.cpu(), count)

    def cpu(self) -> float:
        """The CPU seconds since the start."""
        return self.process.cpu_seconds() - self.cpu_before


def answered(
    server: Running,
    port: int,
    count: int,
    deadline: Deadline,
    connections: int,
    sources: int,
    expected: str,
    **request: Any,
) -> tuple[Sample, Message]:
    """How many requests a second a server answers, over persistent connections.

    :param sources: from how many addresses they come; 0 for one of each connection.
    :param expected: a text that answers should contain.
    :param request: the path, the headers and the body, in which ``{n}`` is the number of a request;
        the method, if it is not POST, and the first number, if it is not 0.
    :returns: the answer of the load generator, too.
    """
    places = {"port": port, "connections": connections, "sources": sources or connections}
    with Helper("load", deadline, **places) as load:
        load.ask("build", **{"method": "POST", "first": 0, "count": count, **request})
        watch = Stopwatch.start(server)
        answer = load.ask("run", expected=expected, seconds=deadline.left(request["path"]))
        return watch.rate(count, answer["ended"]), answer


def raise_file_limit() -> int:
    """Raise the limit of open files as far as possible, for this process and its children.

    :returns: the limit.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else 1 << 20


def free_port() -> int:
    """A port of loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """The environment of this process without proxies, since all is on loopback, and ``extra``."""
    ours = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    return ours | dict(extra)
