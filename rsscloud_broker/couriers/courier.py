"""One courier, as the broker sees it: a process that is started, watched, and replaced.

A courier is replaced if it has died, gives no sign of life, or uses too much memory.  The requests
that it had under way fail with ``Unavailable``: whoever made them tries again, since nobody knows
whether they arrived.
"""

from __future__ import annotations

import os
import socket
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessExitedAlready
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import Factory, ProcessProtocol
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

import rsscloud_broker
from rsscloud_broker import errors
from rsscloud_broker.couriers.link import Link
from rsscloud_broker.couriers.messages import (
    Alive,
    Answered,
    Beat,
    Body,
    Call,
    Cancel,
    Failed,
    FeedRead,
    Forget,
    FromBroker,
    FromCourier,
    Read,
    ReadDone,
    Said,
    Unread,
)
from rsscloud_broker.couriers.reading import Facts
from rsscloud_broker.errors import OutboundError, Unavailable
from rsscloud_broker.interfaces import IClock, OutboundReply

#: Seconds between two questions whether a courier is alive, and how long it may give no sign.
BEAT: Final = 1.0
SILENT: Final = 5.0

#: Seconds until a new process must have given its first sign: on a busy machine it takes long to
#: load its modules.
STARTING: Final = 60.0

#: Megabytes that a courier may use before it is replaced.
MEMORY: Final = 512

#: Seconds until a courier is started again that ended soon after its start; they double each time.
#: A courier that has run for so many seconds is started again at once.
FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 5.0
RAN_WELL: Final = 10.0

#: A body of so many bytes crosses once for all requests that have it.
LARGE: Final = 1024
#: How many large bodies a courier keeps, and how many bytes they may have together.
KEPT: Final = 100
KEPT_BYTES: Final = 32 * 1024 * 1024

#: What a courier needs of the operator's environment: where its time zone, certificates and
#: libraries are.
_ENVIRONMENT: Final = ("LANG", "LD_LIBRARY_PATH", "PATH", "SSL_CERT_DIR", "SSL_CERT_FILE", "TZ")

_ERRORS: Final[Mapping[str, type[OutboundError]]] = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, OutboundError)
}


#: What a courier runs.
PROGRAM: Final = "rsscloud_broker.courier_process"


class CourierEnded(Unavailable):
    """A courier has ended, by itself or because it was replaced, while it worked on a request."""


