"""The broker's side of parsers: has documents of strangers parsed in processes of their own.

A parser is started when a document needs one, and works at one document at a time.  So it is
certain which document has ended it, and nobody else's suffers.  The owners of documents take
turns, and each has one parser at a time.  Those whose documents have lately ended a parser, or
taken long, never have the last one together, so that it is left for others.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, Final, ParamSpec, TypeVar

from attrs import define, field
from msgspec import DecodeError
from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredList
from twisted.logger import Logger

from rsscloud_broker.errors import DocumentTooCostly, DocumentUnread, ParsingUnavailable
from rsscloud_broker.interfaces import IClock
from rsscloud_broker.outbound.couriers.parse_messages import (
    Parse,
    Parsed,
    Signature,
    Unparsed,
    fault_named,
    name_of,
)
from rsscloud_broker.outbound.couriers.parser import COMMAND, Parser
from rsscloud_broker.util.caches import BoundedDict
from rsscloud_broker.util.clock import endless_call
from rsscloud_broker.wire.text import clean

P = ParamSpec("P")
T = TypeVar("T")

#: How many bytes of documents may wait, and how many of one owner, beside the first document.
WAITING_BYTES: Final = 64 * 2**20
OF_AN_OWNER: Final = WAITING_BYTES // 4

#: How many documents may wait, and how many of one owner.
WAITING: Final = 2000
OF_AN_OWNER_TOO: Final = WAITING // 4

#: Seconds for which an owner counts as slow.
SLOW_FOR: Final = 600.0

TOO_COSTLY: Final = (
    "it takes more than two seconds of processor time or 256 MB of memory to read it"
)


@lru_cache(maxsize=100)
def _signature(function: Callable[..., Any]) -> Signature:
    return Signature(function)


@define(eq=False)
class _Document:
    """A document that waits or is parsed.

    :ivar done: fires with the result, or with why there is none.
    """

    owner: str
    function: Callable[..., Any]
    message: Parse
    done: Deferred[Any]
    began: float = field(default=0.0, init=False)

    @property
    def size(self) -> int:
        return len(self.message.arguments)


class Parsers(Service):
    """Has functions parse documents in other processes: see ``interfaces.Parsing``.

    :param parsers: how many processes there are at most.
    :param command: the command line of a process, without the number of its descriptor.
    """

    name = "parsers"
    log = Logger()

    def __init__(
        self,
        reactor: Any,
        clock: IClock,
        # How many parsers there are at most: with two, one document that takes long leaves one for
        # others.
        parsers: int = 2,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._clock = clock
        self._parsers = [
            Parser(number, reactor, partial(self._end, number), self._assign, command)
            for number in range(parsers)
        ]
        self._parsed: dict[int, _Document] = {}
        self._waiting: OrderedDict[str, deque[_Document]] = OrderedDict()
        self._slow: BoundedDict[str, float] = BoundedDict(10_000)  # owners
        self._not_before = 0.0
        self._looking = endless_call(clock, self._look, "Looking after the parsers")

    def __call__(
        self, owner: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> Deferred[T]:
        done: Deferred[T] = Deferred(self._cancel)
        try:
            encoded = _signature(function).encoded(args, kwargs)
            document = _Document(owner, function, Parse(name_of(function), encoded), done)
            self._admit(document)
        except (DocumentUnread, ParsingUnavailable):
            done.errback()
            return done
        self._waiting.setdefault(owner, deque()).append(document)
        self._assign()
        return done

    def _admit(self, document: _Document) -> None:
        if not self.running:
            raise ParsingUnavailable("the broker does not run")
        own = self._waiting.get(document.owner, ())
        everybody = [each for queue in self._waiting.values() for each in queue]
        for waiting, most, most_bytes in (
            (own, OF_AN_OWNER_TOO, OF_AN_OWNER),
            (everybody, WAITING, WAITING_BYTES),
        ):
            size = sum(each.size for each in waiting)
            if waiting and (len(waiting) >= most or size + document.size > most_bytes):
                raise ParsingUnavailable(f"{len(waiting)} documents wait to be parsed already")

    def startService(self) -> None:
        super().startService()
        self._looking.start(1.0, now=False)

    def stopService(self) -> Deferred[Any]:
        super().stopService()
        if self._looking.running:
            self._looking.stop()
        waiting, self._waiting = self._waiting, OrderedDict()
        for queue in waiting.values():
            for document in queue:
                document.done.errback(ParsingUnavailable("the broker stops"))
        return DeferredList([parser.stop() for parser in self._parsers])

    # --- which document is next

    def _assign(self) -> None:
        """Give documents that wait to parsers that have nothing to do."""
        may_start = self._clock.seconds() >= self._not_before
        for number, parser in enumerate(self._parsers):
            if parser.is_working or parser.is_ending or not (parser.is_up or may_start):
                continue
            if self.running and (document := self._next()):
                self._begin(number, document)

    def _begin(self, number: int, document: _Document) -> None:
        document.began = self._clock.seconds()
        self._parsed[number] = document
        try:
            self._parsers[number].parse(document.message)
        except OSError as error:
            self._end(number, ParsingUnavailable(f"no parser can be started: {error}"))

    def _next(self) -> _Document | None:
        """The next document, of the owner whose turn it is: one at a time, so that it stays in
        order.  Slow ones leave one parser free.
        """
        busy = {document.owner for document in self._parsed.values()}
        has_room = sum(map(self._is_slow, busy)) < max(1, len(self._parsers) - 1)
        for owner, queue in self._waiting.items():
            if owner not in busy and (has_room or not self._is_slow(owner)):
                document = queue.popleft()
                self._waiting.move_to_end(owner)
                if not queue:
                    del self._waiting[owner]
                return document
        return None

    def _is_slow(self, owner: str) -> bool:
        return self._slow.get(owner, -SLOW_FOR) + SLOW_FOR > self._clock.seconds()

    def _cancel(self, done: Deferred[Any]) -> None:
        """Forget a document that nobody waits for; one that is being parsed is parsed."""
        for owner, queue in self._waiting.items():
            for document in queue:
                if document.done is done:
                    queue.remove(document)
                    if not queue:
                        del self._waiting[owner]
                    return

    # --- what parsers say

    def _end(self, number: int, answer: Parsed | Unparsed | ParsingUnavailable | None) -> None:
        """Tell who waits what came of a document.

        :param answer: None if the document has ended the parser; an error if that was of no use.
        """
        document, now = self._parsed.pop(number), self._clock.seconds()
        if isinstance(answer, ParsingUnavailable):
            # The next one is started a second after one that ended before it was ready.
            self._not_before = now + 1.0
        elif answer is None or now - document.began > 0.5:
            # Its document has taken half a second, or ended a parser.
            self._slow[document.owner] = now
        result = self._result(document, answer)
        if not document.done.called:  # nobody has cancelled it
            if isinstance(result, Exception):
                document.done.errback(result)
            else:
                document.done.callback(result)
        self._assign()

    def _result(
        self, document: _Document, answer: Parsed | Unparsed | ParsingUnavailable | None
    ) -> object:
        match answer:
            case Parsed():
                try:
                    return _signature(document.function).result(answer.result)
                except DecodeError as error:
                    return self._failed(document, f"its answer cannot be read: {error}")
            case Unparsed(fault="", parts=[what]):
                return self._failed(document, str(what))
            case Unparsed(fault=name, parts=parts) if name:
                return fault_named(name, parts) or self._failed(document, f"it says {name[:100]}")
            case ParsingUnavailable():
                if self.running:
                    self.log.error(
                        "No document of a stranger can be parsed now: {why}", why=str(answer)
                    )
                return answer
        self.log.warn(
            "A document of {owner} is given up ({function}): {why}.",
            owner=document.owner,
            function=document.message.function,
            why=TOO_COSTLY,
        )
        return DocumentTooCostly(TOO_COSTLY)

    def _failed(self, document: _Document, what: str) -> DocumentUnread:
        self.log.error(
            "A document of {owner} cannot be parsed ({function}), which is a fault of the broker "
            "or of a library: {what}",
            owner=document.owner,
            function=document.message.function,
            # The longest line that is logged of a parser, in characters.
            what=clean(what)[:1000],
        )
        return DocumentUnread("the program that reads it failed")

    def _look(self) -> None:
        for parser in self._parsers:
            parser.look()
        self._assign()
