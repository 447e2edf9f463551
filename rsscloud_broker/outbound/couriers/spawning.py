"""Starts the process that forks couriers, with nothing of the broker's but a connection to it."""

from __future__ import annotations

import os
import signal
import site
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

from attrs import frozen
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

import rsscloud_broker
from rsscloud_broker.outbound.couriers.link import LONGEST

#: How many bytes are read at a time; as many as a pipe holds on Linux.
_AT_A_TIME: Final = 64 * 1024

#: How many of the lines that were read at a time are logged.  What crashed is in the first ones,
#: and which exception was not caught in the last ones.
_FIRST: Final = 3
_LAST: Final = 5


class StandardError:
    """What a process writes to its standard error: last words, and what C code prints.

    The process gets one end of a pipe, and nothing of the broker's.  The broker does not wait for
    what comes; it looks once in a beat, and when the process has ended.  So a flood costs it one
    look.  The pipe keeps no writer waiting either: what does not fit is lost.  A courier must not
    hang because the broker stands still.

    :ivar theirs: the descriptor for the process; call ``close_theirs`` when it has started.
    :raises OSError: the system has no descriptor left.
    """

    def __init__(self) -> None:
        self._ours, self.theirs = os.pipe()
        os.set_blocking(self._ours, False)
        os.set_blocking(self.theirs, False)

    def close_theirs(self) -> None:
        """Close the end of the process, which has its own copy or never will."""
        os.close(self.theirs)

    def lines(self) -> list[str]:
        """Take what was written since the last time: at most nine lines, of 64 KiB."""
        data = b""
        with suppress(OSError):  # there is nothing
            data = os.read(self._ours, _AT_A_TIME)
        lines = [line for line in data.decode("utf-8", "replace").splitlines() if line.strip()]
        if len(lines) > _FIRST + _LAST + 1:
            lines[_FIRST:-_LAST] = [f"({len(lines) - _FIRST - _LAST} lines are left out)"]
        return lines

    def close(self) -> None:
        """Read no more; the process has ended."""
        os.close(self._ours)


#: Starts a process with its end of a connection, and calls a function with the reason when it has
#: ended: see ``spawn``.
Spawn: TypeAlias = Callable[[int, Callable[[str], object]], tuple[Any, StandardError]]

#: What starts couriers.  ``-P`` keeps Python from looking for modules in the working directory.
COMMAND: Final = (sys.executable, "-P", "-m", "rsscloud_broker.composition.courier")


class ServerEnded(str):
    """Why a process has ended, if that was the end of the process which had forked it."""


#: The descriptor that the process gets its end of the connection as.
_DESCRIPTOR: Final = 3

#: What a courier needs of the operator's environment: where its time zone, certificates and
#: libraries are.
_ENVIRONMENT: Final = (
    *("LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "SSL_CERT_DIR", "SSL_CERT_FILE", "TZ"),
)


#: Which of these are the names of files and directories.
_PATHS: Final = frozenset({"SSL_CERT_DIR", "SSL_CERT_FILE"})

#: Signals to the group of processes, such as that of Ctrl-C, are for the broker alone.  A courier
#: goes on, since the broker may still wait for outcomes.
_FOR_THE_BROKER: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


def spawn(
    reactor: Any, command: Sequence[str], descriptor: int, exited: Callable[[str], object]
) -> tuple[Any, StandardError]:
    """Start a process.

    :param command: its command line, but for the last argument, the number of its descriptor.
    :param descriptor: its end of the connection.
    :param exited: is called with the reason when it has ended, and not before this has returned.
    :returns: an ``IProcessTransport``, and what the process writes to its standard error.
    :raises OSError: the system has no room for a process.
    """
    standard_error = StandardError()
    # A process keeps the mask of signals of the one that starts it, so there is no moment in which
    # they can end it.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _FOR_THE_BROKER)
    try:
        # Without a path Twisted need not fork, which takes long for a broker with much memory.
        # Without pipes of its own it notices the end of the process at once, also if that has
        # left a process of its own behind that keeps them open.
        process = reactor.spawnProcess(
            _ExitWatch(reactor, exited),
            command[0],
            [*command, str(_DESCRIPTOR)],
            env=_environment(),
            childFDs={
                0: _null_descriptor(),
                1: _null_descriptor(),
                2: standard_error.theirs,
                _DESCRIPTOR: descriptor,
            },
        )
    except BaseException:
        standard_error.close()
        raise
    finally:
        standard_error.close_theirs()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return process, standard_error


class _ExitWatch(ProcessProtocol):
    """Calls a function with the reason when the process has ended."""

    def __init__(self, reactor: Any, exited: Callable[[str], object]) -> None:
        self._reactor = reactor
        self._exited = exited

    def processEnded(self, reason: Failure) -> None:
        # A process may end so soon that Twisted says so while it is still starting it.
        self._reactor.callLater(0, self._exited, reason.getErrorMessage())


def _environment() -> dict[str, str]:
    """The environment of a courier: the variables that it needs to run, and no others."""
    kept = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    for name in _PATHS & kept.keys():  # a courier runs in the directory ``/``
        paths = kept[name].split(os.pathsep)
        kept[name] = os.pathsep.join(path and os.path.abspath(path) for path in paths)
    package = Path(rsscloud_broker.__file__).parent.parent
    if str(package) in site.getsitepackages():
        return kept  # Python finds it; PYTHONPATH would put it before the standard library
    return {**kept, "PYTHONPATH": str(package)}


def _null_descriptor() -> int:
    """A descriptor of ``/dev/null``; it stays open as long as this process."""
    if not _nulls:
        _nulls.append(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))
    return _nulls[0]


_nulls: list[int] = []


@frozen
class Limits:
    """When a courier is replaced.

    :ivar first_sign: seconds that a new process has until its first sign of life.  It loads the
        program first, which takes long while the machine is busy.
    :ivar silent: seconds for which it may give none after that.
    :ivar megabytes: how much memory it may use.
    :ivar answer: seconds that it has for the answer to a request.
    :ivar frame: how many bytes a frame that it sends may have.
    """

    first_sign: float = 60.0
    silent: float = 5.0
    megabytes: int = 512
    answer: float = 60.0
    frame: int = LONGEST


def megabytes(process: int | None) -> int:
    """The memory that a process uses; 0 if the system does not say so."""
    try:
        # The second number is of the pages that are really in memory.
        pages = int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") // 2**20
