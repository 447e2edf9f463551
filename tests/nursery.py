"""Starts processes of the broker without waiting for their imports: for tests only.

Each start of ``twistd`` or ``rsscloud-broker`` imports the same libraries, which takes longer than
all that most tests do with the process.  So the process of the tests starts another one, the
nursery, which imports them once and then waits on a socket.  `start` sends it a command line.  The
nursery forks, and the new process runs the script of that command as Python would: with its
arguments, environment, directory and descriptors, up to its exit status or the signal that ends
it.  The reactor is not among what was imported: each process installs its own.

The process is a child of the process of the tests, as if that had started it.  For that, the
nursery forks twice: the process in between ends at once, and Linux gives its child to the process
of the tests, which has asked for that with ``prctl(2)``.

``NURSERY=off`` in the environment starts every process by its command instead.  Tests of the start
itself always do that (``by_command``).  Commands with other arguments for Python than the nursery
has are no work for it either: see `can_start`.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final, TypeAlias

#: The scripts that are started.
_SCRIPTS: Final = ("twistd", "rsscloud-broker")

#: What the nursery imports, with all modules of the packages.
_MODULES: Final = (
    "rsscloud_broker.plugins.bundled",
    "rsscloud_broker.composition.server",
    "twisted.internet.epollreactor",  # which makes no reactor yet
    "twisted.scripts.twistd",
    "twisted.trial.itrial",  # twistd's plugins import it
)
_PACKAGES: Final = ("rsscloud_broker.apps", "rsscloud_broker.client", "rsscloud_broker.commands")

_BIN: Final = Path(sys.executable).parent

#: The option of ``prctl`` by which a process gets the orphans among its descendants.
_PR_SET_CHILD_SUBREAPER: Final = 36

#: The largest request in bytes, and how many descriptors come with it: those from 0 to 2.
_LARGEST: Final = 256 * 1024
_STANDARD: Final = 3


# Runs a command whose clock is ahead of the real one, so that hours go by
# without anybody waiting for them.
_AHEAD = """
import sys, time
from importlib.metadata import entry_points
real, ahead, name = time.time, float(sys.argv[1]), sys.argv[2]
time.time = lambda: real() + ahead
del sys.argv[1:3]
(script,) = entry_points(group="console_scripts", name=name)
sys.exit(script.load()())
"""


def command_line(name: str, *arguments: object, ahead: float = 0.0) -> list[str]:
    """How to run a command that is installed beside this Python.

    :param ahead: seconds by which its clock is ahead of the real one.
    """
    run = [sys.executable, "-c", _AHEAD, str(ahead), name] if ahead else [str(_BIN / name)]
    return [*run, *map(str, arguments)]


def start(
    arguments: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    stdin: int | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
    process_group: int | None = None,
    pass_fds: Sequence[int] = (),
    by_command: bool = False,
) -> Child:
    """Start a process, from the nursery if it can do that.

    :param arguments: its command line; the first one is the path of a program.
    :param env: its whole environment; that of this process by default.
    :param cwd: its working directory; that of this process by default.
    :param stdin: a descriptor, which stays open here too; by default it reads nothing.
    :param stdout: the same, for its standard output; by default that is lost.
    :param stderr: the same, for its errors; by default they go where its standard output goes.
    :param process_group: 0 to make it the leader of a group of its own.
    :param pass_fds: more descriptors, which it gets under the same numbers.
    :param by_command: not from the nursery, for tests of the start itself.
    """
    if by_command or pass_fds or not can_start(arguments, env):
        return subprocess.Popen(
            arguments,
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=subprocess.DEVNULL if stdout is None else stdout,
            stderr=subprocess.STDOUT if stderr is None else stderr,
            process_group=process_group,
            pass_fds=pass_fds,
        )
    wanted = {
        "arguments": _script(arguments),
        "env": dict(os.environ if env is None else env),
        "cwd": os.path.abspath(cwd or os.getcwd()),
        "process_group": process_group,
        "ahead": _ahead(arguments),
    }
    with open(os.devnull, "r+b", buffering=0) as nothing:
        read = nothing.fileno() if stdin is None else stdin
        written = nothing.fileno() if stdout is None else stdout
        nursery = _nursery(with_clock=bool(_ahead(arguments)))
        errors = written if stderr is None else stderr
        return Forked(nursery.fork(wanted, [read, written, errors]), arguments)


def run(
    arguments: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    stdin: str = "",
    by_command: bool = False,
    timeout: float,
) -> subprocess.CompletedProcess[str]:
    """Run a process to its end, as `start` starts it.

    :param stdin: what it reads.
    :param by_command: not from the nursery, for tests of the start itself.
    :param timeout: in seconds.
    :raises subprocess.TimeoutExpired: it has not ended by then; it is killed.
    """
    with TemporaryFile() as given, TemporaryFile() as out, TemporaryFile() as err:
        given.write(stdin.encode())
        given.seek(0)
        child = start(
            arguments,
            env=env,
            cwd=cwd,
            stdin=given.fileno(),
            stdout=out.fileno(),
            stderr=err.fileno(),
            by_command=by_command,
        )
        try:
            status = child.wait(timeout)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGKILL)
            child.wait()
            raise
        said = []
        for file in (out, err):
            file.seek(0)
            said.append(file.read().decode())
    return subprocess.CompletedProcess(list(arguments), status, *said)


def can_start(arguments: Sequence[str], env: Mapping[str, str] | None = None) -> bool:
    """Whether the nursery starts a process: the script of this environment, in Python as it is.

    :param env: its environment.  If Python itself would notice a difference, such as that of
        ``PYTHONPATH``, a new Python has to start.
    """
    return (
        os.environ.get("NURSERY") != "off"
        and sys.platform == "linux"
        and _script(arguments)[0] in {str(_BIN / name) for name in _SCRIPTS}
        and (env is None or _of_python(env) == _of_python(os.environ))
    )


def _ahead(arguments: Sequence[str]) -> float:
    """By how many seconds the clock of a `command_line` is ahead."""
    return float(arguments[3]) if arguments[2:3] == [_AHEAD] else 0.0


def _script(arguments: Sequence[str]) -> list[str]:
    """The same `command_line` for a clock that is not ahead."""
    if not _ahead(arguments):
        return list(arguments)
    return [str(_BIN / arguments[4]), *arguments[5:]]


def _of_python(env: Mapping[str, str]) -> dict[str, str]:
    names = ("LANG", "LC_", "PYTHON", "TZ")
    return {name: value for name, value in env.items() if name.startswith(names)}


class Forked:
    """A process from the nursery, which is a child of this one."""

    def __init__(self, pid: int, arguments: Sequence[str]) -> None:
        self.pid = pid
        self._arguments = arguments
        self._status: int | None = None
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Its exit status, or the number of the signal, negative; None if it runs."""
        return self._wait(os.WNOHANG)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        until = time.monotonic() + timeout if timeout is not None else None
        pause = threading.Event()
        while (status := self._wait(os.WNOHANG if until else 0)) is None:
            if until and time.monotonic() > until:
                raise subprocess.TimeoutExpired(list(self._arguments), timeout or 0)
            pause.wait(0.005)
        return status

    def send_signal(self, sig: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, sig)

    def _wait(self, options: int) -> int | None:
        with self._lock:
            if self._status is None:
                ended, status = os.waitpid(self.pid, options)
                if ended:
                    self._status = os.waitstatus_to_exitcode(status)
            return self._status


