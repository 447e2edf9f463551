"""Starts couriers quickly: one process loads their program, and each of them is a copy of it.

A courier needs half as long as the broker to load its program.  So the broker starts one process
that does nothing but to load it, and to fork a courier or a parser for each pair of descriptors
that it is sent: that process's end of the connection, and its standard error (sendmsg(2),
SCM_RIGHTS).  They share the memory of what was loaded, and one that has ended is replaced at once.

The fork server reads nothing but what the broker sends.  It tells the broker of each process: its
number when it starts, and how it has ended.  It ends with the broker, and couriers end with it.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from select import select
from typing import Any, Final

from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ProcessExitedAlready
from twisted.internet.interfaces import IReadDescriptor
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from rsscloud_broker.outbound.couriers import confinement
from rsscloud_broker.outbound.couriers.spawning import COMMAND, ServerEnded, StandardError, spawn

#: What the broker orders.
COURIER: Final = b"c"
PARSER: Final = b"p"

#: What the server tells of a process: its number, and how it has ended as os.waitstatus_to_exitcode
#: says it, or that it has started.  Without a number: the error for which none could be started.
_NOTICE: Final = struct.Struct("!Ii")
_STARTED: Final = 1000

#: How many bytes the broker reads at a time.
_AT_A_TIME: Final = _NOTICE.size * 512


class Forked:
    """A process that the server forks, or will when it has loaded the program.

    :ivar pid: its number; None until it has started.
    :ivar exited: is called with the reason when it has ended.
    :ivar is_unwanted: whether it is to end as soon as it starts.
    """

    def __init__(self, exited: Callable[[str], object], server: ForkServer) -> None:
        self.pid: int | None = None
        self.exited = exited
        self.is_unwanted = False
        self._server = server

    def signalProcess(self, name: str) -> None:
        """End the process, as ``IProcessTransport`` does; the only signal is KILL."""
        self._server.end(self)


@implementer(IReadDescriptor)
class ForkServer(Service):
    """The broker's side of the server, which is started with the first courier or parser.

    :param command: its command line, without the number of its descriptor.
    """

    name = "fork server"
    log = Logger()

    def __init__(self, reactor: Any, command: Sequence[str] = COMMAND) -> None:
        self._reactor = reactor
        self._command = command
        self._process: Any = None
        self._socket: socket.socket | None = None
        self._standard_error: StandardError
        self._received = b""
        self._asked: deque[Forked] = deque()  # those that have not started yet, in order
        self._started: dict[int, Forked] = {}  # those that run, by their numbers
        self._waiting: list[Deferred[None]] = []  # who waits for the end of the server

    def spawn(
        self, descriptor: int, exited: Callable[[str], object], order: bytes = COURIER
    ) -> tuple[Forked, StandardError]:
        """Have the server fork a process; the server is started first if need be.

        The other parameters and what is returned are those of ``spawning.spawn``.

        :param order: ``COURIER`` or ``PARSER``.
        """
        if self._socket is None and self._process is not None:
            raise OSError("the process that starts couriers ends")
        standard_error = StandardError()
        try:
            server = self._socket or self._start()
            socket.send_fds(server, [order], [descriptor, standard_error.theirs])
        except BaseException:
            standard_error.close()
            raise
        finally:
            standard_error.close_theirs()
        forked = Forked(partial(self._reactor.callLater, 0, exited), self)
        self._asked.append(forked)
        return forked, standard_error

    def end(self, forked: Forked) -> None:
        """End a process at once, or as soon as it starts.

        If it has not started when this is called again, or if the server has forked nothing else,
        the server ends.

        :raises ProcessExitedAlready: it has ended.
        """
        self.doRead()  # if it has ended, its number may be that of another process by now
        if forked in self._asked:
            if forked.is_unwanted or not self._started:
                self._kill()
            forked.is_unwanted = True
        elif forked.pid is None or self._started.get(forked.pid) is not forked:
            raise ProcessExitedAlready
        else:
            with suppress(ProcessLookupError):
                os.kill(forked.pid, signal.SIGKILL)

    def stopService(self) -> Deferred[None]:
        """End the server, and wait until it has ended."""
        super().stopService()
        if self._process is None:
            return succeed(None)
        gone: Deferred[None] = Deferred()
        self._waiting.append(gone)
        self._kill()
        return gone

    def _kill(self) -> None:
        with suppress(ProcessExitedAlready):
            if self._process is not None:
                self._process.signalProcess("KILL")

    def _start(self) -> socket.socket:
        """Start the server, and return the broker's end of the connection to it."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process, self._standard_error = spawn(
                    self._reactor, self._command, theirs.fileno(), self._handle_end
                )
            except BaseException:
                ours.close()
                raise
        ours.setblocking(False)
        self._socket, self._received = ours, b""
        self._reactor.addReader(self)
        return ours

    def _handle_end(self, reason: str) -> None:
        """After the end of the server, clean up; the kernel ends what the server has forked."""
        self.doRead()
        self._close()
        for line in self._standard_error.lines():
            self.log.warn("The process that starts couriers: {line}", line=line)
        self._standard_error.close()
        self._process = None
        left, self._asked, self._started = [*self._started.values(), *self._asked], deque(), {}
        for forked in left:
            forked.exited(ServerEnded(f"the process that starts couriers has ended: {reason}"))
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.callback(None)

    def _close(self) -> None:
        """Close the broker's end of the connection to the server, if it is open."""
        if self._socket is not None:
            self._reactor.removeReader(self)
            self._socket.close()
            self._socket = None

    # --- what the reactor calls

    def fileno(self) -> int:
        return -1 if self._socket is None else self._socket.fileno()

    def logPrefix(self) -> str:
        return "couriers"

    def connectionLost(self, reason: Failure) -> None:
        self._close()

    def doRead(self) -> None:
        """Read what the server tells of its processes."""
        if self._socket is None:
            return
        try:
            data = self._socket.recv(_AT_A_TIME)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:  # it ends
            self._close()
            self._kill()
            return
        self._received += data
        whole = len(self._received) // _NOTICE.size * _NOTICE.size
        notices, self._received = self._received[:whole], self._received[whole:]
        for pid, outcome in _NOTICE.iter_unpack(notices):
            if not pid:
                self._asked.popleft().exited(f"it cannot be started: {os.strerror(outcome)}")
            elif outcome == _STARTED:
                forked = self._asked.popleft()
                forked.pid = pid
                self._started[pid] = forked
            elif pid in self._started:
                self._started.pop(pid).exited(_in_words(outcome))
        self._kill_unwanted()

    def _kill_unwanted(self) -> None:
        """Kill the processes that the broker has ended before they had started."""
        for pid, forked in self._started.items():
            if forked.is_unwanted:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _in_words(status: int) -> str:
    """How a process has ended, in words."""
    return f"signal {-status}" if status < 0 else f"exit status {status}"


