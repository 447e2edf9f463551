"""A crew with real processes, and what it calls: a real server on loopback."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from rsscloud_broker.errors import Interrupted, Unavailable
from rsscloud_broker.interfaces import OutboundReply, OutboundRequest
from rsscloud_broker.outbound.couriers import spawning
from rsscloud_broker.outbound.couriers.courier import Courier
from rsscloud_broker.outbound.couriers.crew import Crew
from rsscloud_broker.outbound.couriers.fork_server import COURIER as ORDER
from rsscloud_broker.outbound.couriers.fork_server import Forked, ForkServer
from rsscloud_broker.outbound.couriers.link import Link
from rsscloud_broker.outbound.couriers.messages import Setup, TopicRules
from rsscloud_broker.outbound.couriers.spawning import COMMAND, Limits, StandardError
from rsscloud_broker.testing import Clock
from tests.outbound.servers import Pages, page, serve, silence

OWN_PORT = 5337

#: What one courier runs that no server has forked.
COURIER = (
    *COMMAND[:2],
    "-c",
    "import sys; from rsscloud_broker.composition import courier; "
    "courier.become_courier(int(sys.argv[1]))",
)

LIMITS = Limits()

REACTOR: Any = reactor


async def until(condition: Callable[[], object]) -> None:
    """Let the reactor run until a condition holds."""
    while not condition():
        await deferLater(REACTOR, 0.01)


def stat_of(pid: int) -> list[str]:
    """What proc(5) says of a process, from its state on: ``/proc/PID/stat``."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()


def parent_of(pid: int) -> int:
    return int(stat_of(pid)[1])


def privately(pid: int) -> int:
    """How many kilobytes of memory a process has for itself."""
    told = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return sum(int(line.split()[1]) for line in told if line.startswith("Private"))


class LastingForkServer(ForkServer):
    """A fork server that lasts for the next crew: it takes long to load the program."""

    def spawn(
        self, descriptor: int, exited: Callable[[str], object], order: bytes = ORDER
    ) -> tuple[Forked, StandardError]:
        if self._socket is not None:
            REACTOR.addReader(self)
        return super().spawn(descriptor, exited, order)

    def stopService(self) -> Deferred[None]:
        if not self._started:  # no other crew has a courier
            REACTOR.removeReader(self)  # for trial wants nothing left in the reactor
        return succeed(None)


@cache
def lasting_fork_server(reactor: Any, command: Sequence[str]) -> ForkServer:
    """The fork server of all crews with a command.  It ends with the process of the tests."""
    return LastingForkServer(reactor, command)


class CrewTestCase(TestCase):
    """A crew of one courier whose timers the test moves, and a callback.

    :cvar command: what the courier runs.
    :cvar allowed: the networks that callbacks may be in, beside public ones.
    :cvar rules: how topics are read.
    :cvar fork_server: makes the fork server of a crew.
    """

    command: Sequence[str] = COMMAND
    allowed: Sequence[str] = ("127.0.0.0/8",)
    rules = TopicRules()
    fork_server: Callable[..., ForkServer] = staticmethod(lasting_fork_server)

    def setUp(self) -> None:
        self.clock = Clock()
        answers = {"/slow": silence, "/away": page(302, location="/here")}
        self.callback = Pages(answers, page(202, b"\xff\0 body", x_seen="1"))
        self.url = f"http://127.0.0.1:{serve(self, self.callback)}"
        self.crew = self.made()
        (self.courier,) = self.crew.couriers

    def made(self, processes: int = 1) -> Crew:
        """A crew that has started, and stops with the test."""
        setup = Setup("tests/1.0", [], [("127.0.0.1", OWN_PORT)], 15.0, 65_536)
        self.forks = self.fork_server(REACTOR, self.command)
        self.addCleanup(self.forks.stopService)
        crew = Crew(REACTOR, self.clock, self.forks, processes, setup, self.allowed, self.rules)
        crew.startService()
        self.addCleanup(lambda: crew.running and crew.stopService())
        return crew

    def request(self, path: str = "/", **more: Any) -> Deferred[OutboundReply]:
        return Deferred.fromCoroutine(
            self.crew.request(OutboundRequest(more.pop("method", "GET"), self.url + path, **more))
        )

    def watch_sent(self) -> list[Any]:
        """The messages that the courier gets from now on."""
        sent: list[Any] = []
        link = self.courier._link
        assert link is not None
        original = link.send

        def send(message: Any, size: int = 0) -> None:
            sent.append(message)
            original(message, size)

        link.send = send  # type: ignore[method-assign]
        return sent

    async def full_link(self) -> Link[Any, Any]:
        """The connection with a courier that has started and reads no more."""
        await self.request()
        link = self.courier._link
        assert link is not None
        link.pauseProducing()
        return link

    async def until_restarted(self) -> None:
        """Let the pause pass, and wait until the new process answers."""
        replies: list[OutboundReply] = []
        while not replies:
            answer = self.request()
            answer.addCallbacks(
                replies.append, lambda failure: failure.trap(Unavailable, Interrupted)
            )
            while not answer.called:
                if self.courier._link is None:
                    self.clock.advance(0.1)
                await deferLater(REACTOR, 0.01)

    async def pid(self) -> int:
        """The number of the courier's process, which has started then, and has loaded nothing."""
        await until(lambda: self.courier._process.pid is not None)
        return int(self.courier._process.pid)

    async def until_ended(self, courier: Courier | None = None) -> None:
        """Wait until a process has ended and the next one waits for its start.

        :param courier: by default the first one of the crew.
        """
        await until(lambda: (courier or self.courier)._next_start is not None)


class StrangeProgramTestCase(CrewTestCase):
    """A crew whose courier runs something else than a courier does.

    :cvar beginning: what each program does first: ``s`` is its end of the connection.
    """

    beginning = "import os, sys, time; from socket import *; s = socket(fileno=int(sys.argv[1]));"

    def setUp(self) -> None:
        super().setUp()
        # The crew has started its own one.
        ours = self.courier
        self.addCleanup(lambda: Deferred.fromCoroutine(ours.stop()))

    def with_program(self, program: str) -> Courier:
        """A courier that runs a program, instead of the only one of the crew."""
        return self.with_command(sys.executable, "-c", f"{self.beginning} {program}")

    def with_command(self, *command: str) -> Courier:
        """A courier with a command line, instead of the only one of the crew."""
        spawn = partial(spawning.spawn, REACTOR, command)
        courier = Courier(0, REACTOR, self.clock, list, spawn, self.crew._limits)
        self.crew.couriers[:] = [self.courier] = [courier]
        self.addCleanup(lambda: Deferred.fromCoroutine(courier.stop()))
        return courier
