"""What a courier was asked for and has not answered yet.

How long something waits is counted in beats and not in seconds: it may have been the broker that
stood still, and then the answers are there and only nobody has read them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from attrs import define, evolve
from twisted.logger import Logger

from rsscloud_broker import errors
from rsscloud_broker.errors import (
    CallsUnavailable,
    Interrupted,
    MemoryUnavailable,
    OutboundError,
    Unavailable,
)
from rsscloud_broker.model import Outcome
from rsscloud_broker.outbound.couriers.messages import (
    Answered,
    Failed,
    NotNotified,
    ReadDone,
    Unread,
)
from rsscloud_broker.util.deferreds import Done

Answer: TypeAlias = int | NotNotified | Answered | Failed | ReadDone | Unread

#: The answers that a notification may have, a call, and a reading.
TO_NOTIFY: Final = (int, NotNotified, Failed)
TO_CALL: Final = (Answered, Failed)
TO_READ: Final = (ReadDone, Unread, Failed)

#: The errors of calls, by the names that ``Failed`` gives them: the other server did not answer.
_ERRORS: Final[Mapping[str, type[OutboundError]]] = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, OutboundError)
}

#: And those by which the courier itself lacked something; other names are ``CallsUnavailable``.
_UNAVAILABLE: Final[Mapping[str, type[Unavailable]]] = {"MemoryUnavailable": MemoryUnavailable}


_NOTIFIED: Final = Outcome(True)


class WrongAnswer(Exception):
    """A courier has sent an answer that its question cannot have; the text says which."""


@define(eq=False)
class _Request:
    """A request that is under way.

    :ivar done: is notified of its end.
    :ivar send: sends it by its number.
    :ivar answers: the types of messages that may answer it.
    :ivar since: in which beat it was sent.
    :ivar was_kept: whether a process had it before this one.
    """

    done: Done[Any]
    answers: tuple[type, ...]
    send: Callable[[int], object]
    since: int
    was_kept: bool = False


class Pending:
    """The requests of one courier that are under way, the oldest first."""

    log = Logger()

    def __init__(self) -> None:
        self.last = 0  # the number of the last request
        self._beats = 0
        self._waiting: dict[int, _Request] = {}  # by number, in order

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, number: int) -> bool:
        return number in self._waiting

    def begin(
        self,
        done: Done[Any],
        answers: tuple[type, ...],
        send: Callable[[int], object],
    ) -> int:
        """Send a further request, and return its number.

        :param done: is notified of its end.
        :param answers: the messages that may answer it.
        :param send: sends it by its number, to this process or to a later one.
        """
        self.last = number = self.last + 1
        self._waiting[number] = _Request(done, answers, send, self._beats)
        send(number)
        return number

    def finish(self, number: int, result: object) -> None:
        """End a request: give who waits for it the result; perhaps nobody waits any more."""
        if request := self._waiting.pop(number, None):
            try:
                request.done(result)
            except Exception:  # a bug, which must not keep the others waiting
                self.log.failure("The end of a request was not understood.")

    def beat(self, longest: float) -> bool:
        """Count a beat.

        :param longest: for how many beats a request may wait.
        :returns: whether a request has waited longer.
        """
        self._beats += 1
        oldest = next(iter(self._waiting.values()), None)
        return oldest is not None and self._beats - oldest.since > longest

    def take(self, message: Answer) -> None:
        """Give an answer to who waits for it.

        :raises WrongAnswer: the request cannot have such an answer.
        """
        number = message if isinstance(message, int) else message.number
        request = self._waiting.get(number)
        if request is None:
            return  # it was broken off
        if not isinstance(message, request.answers):
            raise WrongAnswer(f"it sent {type(message).__name__} as the answer to something else")
        # A mere number says that the subscriber was notified.
        self.finish(number, _NOTIFIED if message is number else _result_of(message))

    def give_up(self, kind: type[CallsUnavailable | Interrupted], *, keeps: bool = False) -> None:
        """End all requests that are under way, with an error of this kind.

        :param keeps: keep the requests for the next process, except those that were kept before.
        """
        for number, request in list(self._waiting.items()):
            if keeps and not request.was_kept:
                request.was_kept = True
            else:
                self.finish(number, kind("the process that made the request has ended"))

    def send_kept(self) -> None:
        """Send what was kept to a new process."""
        for number, request in list(self._waiting.items()):
            request.since = self._beats
            request.send(number)


def _result_of(message: Answer) -> object:
    """What came of a request, for the caller that made it; errors are returned, not raised.

    :raises WrongAnswer: the message contradicts itself.
    """
    match message:
        case NotNotified():  # whatever the courier says, which somebody may have broken into
            return evolve(message.outcome, success=False, interrupted=False)
        case Answered():
            return message.reply
        case Failed():
            kind = _ERRORS.get(message.kind)
            if kind is None:
                return _UNAVAILABLE.get(message.kind, CallsUnavailable)(message.reason)
            return kind(message.reason, port_only=message.port_only)
        case ReadDone() if message.body is not None and len(message.body) != message.size:
            raise WrongAnswer("it sent a content that has not the size which it says")
        case _:
            return message
