"""One courier, as the broker sees it: a process that is started, watched, and replaced.

A courier is replaced if it has died, gives no sign of life, or uses too much memory.  The requests
that it had under way fail with ``Interrupted``, since one of them may be why, and nobody knows
whether they arrived: each counts as an attempt that failed.  If it gave no sign of life, time has
passed already: the next process gets them at once; what ends that one too fails.  If it has said
why it ends, or the broker stops, they fail with ``CallsUnavailable``, and no attempt counts.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from attrs import evolve
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ProcessExitedAlready
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import Factory
from twisted.logger import Logger

from rsscloud_broker.errors import CallsUnavailable, Interrupted, OutboundError
from rsscloud_broker.interfaces import IClock, OutboundReply, OutboundRequest
from rsscloud_broker.model import Notification, Outcome
from rsscloud_broker.outbound.couriers.bodies import SentBodies
from rsscloud_broker.outbound.couriers.link import Link
from rsscloud_broker.outbound.couriers.messages import (
    Alive,
    Answered,
    Beat,
    Call,
    Cancel,
    Failed,
    FromBroker,
    FromCourier,
    Leaving,
    Notify,
    NotNotified,
    Read,
    ReadDone,
    Said,
    Unread,
)
from rsscloud_broker.outbound.couriers.pending import (
    TO_CALL,
    TO_NOTIFY,
    TO_READ,
    Pending,
    WrongAnswer,
)
from rsscloud_broker.outbound.couriers.spawning import Limits, Spawn, StandardError, megabytes
from rsscloud_broker.util.clock import endless_call
from rsscloud_broker.util.deferreds import BreakOff, Done, from_callback, run_with_callback
from rsscloud_broker.wire.text import clean

#: Seconds between two questions whether a courier is alive.
BEAT: Final = 1.0

#: Seconds until a courier is started again that ended soon after its start; they double each time.
FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 5.0

#: How many lines of a courier are logged between two beats.
MAX_LINES: Final = 10


class Courier:
    """A place for one courier: at any time it has one process, or is about to start one.

    :param number: tells it from the others, in the log.
    :param greeting: gives the messages that every new process gets first.
    :param spawn: starts a process.
    :param limits: says when it is replaced; it is asked each time.
    :ivar idle, idle_topics: connections that it keeps for further requests, and for readings.
    :ivar readings: how many topics it is reading.
    :ivar lateness: how many seconds it took to answer the last beat: more if it has much to do.
    """

    log = Logger()

    def __init__(
        self,
        number: int,
        reactor: Any,
        clock: IClock,
        greeting: Callable[[], Sequence[FromBroker]],
        spawn: Spawn,
        limits: Callable[[], Limits] = Limits,
    ) -> None:
        self.number = number
        self._reactor = reactor
        self._clock = clock
        self._greeting = greeting
        self._limits = limits
        self._spawn = spawn
        self._pending = Pending()
        self._bodies = SentBodies()
        self._link: Link[FromBroker, FromCourier] | None = None
        self._process: Any = None
        self._standard_error: StandardError
        self._exit: Deferred[None] | None = None  # fires when the process has ended
        self._pause = FIRST_PAUSE  # seconds until the next start, after a short life
        self._next_start: IDelayedCall | None = None
        self._waiting_for_start: list[Deferred[Link[FromBroker, FromCourier]]] = []
        self._started_at = 0.0
        self._has_lived = False  # whether the process has sent something
        self._unanswered = self._lines = 0  # beats without an answer; lines logged in this beat
        self._beating = endless_call(clock, self._beat, f"Looking after courier {number}")
        self._is_stopping = self._is_leaving = self._is_silent = False
        self._asked_at = 0.0  # when the last beat without an answer was sent; 0 if it has one
        self.lateness = 0.0
        self.idle = self.idle_topics = self.readings = 0

    # --- requests

    @property
    def under_way(self) -> int:
        """How many requests it has, or will have when it has started; readings do not count."""
        return max(0, len(self._pending) + len(self._waiting_for_start) - self.readings)

    async def request(self, request: OutboundRequest) -> OutboundReply:
        """Have the process make a request when there is room for it, and wait for the reply."""
        reply: OutboundReply = await self._ask(TO_CALL, partial(self._send_call, request))
        return reply

    def notify(self, notification: Notification, done: Done[Outcome]) -> BreakOff:
        """Have the process notify a subscriber; ``done`` gets the outcome."""
        link, send = self._link, partial(self._send_notify, notification)
        if link is None or link.is_full:
            return run_with_callback(self._ask(TO_NOTIFY, send), done)
        return partial(self._break_off, self._pending.begin(done, TO_NOTIFY, send))

    async def read(self, make: Callable[[int], Read]) -> ReadDone | Unread:
        """Have a topic read, and return what was found.

        :param make: makes the message with a number.
        :raises CallsUnavailable: no courier can be started, or the broker stops.
        """
        self.readings += 1
        try:
            done: ReadDone | Unread = await self._ask(
                TO_READ, lambda number: self.send(make(number))
            )
            return done
        except OutboundError as error:  # it cannot be sent, or the courier ended meanwhile
            return Unread(0, str(error), ended=False, refused=False, lasting=False)
        finally:
            self.readings -= 1

    async def _ask(self, answers: tuple[type, ...], send: Callable[[int], object]) -> Any:
        """Send a request when the process runs and there is room for it; wait for its answer."""
        while (link := self._link or await self._next_link()).is_full:
            await link.until_there_is_room()
        return await from_callback(
            lambda done: partial(self._break_off, self._pending.begin(done, answers, send))
        )

    def _send_notify(self, notification: Notification, number: int) -> None:
        """Send a notification under its number; a large content crosses once for all."""
        link, callback, content = self._link, notification.callback, notification.content
        assert link is not None  # it is sent where there is one
        carried: tuple[Any, ...] = ()
        if content is not None:
            carried = self._bodies.send_once(content.body, link), content.content_type, content.link
        link.send(
            Notify(
                number,
                callback.protocol,
                callback.url,
                callback.procedure,
                notification.topic,
                {**notification.options},
                *carried,
            )
        )

    def _send_call(self, request: OutboundRequest, number: int) -> None:
        """Send a request under its number; a large body crosses once for all."""
        link = self._link
        assert link is not None  # it is sent where there is one
        body = self._bodies.send_once(request.body, link)
        link.send(Call(number, evolve(request, body=b""), body))

    async def _next_link(self) -> Link[FromBroker, FromCourier]:
        """Wait for the next process, which starts within ``LONGEST_PAUSE`` seconds.

        :raises CallsUnavailable: it cannot be started, or the broker stops.
        """
        if self._is_stopping:
            raise CallsUnavailable("the broker stops")
        started: Deferred[Link[FromBroker, FromCourier]] = Deferred(self._forget_waiting)
        self._waiting_for_start.append(started)
        return await started

    def _forget_waiting(self, started: Deferred[Link[FromBroker, FromCourier]]) -> None:
        """Forget a caller that no longer waits for the next process."""
        with suppress(ValueError):  # it has been taken from the list
            self._waiting_for_start.remove(started)

    def _break_off(self, number: int) -> None:
        """Have the process cancel a request; who waits for it gets a CancelledError."""
        if number in self._pending:
            self.send(Cancel(number))
            self._pending.finish(number, CancelledError())

    def send(self, message: FromBroker) -> None:
        """Send a message, if there is a process; a new one gets the greeting."""
        if self._link is not None:
            self._link.send(message)

    def _fail_unsendable(self, message: FromBroker, why: str) -> None:
        if isinstance(message, Call | Notify | Read):
            self._pending.finish(message.number, OutboundError(f"the request is faulty: {why}"))

    def _handle_messages(self, batch: Sequence[FromCourier]) -> None:
        """Handle messages of the process: answers, of which most are numbers, and others."""
        self._has_lived, self._unanswered = True, 0
        for message in batch:
            match message:
                case int() | NotNotified() | Answered() | Failed() | ReadDone() | Unread():
                    try:
                        self._pending.take(message)
                    except WrongAnswer as error:
                        if self._link is not None:
                            self._link.abort(str(error))
                        return
                case Alive():
                    self.idle, self.idle_topics = message.idle, message.idle_topics
                    self._note_lateness()
                case Said():
                    self._log_said(message.text)
                case Leaving():
                    self._log_said(message.reason)
                    self._is_leaving = True

    def _log_said(self, text: str) -> None:
        """Log what a courier says; anyone who broke into it may have written it."""
        self._lines += 1
        if self._lines > MAX_LINES:
            return
        said = clean(text[:1000])  # longer lines are cut
        if self._lines == MAX_LINES:
            said += " (what it says until the next beat is left out)"
        self.log.warn("Courier {number}: {said}", number=self.number, said=said)

    def _log_standard_error(self) -> None:
        for line in self._standard_error.lines():
            self._log_said(line)

    # --- the process

    def start(self) -> None:
        """Start a process; if the system has no room for one, try again later."""
        self._next_start = None
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
            self._next_start = self._clock.callLater(seconds, self.start)
            self._pending.give_up(CallsUnavailable)
            self._fail_waiting(f"no process can be started that makes requests: {error}")
        except Exception:  # log a bug; it must not be the end of this courier
            self.log.failure("Courier {number} cannot be started.", number=self.number)
            self._pending.give_up(CallsUnavailable)
            self._fail_waiting("no process can be started that makes requests")
            if self._exit is None:
                self._next_start = self._clock.callLater(self._next_pause(0.0), self.start)
            else:
                self.kill()  # when it has ended, another one is started

    def _fail_waiting(self, why: str) -> None:
        """Have the requests fail that wait for a process to start."""
        waiting, self._waiting_for_start = self._waiting_for_start, []
        for started in waiting:
            started.errback(CallsUnavailable(why))

    def _start(self) -> None:
        """Start a process, connect to it, and send it the greeting and the kept requests."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            self._process, self._standard_error = self._spawn(theirs.fileno(), self._handle_exit)
            self._exit = Deferred()
            self._started_at = self._clock.seconds()
            self._has_lived = self._is_leaving = self._is_silent = False
            self._unanswered = self._lines = 0
            link = Link[FromBroker, FromCourier](
                self._reactor,
                FromCourier,
                self._handle_messages,
                lambda why: self._handle_lost_link(link, why),
                self._fail_unsendable,
                lambda: self._limits().frame,
            )
            for message in (*self._greeting(), Beat()):  # so that it gives a sign of life at once
                link.send(message)
            ours.setblocking(False)
            try:
                self._reactor.adoptStreamConnection(
                    ours.fileno(), socket.AF_UNIX, Factory.forProtocol(lambda: link)
                )
            except OSError as error:
                self.log.error(
                    "Courier {number} has no connection: {error}", number=self.number, error=error
                )
                self.kill()  # when it has ended, another one is started
                self._fail_waiting(f"the process that makes requests has no connection: {error}")
                return
        self._link = link
        self._beating.start(BEAT, now=False)
        self._pending.send_kept()
        waiting, self._waiting_for_start = self._waiting_for_start, []
        for started in waiting:
            started.callback(link)

    def _next_pause(self, lived: float) -> float:
        """Seconds until the next start: none after a process that lived for ten seconds."""
        if lived > 10.0:
            self._pause = FIRST_PAUSE
            return 0.0
        seconds, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE)
        return seconds

    async def stop(self) -> None:
        """End the process, and wait until it has ended."""
        self._is_stopping = True
        if self._next_start is not None:
            self._next_start.cancel()
            self._next_start = None
        link, self._link = self._link, None
        if link is not None:
            link.abort("")
        self._end_or_keep_requests()
        self._fail_waiting("the broker stops")
        if self._exit is not None:
            self.kill()  # nobody waits for it any more, and it has nothing to store
            await self._exit

    def kill(self) -> None:
        """End the process at once."""
        with suppress(ProcessExitedAlready):
            self._process.signalProcess("KILL")

    def _beat(self) -> None:
        """Ask whether the process is alive; replace one that is silent, late or too large."""
        # Questions count and not the time, for it may have been the broker that stood still.
        silent = self._unanswered * BEAT
        limits = self._limits()
        used, most = megabytes(self._process.pid), limits.megabytes
        self._lines = 0
        self._log_standard_error()
        is_late = self._pending.beat(limits.answer / BEAT)
        if silent >= (limits.silent if self._has_lived else limits.first_sign):
            self._is_silent = self._has_lived
            self._replace(f"gave no sign of life for {silent:.0f} seconds")
        elif used > most:
            self._replace(f"uses {used} MB of memory; {most} are the most")
        elif is_late:
            self._replace("did not answer a request")
        else:
            self._unanswered += 1
            self._asked_at = self._asked_at or self._clock.seconds()
            self.send(Beat())

    def _note_lateness(self) -> None:
        """Note how long the process took to answer a beat."""
        if self._asked_at:
            self.lateness = self._clock.seconds() - self._asked_at
            self._asked_at = 0.0

    @property
    def _fate(self) -> str:
        """What happens to the requests that it had under way, in words."""
        return "handed to the next one" if self._is_silent else "failed attempts"

    def _replace(self, why: str) -> None:
        """Log why the process is of no use, and kill it: ``_handle_exit`` starts another one."""
        self.log.error(
            "Courier {number} {why}: it is replaced, and the {count} requests that it had under "
            "way are {fate}.",
            number=self.number,
            why=why,
            count=len(self._pending),
            fate=self._fate,
        )
        self.kill()

    def _handle_lost_link(self, link: Link[FromBroker, FromCourier], why: str) -> None:
        """Kill the process, as its connection has ended; log why if there is a reason."""
        if link is not self._link:
            return  # it stops, or the process has ended too and the next one may have started
        self._link = None
        if why:
            self._replace(why)
        else:
            self.kill()

    def _handle_exit(self, reason: str) -> None:
        """After the end of the process, end or keep its requests, and plan the next start."""
        lived = self._clock.seconds() - self._started_at
        self._lines = 0  # its last words are not left out
        self._log_standard_error()
        self._standard_error.close()
        ended, self._exit = self._exit, None
        if ended is not None:
            ended.callback(None)
        link, self._link = self._link, None
        count = len(self._pending)
        if link is not None:
            link.abort("")
        self._end_or_keep_requests()
        if self._beating.running:
            self._beating.stop()
        self.idle = self.idle_topics = 0
        self._asked_at = self.lateness = 0.0
        if self._is_stopping:
            return
        seconds = self._next_pause(lived)
        self.log.error(
            "Courier {number} has ended ({reason}); another one is started in {seconds} s. The "
            "{count} requests that it had under way are {fate}.",
            number=self.number,
            reason=reason,
            seconds=seconds,
            count=count,
            fate=self._fate,
        )
        self._next_start = self._clock.callLater(seconds, self.start)

    def _end_or_keep_requests(self) -> None:
        """Have all requests under way fail, or keep them for the next process if it was silent."""
        self._bodies.clear()
        was_at_work = self._has_lived and not self._is_stopping and not self._is_leaving
        self._pending.give_up(
            Interrupted if was_at_work else CallsUnavailable,
            keeps=self._is_silent and not self._is_stopping,
        )