# --- the server's side


def serve(descriptor: int) -> tuple[bytes, int] | None:
    """Fork a process for each pair of descriptors that the broker sends.

    :param descriptor: the connection to the broker.
    :returns: in a forked process, the order and its own descriptor; None in the server, when the
        broker has no more need of it.
    """
    server = os.getpid()
    confinement.end_with_parent(os.getppid())
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    os.set_blocking(reading, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)  # wakes ``select`` when a child ends
    gc.freeze()  # else collections of its children would write to all that they share
    with socket.socket(fileno=descriptor) as broker:
        broker.setblocking(True)
        while True:
            ready, _, _ = select([broker.fileno(), reading], [], [])
            if reading in ready:
                os.read(reading, 1024)
                for pid, status in _ended_children():
                    broker.sendall(_NOTICE.pack(pid, status))
            if broker.fileno() in ready:
                order, descriptors, _, _ = socket.recv_fds(broker, 1, 2)
                if not order:
                    return None
                try:
                    child, outcome = os.fork(), _STARTED
                except OSError as error:
                    child, outcome = 0, error.errno or 0
                if not child and outcome == _STARTED:
                    confinement.end_with_parent(server)
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    os.close(reading)
                    os.close(writing)
                    connection, standard_error = descriptors
                    os.dup2(standard_error, 2)
                    os.close(standard_error)
                    return order, connection
                broker.sendall(_NOTICE.pack(child, outcome))
                for each in descriptors:
                    os.close(each)


def _ended_children() -> list[tuple[int, int]]:
    """The children of this process that have ended: the number and exit status of each."""
    ended = []
    with suppress(ChildProcessError):  # there are no more
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended.append((found[0], os.waitstatus_to_exitcode(found[1])))
    return ended
