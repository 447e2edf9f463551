"""One parser, as the broker sees it: a process that is started when it is needed, and watched."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ProcessExitedAlready
from twisted.internet.protocol import Factory
from twisted.logger import Logger

from rsscloud_broker.errors import ParsingUnavailable
from rsscloud_broker.outbound.couriers.link import Link
from rsscloud_broker.outbound.couriers.parse_messages import (
    FromParser,
    Parse,
    Parsed,
    ParserLeaving,
    ParserReady,
    Unparsed,
)
from rsscloud_broker.outbound.couriers.spawning import ServerEnded, Spawn, StandardError
from rsscloud_broker.wire.text import clean

#: How many bytes an answer may have, beside twice those of the document.  It is decoded while
#: everybody waits.
ANSWER: Final = 16 * 2**20


class Parser:
    """A place for one parser.

    :param number: tells it from the others, in the log.
    :param answered: is called with the answer to the document; with None if the document has ended
        the process; with an error if the process was of no use.
    :param ended: is called when the process is gone, so that another one can be started.
    :param spawn: starts its process.
    :ivar is_working: whether it has a document.
    :ivar is_up: whether it has a process.
    :ivar is_ending: whether its process ends, and is not gone yet.
    """

    log = Logger()

    def __init__(
        self,
        number: int,
        reactor: Any,
        answered: Callable[[Parsed | Unparsed | ParsingUnavailable | None], object],
        ended: Callable[[], object],
        spawn: Spawn,
    ) -> None:
        self._number = number
        self._reactor = reactor
        self._answered = answered
        self._ended = ended
        self._spawn = spawn
        self._link: Link[Parse, FromParser] | None = None
        self._process: Any = None
        self._standard_error: StandardError
        self._waiting: list[Deferred[None]] = []
        self._reason = ""  # why the process has ended; empty while it has not
        self._looks = self._longest = 0  # looks since the last document; bytes of its answer
        self._is_ready = False
        self.is_working = self.is_ending = False

    @property
    def is_up(self) -> bool:
        return self._process is not None

    def parse(self, message: Parse) -> None:
        """Begin to parse a document.

        :raises OSError: the system has no room for a process.
        """
        if self._process is None:
            self._start()
        assert self._link is not None
        self.is_working, self._looks = True, 0
        self._longest = ANSWER + 2 * len(message.arguments)
        self._link.send(message, len(message.arguments))

    def _start(self) -> None:
        """Start a process and connect to it; OSError if the system has no room for it."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            self._process, self._standard_error = self._spawn(theirs.fileno(), self._handle_exit)
            self._is_ready, self.is_ending, self._reason = False, False, ""
            link = Link[Parse, FromParser](
                self._reactor,
                FromParser,
                self._take,
                self._handle_lost_link,
                lambda *_: None,  # a ``Parse`` can always be encoded
                lambda: self._longest,
            )
            ours.setblocking(False)
            try:
                self._reactor.adoptStreamConnection(
                    ours.fileno(), socket.AF_UNIX, Factory.forProtocol(lambda: link)
                )
            except OSError:
                self.kill()
                raise
        self._link = link

    def _take(self, batch: Sequence[FromParser]) -> None:
        """Handle messages of the process: that it is ready, an answer, that it ends."""
        self.is_ending = self.is_ending or any(isinstance(each, ParserLeaving) for each in batch)
        for message in batch:
            match message:
                case ParserReady():
                    self._is_ready = True
                    for problem in message.problems:
                        self._log(problem)
                case Parsed() | Unparsed() if self.is_working:
                    self._end_document(message)

    def _end_document(self, answer: Parsed | Unparsed | ParsingUnavailable | None) -> None:
        """Pass the answer to the document on, or why there is none; then another may come."""
        self.is_working, self._looks = False, 0
        self._answered(answer)

    def _log(self, text: str) -> None:
        said = clean(text)[:1000]  # longer lines are cut
        self.log.warn("Parser {number}: {said}", number=self._number, said=said)

    def _handle_lost_link(self, why: str) -> None:
        """The connection has ended: kill the process, unless it has ended already."""
        self._link = None
        if why:
            self._log(why)
        if self._reason:
            self._handle_end()
        elif self._process is not None:
            self.kill()

    def _handle_exit(self, reason: str) -> None:
        """Note that the process has ended.  What it has sent before may not be read yet."""
        for line in self._standard_error.lines():
            self._log(line)
        self._standard_error.close()
        self._reason, self.is_ending = reason, True
        if self._link is None:
            self._handle_end()
        elif isinstance(reason, ServerEnded):
            # It may go on, where the kernel does not end it with the server.
            self._link.abort("")

    def _handle_end(self) -> None:
        """Tell all who wait that the process has ended and nothing more comes from it."""
        self._process, self.is_ending = None, False
        if self.is_working:
            is_to_blame = self._is_ready and not isinstance(self._reason, ServerEnded)
            why = f"a process that parses documents has ended: {self._reason}"
            self._end_document(None if is_to_blame else ParsingUnavailable(why))
        gone, self._waiting = self._waiting, []
        for each in gone:
            each.callback(None)
        self._ended()

    def look(self) -> None:
        """End the process if it hangs, or has long had nothing to do.  Called each second."""
        self._looks += 1
        # The kernel limits the processor time of a document; 60 looks are for a parser that is
        # stopped.  Looks count and not the time, for it may have been the broker that stood still.
        # Without a document a parser ends after 120 looks, to give its memory back.
        if self.is_up and self._looks > (60 if self.is_working else 120):
            self.kill()

    def kill(self) -> None:
        """End the process at once, or the connection if one that it has started keeps that open."""
        self.is_ending = True
        if self._reason and self._link is not None:
            self._link.abort("")
        with suppress(ProcessExitedAlready):
            self._process.signalProcess("KILL")

    def stop(self) -> Deferred[None]:
        """End the process, and wait until it has ended."""
        if self.is_working:
            self._end_document(ParsingUnavailable("the broker stops"))
        if not self.is_up:
            return succeed(None)
        gone: Deferred[None] = Deferred()
        self._waiting.append(gone)
        self.kill()
        return gone
