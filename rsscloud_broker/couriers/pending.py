"""What a courier was asked for and has not answered yet.

How long something waits is counted in beats and not in seconds: it may have been the broker that
stood still, and then the answers are there and only nobody has read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from twisted.logger import Logger

from rsscloud_broker import errors
from rsscloud_broker.couriers.messages import Answered, Failed, ReadDone, Unread
from rsscloud_broker.direct import Done
from rsscloud_broker.errors import CallsUnavailable, MemoryUnavailable, OutboundError, Unavailable
from rsscloud_broker.interfaces import OutboundReply

Answer: TypeAlias = Answered | Failed | ReadDone | Unread

#: The answers that a call may have, and a reading.
TO_CALL: Final = (Answered, Failed)
TO_READ: Final = (ReadDone, Unread, Failed)

_ERRORS: Final[Mapping[str, type[OutboundError]]] = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, OutboundError)
}

_LACKS: Final[Mapping[str, type[Unavailable]]] = {"MemoryUnavailable": MemoryUnavailable}


class WrongAnswer(Exception):
    """A courier has sent an answer that its question cannot have; the text says which."""


class Pending:
    """The requests of one courier that are under way, the oldest first."""

    log = Logger()

    def __init__(self) -> None:
        self.last = 0
        self._beats = 0
        self._waiting: dict[int, tuple[Done[Any], tuple[type, ...], int, str]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, number: int) -> bool:
        return number in self._waiting

    def add(self, done: Done[Any], answers: tuple[type, ...], url: str = "") -> int:
        """The number of a further request.

        :param done: is told of its end.
        :param answers: the messages that may answer it.
        :param url: that of the callback which is called; empty for a reading.
        """
        self.last = number = self.last + 1
        self._waiting[number] = done, answers, self._beats, url
        return number

    def called(self) -> set[str]:
        """The URLs of the callbacks that are being called."""
        return {url for *_, url in self._waiting.values() if url}

    def tell(self, number: int, result: object) -> None:
        """Tell who waits for the end of a request; nobody may wait any more."""
        if waiting := self._waiting.pop(number, None):
            try:
                waiting[0](result)
            except Exception:  # a bug, which must not keep the others waiting
                self.log.failure("The end of a request was not understood.")

    def beat(self, longest: float) -> bool:
        """Count a beat.

        :param longest: for how many beats something may wait.
        :returns: whether a request has waited longer.
        """
        self._beats += 1
        oldest = next(iter(self._waiting.values()), None)
        return oldest is not None and self._beats - oldest[2] > longest

    def take(self, message: Answer) -> None:
        """Tell who waits for an answer.

        :raises WrongAnswer: the request cannot have it.
        """
        waiting = self._waiting.get(message.number)
        if waiting is None:
            return  # it was broken off
        if not isinstance(message, waiting[1]):
            raise WrongAnswer(f"it sent {type(message).__name__} as the answer to something else")
        has_content = isinstance(message, ReadDone) and message.body is not None
        if has_content and len(message.body) != message.size:  # type: ignore[union-attr, arg-type]
            raise WrongAnswer("it sent a content that has not the size which it says")
        self.tell(message.number, _result(message))

    def give_up(self, kind: type[Unavailable]) -> None:
        """Have all fail that is under way."""
        for number in list(self._waiting):
            self.tell(number, kind("the process that made the request has ended"))


def _result(message: Answered | Failed | ReadDone | Unread) -> object:
    """What who made a request is told."""
    match message:
        case Answered():
            return OutboundReply(
                message.status, message.headers, message.body, message.url, tuple(message.hops)
            )
        case Failed():
            kind = _ERRORS.get(message.kind)
            if kind is None:
                return _LACKS.get(message.kind, CallsUnavailable)(message.reason)
            return kind(message.reason, port_only=message.port_only)
        case _:
            return message
