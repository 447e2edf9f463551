"""What a parser runs: see ``composition.courier``.

A parser is a courier that calls nobody.  It parses documents of strangers for the broker, one
after the other: see ``parsers``.  The kernel watches over it, since a library that hangs in C code
cannot watch itself.  A document that takes too much processor time ends the process (setitimer(2),
SIGPROF).  A document that takes too much memory gets none (setrlimit(2), RLIMIT_AS): then the
library fails, or the process ends.  Neither hurts anybody else, and the broker starts another
parser.

The function that parses a document is named by the broker.  What it is given and what it returns
cross as MessagePack, by the types in its signature.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from socket import socket
from typing import BinaryIO, Final

from msgspec import msgpack

from rsscloud_broker.errors import DocumentFault
from rsscloud_broker.outbound.couriers.confinement import Confinement
from rsscloud_broker.outbound.couriers.parse_messages import (
    FromParser,
    Parse,
    Parsed,
    ParserLeaving,
    ParserReady,
    Signature,
    Unparsed,
    function_named,
    name_of,
)

#: Bytes of memory that a document may take beside those that the process has already.
MEMORY: Final = 256 * 2**20

#: A process that has this many bytes more than at its start ends after a document, as C libraries
#: do not give memory back; the broker starts another one.
KEPT: Final = 64 * 2**20

#: How many bytes before a frame say how long it is, as in ``link``.
_PREFIX: Final = 4


class Memory:
    """How much memory this process uses.  The file is opened before confinement forbids that."""

    def __init__(self) -> None:
        self._file: int | None = None
        with suppress(OSError):  # this is no Linux, and memory is not limited
            self._file = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._at_start = self._bytes(1)

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Limit the memory of this process to ``MEMORY`` more bytes than it uses now.

        Without the file, as on other systems than Linux, there is no limit.
        """
        before = resource.getrlimit(resource.RLIMIT_AS)
        if used := self._bytes(0):
            most = used + MEMORY if before[1] < 0 else min(used + MEMORY, before[1])
            resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)

    @property
    def has_grown(self) -> bool:
        """Whether the process keeps too much that it does not need any more."""
        return self._bytes(1) - self._at_start > KEPT

    def _bytes(self, column: int) -> int:
        """The bytes in a column of statm: 0 for addresses, 1 for what is really in memory."""
        if self._file is None:
            return 0
        pages = os.pread(self._file, 200, 0).split()[column]
        return int(pages) * resource.getpagesize()


@contextmanager
def _limited_time() -> Iterator[None]:
    """End this process if something takes more than two seconds of processor time."""
    # The largest honest feeds take a third of that.
    signal.setitimer(signal.ITIMER_PROF, 2.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)


def answer(
    message: Parse, memory: Memory, signature_of: Callable[[str], Signature]
) -> Parsed | Unparsed:
    """Have the function that a message names parse its document.

    :returns: the result, or what is wrong: see ``Unparsed``.
    """
    try:
        signature = signature_of(message.function)
        with memory.limited(), _limited_time():
            return Parsed(signature.call(message.arguments))
    except DocumentFault as error:
        return Unparsed(name_of(type(error)), error.parts)
    except (MemoryError, RecursionError):
        return Unparsed("", [])  # it took too much
    except Exception as error:  # of the broker or a library; the broker logs it
        return Unparsed("", [f"{type(error).__name__}: {error}"[:1000]])


def run(connection: BinaryIO, output: BinaryIO, confinement: Confinement, memory: Memory) -> None:
    """Parse what the broker sends, until it closes the connection or too much memory is kept."""
    signatures: dict[str, Signature] = {}

    def signature_of(name: str) -> Signature:
        if name not in signatures:  # to load a library takes time that no document is charged
            signatures[name] = Signature(function_named(name))
        return signatures[name]

    _send(output, ParserReady([*confinement.problems]))
    while prefix := connection.read(_PREFIX):
        frame = connection.read(int.from_bytes(prefix, "big"))
        for message in msgpack.decode(frame, type=list[Parse]):
            reply = answer(message, memory, signature_of)
            if memory.has_grown:
                _send(output, reply, ParserLeaving())
                return
            _send(output, reply)


def _send(output: BinaryIO, *messages: FromParser) -> None:
    frame = msgpack.encode(messages)
    output.write(len(frame).to_bytes(_PREFIX, "big") + frame)
    output.flush()


def become_parser(descriptor: int) -> None:
    """Be a parser from now on.

    :param descriptor: the connection to the broker.
    """
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    memory = Memory()
    with socket(fileno=descriptor) as connection:
        connection.setblocking(True)
        with connection.makefile("rb") as source, connection.makefile("wb") as target:
            run(source, target, Confinement(), memory)
