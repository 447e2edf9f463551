"""The broker's side of parsers: has documents of strangers parsed in processes of their own.

A parser is started when a document needs one, and works at one document at a time.  So it is
certain which document has ended it, and nobody else's suffers.  The owners of documents take
turns, and each has one parser at a time.  Those whose documents have lately ended a parser, or
taken long, never have the last one together, so that it is left for others.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Final, ParamSpec, TypeVar

from attrs import define, field
from msgspec import DecodeError
from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredList
from twisted.logger import Logger

from rsscloud_broker.errors import DocumentTooCostly, DocumentUnread, ParsingUnavailable
from rsscloud_broker.interfaces import IClock
from rsscloud_broker.outbound.couriers.fork_server import PARSER, ForkServer
from rsscloud_broker.outbound.couriers.parse_messages import (
    Parse,
    Parsed,
    Signature,
    Unparsed,
    fault_named,
    name_of,
)
from rsscloud_broker.outbound.couriers.parser import Parser
from rsscloud_broker.util.caches import BoundedDict
from rsscloud_broker.util.clock import endless_call
from rsscloud_broker.wire.text import clean

P = ParamSpec("P")
T = TypeVar("T")

#: How many bytes of documents may wait, and how many of one owner, beside the first document.
WAITING_BYTES: Final = 64 * 2**20
WAITING_BYTES_OF_ONE: Final = WAITING_BYTES // 4

#: How many documents may wait, and how many of one owner.
WAITING: Final = 2000
WAITING_OF_ONE: Final = WAITING // 4

#: Seconds for which an owner counts as slow.
SLOW_FOR: Final = 600.0

TOO_COSTLY: Final = (
    "it takes more than two seconds of processor time or 256 MB of memory to read it"
)


@lru_cache(maxsize=100)
def _signature(function: Callable[..., Any]) -> Signature:
    """What encodes the arguments of a function, and decodes its result; made once for each."""
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


@define(eq=False)
class _Queue:
    """Documents that wait.

    :ivar most: how many may wait.
    :ivar most_bytes: how many bytes they may have together, beside the first one.
    :ivar size: how many bytes they have.
    """

    most: int
    most_bytes: int
    documents: dict[_Document, None] = field(factory=dict, init=False)  # in order
    size: int = field(default=0, init=False)

    def admit(self, document: _Document) -> None:
        """Refuse a document for which there is no room.

        :raises ParsingUnavailable: too many documents or bytes wait.
        """
        waiting = len(self.documents)
        if waiting and (waiting >= self.most or self.size + document.size > self.most_bytes):
            raise ParsingUnavailable(f"{waiting} documents wait to be parsed already")

    def add(self, document: _Document) -> None:
        self.documents[document] = None
        self.size += document.size

    def remove(self, document: _Document) -> None:
        del self.documents[document]
        self.size -= document.size


def _empty_queue() -> _Queue:
    return _Queue(WAITING, WAITING_BYTES)


class Parsers(Service):
    """Has functions parse documents in other processes: see ``interfaces.Parsing``.

    :param forks: starts them.
    :param parsers: how many processes there are at most.
    """

    name = "parsers"
    log = Logger()

    def __init__(
        self,
        reactor: Any,
        clock: IClock,
        forks: ForkServer,
        parsers: int = 2,  # so that one document that takes long leaves a parser for others
    ) -> None:
        self._clock = clock
        start = partial(forks.spawn, order=PARSER)
        self._parsers = [
            Parser(number, reactor, partial(self._end_document, number), self._assign, start)
            for number in range(parsers)
        ]
        self._being_parsed: dict[int, _Document] = {}  # by the numbers of parsers
        self._waiting = _empty_queue()
        self._owners: OrderedDict[str, _Queue] = OrderedDict()  # those who have documents there
        self._slow: BoundedDict[str, float] = BoundedDict(10_000)  # since when owners are
        self._not_before = 0.0  # when a process may be started again
        self._looking = endless_call(clock, self._look_after_all, "Looking after the parsers")

    def __call__(
        self, owner: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> Deferred[T]:
        """Have a function parse a document of an owner.  The Deferred fires with what the function
        returns, or fails with a DocumentFault or ParsingUnavailable.
        """
        done: Deferred[T] = Deferred(lambda _: self._remove(document))
        try:
            encoded = _signature(function).encode_arguments(args, kwargs)
            document = _Document(owner, function, Parse(name_of(function), encoded), done)
            self._add(document)
        except (DocumentUnread, ParsingUnavailable):
            done.errback()
            return done
        self._assign()
        return done

    def _add(self, document: _Document) -> None:
        """Have a document wait; ParsingUnavailable if there is no room for it."""
        if not self.running:
            raise ParsingUnavailable("the broker does not run")
        own = self._owners.get(document.owner) or _Queue(WAITING_OF_ONE, WAITING_BYTES_OF_ONE)
        for queue in (own, self._waiting):
            queue.admit(document)
        for queue in (own, self._waiting):
            queue.add(document)
        self._owners[document.owner] = own

    def _remove(self, document: _Document) -> None:
        """Forget a document; one that is being parsed is parsed, although nobody waits for it."""
        if document not in self._waiting.documents:
            return
        own = self._owners[document.owner]
        for queue in (own, self._waiting):
            queue.remove(document)
        if not own.documents:
            del self._owners[document.owner]

    def startService(self) -> None:
        super().startService()
        self._looking.start(1.0, now=False)

    def stopService(self) -> Deferred[Any]:
        super().stopService()
        if self._looking.running:
            self._looking.stop()
        waiting, self._waiting = self._waiting, _empty_queue()
        self._owners.clear()
        for document in waiting.documents:
            document.done.errback(ParsingUnavailable("the broker stops"))
        return DeferredList([parser.stop() for parser in self._parsers])

    # --- which document is next

    def _assign(self) -> None:
        """Give documents that wait to parsers that have nothing to do."""
        may_start = self._clock.seconds() >= self._not_before
        for number, parser in enumerate(self._parsers):
            if parser.is_working or parser.is_ending or not (parser.is_up or may_start):
                continue
            if self.running and (document := self._take_next()):
                self._begin(number, document)

    def _begin(self, number: int, document: _Document) -> None:
        """Give a document to the parser with this number."""
        document.began = self._clock.seconds()
        self._being_parsed[number] = document
        try:
            self._parsers[number].parse(document.message)
        except OSError as error:
            self._end_document(number, ParsingUnavailable(f"no parser can be started: {error}"))

    def _take_next(self) -> _Document | None:
        """Take the next document to parse from those that wait; None if there is none.  Owners take
        turns, with one document at a time each, so that they stay in order.  Slow owners leave one
        parser free, if there are two.
        """
        busy = {document.owner for document in self._being_parsed.values()}
        slow_may_begin = sum(map(self._is_slow, busy)) < max(1, len(self._parsers) - 1)
        for owner, queue in self._owners.items():
            if owner not in busy and (slow_may_begin or not self._is_slow(owner)):
                document = next(iter(queue.documents))
                self._owners.move_to_end(owner)
                self._remove(document)
                return document
        return None

    def _is_slow(self, owner: str) -> bool:
        return self._slow.get(owner, -SLOW_FOR) + SLOW_FOR > self._clock.seconds()

    # --- what parsers say

    def _end_document(
        self, number: int, answer: Parsed | Unparsed | ParsingUnavailable | None
    ) -> None:
        """Tell who waits what came of a document.

        :param answer: None if the document has ended the parser; an error if the parser failed.
        """
        document, now = self._being_parsed.pop(number), self._clock.seconds()
        if isinstance(answer, ParsingUnavailable):
            # A parser that was of no use is followed by another one after a second only.
            self._not_before = now + 1.0
        elif answer is None or now - document.began > 0.5:
            # An owner is slow whose document has taken half a second, or ended a parser.
            self._slow[document.owner] = now
        result = self._result_for_caller(document, answer)
        if not document.done.called:  # nobody has cancelled it
            if isinstance(result, Exception):
                document.done.errback(result)
            else:
                document.done.callback(result)
        self._assign()

    def _result_for_caller(
        self, document: _Document, answer: Parsed | Unparsed | ParsingUnavailable | None
    ) -> object:
        """What an answer means for who waits: what the function returned, or an exception."""
        match answer:
            case Parsed():
                try:
                    return _signature(document.function).decode_result(answer.result)
                except DecodeError as error:
                    return self._log_failure(document, f"its answer cannot be read: {error}")
            case Unparsed(fault="", parts=[what]):
                return self._log_failure(document, str(what))
            case Unparsed(fault=name, parts=parts) if name:
                return fault_named(name, parts) or self._log_failure(
                    document, f"it says {name[:100]}"
                )
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

    def _log_failure(self, document: _Document, what: str) -> DocumentUnread:
        """Log the fault of the broker or of a library, and return the error for who waits."""
        self.log.error(
            "A document of {owner} cannot be parsed ({function}), which is a fault of the broker "
            "or of a library: {what}",
            owner=document.owner,
            function=document.message.function,
            what=clean(what)[:1000],  # longer lines are cut
        )
        return DocumentUnread("the program that reads it failed")

    def _look_after_all(self) -> None:
        """End parsers that do nothing or hang, and give the documents that wait to others."""
        for parser in self._parsers:
            parser.look()
        self._assign()