#: A process that was started.
Child: TypeAlias = subprocess.Popen[bytes] | Forked


class _Nursery:
    """The nursery, seen from the process of the tests.  It ends with that process.

    :param with_clock: whether the clocks of its processes may be ahead.
    """

    def __init__(self, *, with_clock: bool) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno()), *["ahead"] * with_clock],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        self._adopt = ctypes.CDLL(None).prctl
        self._one_at_a_time = threading.Lock()
        atexit.register(self.end)

    def fork(self, wanted: Mapping[str, Any], descriptors: Sequence[int]) -> int:
        """Have a process started; its number."""
        with self._one_at_a_time:
            # Only for this moment: what tests orphan themselves goes where it always goes.
            self._adopt(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            try:
                socket.send_fds(self._socket, [json.dumps(wanted).encode()], list(descriptors))
                answer = self._socket.recv(_LARGEST)
            finally:
                self._adopt(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        if not answer:
            raise AssertionError(f"the nursery ended: {self._process.wait()}")
        return int(answer)

    def end(self) -> None:
        """Have it end, and wait for that."""
        self._socket.close()
        self._process.wait()


@cache
def _nursery(*, with_clock: bool) -> _Nursery:
    """A nursery of this process, which is started when it is needed first.

    Modules keep the function ``time.time`` that they find when they are imported.  So there is
    another nursery for processes whose clock is ahead.
    """
    return _Nursery(with_clock=with_clock)


# --- in the nursery ---------------------------------------------------------


class _Clock:
    """The wall clock of a process.

    :ivar ahead: by how many seconds it is ahead of the real one.
    """

    def __init__(self) -> None:
        self.ahead = 0.0
        self._real = time.time

    def __call__(self) -> float:
        return self._real() + self.ahead


def _serve(tests: socket.socket) -> Sequence[str] | None:
    """Fork a process for each request.

    :returns: in such a process, its command line; None in the nursery itself, at its end.
    """
    while True:
        request, descriptors, _, _ = socket.recv_fds(tests, _LARGEST, _STANDARD)
        if not request:
            return None
        assert "twisted.internet.reactor" not in sys.modules, "a reactor cannot be shared"
        assert threading.active_count() == 1, "a thread does not survive a fork"
        reading, writing = os.pipe()
        between = os.fork()
        if not between:
            if child := os.fork():
                os.write(writing, str(child).encode())
                os._exit(0)
            os.close(reading)
            os.close(writing)
            tests.close()
            return _become(json.loads(request), descriptors)
        os.waitpid(between, 0)
        tests.send(os.read(reading, _LARGEST))
        for descriptor in (*descriptors, reading, writing):
            os.close(descriptor)


def _become(wanted: Mapping[str, Any], descriptors: Sequence[int]) -> Sequence[str]:
    """Make this process what was asked for, but for running it; its command line."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    if wanted["process_group"] is not None:
        os.setpgid(0, wanted["process_group"])
    os.chdir(wanted["cwd"])
    os.environ.clear()
    os.environ.update(wanted["env"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.enable()
    if isinstance(time.time, _Clock):
        time.time.ahead = wanted["ahead"]
    arguments: list[str] = wanted["arguments"]
    sys.argv[:] = arguments
    sys.path[0] = str(_BIN)
    return arguments


def _main(descriptor: int, *, with_clock: bool) -> None:
    if with_clock:
        time.time = _Clock()  # before anybody imports it
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests, which end this process
    gc.disable()
    sys.path[0] = str(_BIN)  # no longer the directory of the tests
    for name in _MODULES:
        import_module(name)
    for name in _PACKAGES:
        package = import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            if ".migrations" not in module.name:
                import_module(module.name)
    gc.freeze()
    tests = socket.socket(fileno=descriptor)
    if arguments := _serve(tests):
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    _main(int(sys.argv[1]), with_clock=sys.argv[2:] == ["ahead"])