class Courier:
    """A place for one courier: at any time it has one process, or is about to start one.

    :param number: tells it from the others, in the log.
    :param greeting: gives the messages that every new process gets first.
    :param program: the module that the process runs.
    :param more_memory: how many megabytes it may use beside ``MEMORY``.
    :ivar idle, idle_topics: how many connections it keeps open for further requests and for
        further readings, as it said lately.
    :ivar readings: how many topics it is reading.
    """

    log = Logger()

    def __init__(
        self,
        number: int,
        reactor: Any,
        clock: IClock,
        greeting: Callable[[], Sequence[FromBroker]],
        program: str = PROGRAM,
        more_memory: Callable[[], int] = lambda: 0,
    ) -> None:
        self.number = number
        self._program = program
        self._more_memory = more_memory
        self._reactor = reactor
        self._clock = clock
        self._greeting = greeting
        self._last = 0
        self._waiting: dict[int, Deferred[Any]] = {}
        self._facts: dict[int, Deferred[Facts]] = {}
        self._bodies: OrderedDict[int, tuple[int, bytes]] = OrderedDict()
        self._body_bytes = 0
        self._link: Link[FromBroker, FromCourier] | None = None
        self._process: Any = None
        self._ended: Deferred[None] | None = None
        self._pause = FIRST_PAUSE
        self._again: IDelayedCall | None = None
        self._started_at = self._heard_at = 0.0
        self._beating = LoopingCall(self._beat)
        self._beating.clock = clock
        self._is_stopping = self._has_spoken = False
        self.idle = self.idle_topics = self.readings = 0

    # --- requests

    @property
    def under_way(self) -> int:
        """How many requests it has, or will have when it has started."""
        return len(self._waiting) - self.readings

    async def request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, redirects: int
    ) -> OutboundReply:
        """See ``IOutbound.request``."""
        link = await self._ready()
        sent = body if len(body) < LARGE else self._crossed(link, body)
        reply: OutboundReply = await self._ask(
            link, lambda number: Call(number, method, url, dict(headers), sent, redirects)
        )
        return reply

    async def read(
        self, make: Callable[[int], Read]
    ) -> tuple[ReadDone | Unread, Deferred[Facts] | None]:
        """Have a topic read.

        :param make: makes the message with a number.
        :returns: what was found; and what brings the facts of the feed, if they follow.
        :raises CourierEnded: the courier ended meanwhile, also where the facts are awaited.
        :raises Unavailable: there is no courier just now.
        """
        self.readings += 1
        try:
            link = await self._ready()
            done: ReadDone | Unread = await self._ask(link, make)
            return done, self._facts.get(done.number)
        finally:
            self.readings -= 1

    async def _ready(self) -> Link[FromBroker, FromCourier]:
        """The connection to the process, when there is room for a request."""
        link = self._link
        if link is None:
            raise Unavailable("the process that makes requests is being started again")
        if link.is_full:
            await link.until_there_is_room()
            if link is not self._link:
                raise Unavailable("the process that makes requests has ended")
        return link

    def _ask(
        self, link: Link[FromBroker, FromCourier], make: Callable[[int], FromBroker]
    ) -> Deferred[Any]:
        self._last = number = self._last + 1
        answer: Deferred[Any] = Deferred(lambda _: self._cancel(number))
        self._waiting[number] = answer
        link.send(make(number))
        return answer

    def _cancel(self, number: int) -> None:
        if self._waiting.pop(number, None) is not None:
            self.send(Cancel(number))

    def send(self, message: FromBroker) -> None:
        """Send a message, if there is a process; a new one gets the greeting."""
        if self._link is not None:
            self._link.send(message)

    def _crossed(self, link: Link[FromBroker, FromCourier], body: bytes) -> int:
        """The number of a body that the courier has; it is sent if it has it not."""
        # The same content is the same object for all subscribers of a walk.  While it is kept
        # here, no other object can get its id.
        if kept := self._bodies.get(id(body)):
            self._bodies.move_to_end(id(body))
            return kept[0]
        self._last = number = self._last + 1
        self._bodies[id(body)] = number, body
        self._body_bytes += len(body)
        link.send(Body(number, body), len(body))
        while len(self._bodies) > 1 and (len(self._bodies) > KEPT or self._body_bytes > KEPT_BYTES):
            _, (oldest, data) = self._bodies.popitem(last=False)
            self._body_bytes -= len(data)
            link.send(Forget(oldest))
        return number

    def _unsendable(self, message: FromBroker, why: str) -> None:
        if isinstance(message, Call | Read) and (answer := self._waiting.pop(message.number, None)):
            answer.errback(OutboundError(f"the request is faulty: {why}"))

    def _take(self, batch: Sequence[FromCourier]) -> None:
        self._heard_at, self._has_spoken = self._clock.seconds(), True
        for message in batch:
            match message:
                case Alive():
                    self.idle, self.idle_topics = message.idle, message.idle_topics
                case Said():
                    self.log.warn("Courier {number}: {said}", number=self.number, said=message.text)
                case FeedRead():
                    if facts := self._facts.pop(message.number, None):
                        facts.callback(message.facts)
                case _:
                    if answer := self._waiting.pop(message.number, None):
                        self._settle(answer, message)

    def _settle(
        self, answer: Deferred[Any], message: Answered | ReadDone | Unread | Failed
    ) -> None:
        match message:
            case Answered():
                answer.callback(
                    OutboundReply(
                        message.status,
                        message.headers,
                        message.body,
                        message.url,
                        tuple(message.hops),
                    )
                )
            case Failed():
                answer.errback(_error(message))
            case _:
                if isinstance(message, ReadDone) and message.inspected:
                    self._facts[message.number] = Deferred()
                answer.callback(message)

    # --- the process

    def start(self) -> None:
        """Start a process; if the system has no room for one, try again later."""
        self._again = None
        try:
            self._start()
        except OSError as error:
            seconds = self._next_pause(0.0)
            self.log.error(
                "Courier {number} cannot be started: {error}; this is tried again in {seconds} s.",
                number=self.number,
                error=error,
                seconds=seconds,
            )
            self._again = self._clock.callLater(seconds, self.start)

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            self._process = self._reactor.spawnProcess(
                _Watch(self._exited),
                sys.executable,
                [sys.executable, "-m", self._program, str(_DESCRIPTOR)],
                env=_environment(),
                path="/",
                childFDs={0: _null(), 1: 2, 2: 2, _DESCRIPTOR: theirs.fileno()},
            )
            self._ended = Deferred()
            self._link = link = Link[FromBroker, FromCourier](
                self._reactor, FromCourier, self._take, self._unlinked, self._unsendable
            )
            for message in self._greeting():
                link.send(message)
            ours.setblocking(False)
            self._reactor.adoptStreamConnection(
                ours.fileno(), socket.AF_UNIX, Factory.forProtocol(lambda: link)
            )
        self._started_at = self._heard_at = self._clock.seconds()
        self._has_spoken = False
        self._beating.start(BEAT, now=False)

    def _next_pause(self, lived: float) -> float:
        """Seconds until the next start, after a process that lived for so many."""
        if lived > RAN_WELL:
            self._pause = FIRST_PAUSE
            return 0.0
        seconds, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE)
        return seconds

    async def stop(self) -> None:
        """End the process, and wait until it has ended."""
        self._is_stopping = True
        if self._again is not None:
            self._again.cancel()
            self._again = None
        link, self._link = self._link, None
        if link is not None:
            link.abort("")
        self._give_up()
        if self._ended is not None:
            self.kill()  # nobody waits for it any more, and it has nothing to store
            await self._ended

    def kill(self) -> None:
        """End the process at once."""
        with suppress(ProcessExitedAlready):
            self._process.signalProcess("KILL")

    def _beat(self) -> None:
        silent = self._clock.seconds() - self._heard_at
        used = _megabytes(self._process.pid)
        if silent > (SILENT if self._has_spoken else STARTING):
            self._replace(f"gave no sign of life for {silent:.0f} seconds")
        elif used > (most := MEMORY + self._more_memory()):
            self._replace(f"uses {used} MB of memory; {most} are the most")
        else:
            self.send(Beat())

    def _replace(self, why: str) -> None:
        self.log.error(
            "Courier {number} {why}: it is replaced, and the {count} requests that it had under "
            "way are put off.",
            number=self.number,
            why=why,
            count=len(self._waiting),
        )
        self.kill()

    def _unlinked(self, why: str) -> None:
        """The connection has ended, so the process ends too, or is made to."""
        self._link = None
        if not self._is_stopping:
            if why:
                self._replace(why)
            else:
                self.kill()

    def _exited(self, reason: str) -> None:
        lived = self._clock.seconds() - self._started_at
        ended, self._ended = self._ended, None
        link, self._link = self._link, None
        count = len(self._waiting)
        if link is not None:
            link.abort("")
        self._give_up()
        self._beating.stop()
        self.idle = self.idle_topics = 0
        if ended is not None:
            ended.callback(None)
        if self._is_stopping:
            return
        seconds = self._next_pause(lived)
        self.log.error(
            "Courier {number} has ended ({reason}); another one is started in {seconds} s. The "
            "{count} requests that it had under way are put off.",
            number=self.number,
            reason=reason,
            seconds=seconds,
            count=count,
        )
        self._again = self._clock.callLater(seconds, self.start)

    def _give_up(self) -> None:
        """Have all requests fail that are under way."""
        self._bodies.clear()
        self._body_bytes = 0
        waiting = [*self._waiting.values(), *self._facts.values()]
        self._waiting, self._facts = {}, {}
        was_at_work = self._has_spoken and not self._is_stopping
        kind = CourierEnded if was_at_work else Unavailable
        for answer in waiting:
            answer.errback(kind("the process that made the request has ended"))


#: The descriptor that a courier gets its end of the connection as.
_DESCRIPTOR: Final = 3


class _Watch(ProcessProtocol):
    """Says when the process has ended."""

    def __init__(self, exited: Callable[[str], object]) -> None:
        self._exited = exited

    def processEnded(self, reason: Failure) -> None:
        self._exited(reason.getErrorMessage())


def _error(message: Failed) -> Exception:
    kind = _ERRORS.get(message.kind)
    if kind is None:
        return Unavailable(message.reason)
    return kind(message.reason, port_only=message.port_only)


def _environment() -> dict[str, str]:
    """The environment of a courier: what it needs to run, and nothing of the operator's else."""
    kept = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    return {**kept, "PYTHONPATH": str(Path(rsscloud_broker.__file__).parent.parent)}


def _null() -> int:
    """A descriptor of ``/dev/null``; it stays open as long as this process."""
    if not _nulls:
        _nulls.append(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))
    return _nulls[0]


_nulls: list[int] = []


def _megabytes(process: int | None) -> int:
    """The memory that a process uses; 0 if the system does not say so."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") // 2**20
