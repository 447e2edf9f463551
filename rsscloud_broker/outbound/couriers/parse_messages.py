"""What the broker and its parsers send each other, and how a function is called from afar.

A function that parses documents is one at the top of a module, with a type for each parameter and
for what it returns.  What is wrong with a document is a ``DocumentFault``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from inspect import signature
from typing import Any, Final, TypeAlias, get_type_hints

from msgspec import DecodeError, Struct, msgpack

from rsscloud_broker.errors import DocumentFault, DocumentUnread


class _Message(Struct, frozen=True, array_like=True, tag=True, gc=False):
    """What all messages are: arrays with their names."""


class Parse(_Message, frozen=True):
    """A document to parse.

    :ivar function: the module and the name of the function, with a colon between them.
    :ivar arguments: its arguments, as MessagePack.
    """

    function: str
    arguments: bytes


class Parsed(_Message, frozen=True):
    """What the function has returned, as MessagePack."""

    result: bytes


class Unparsed(_Message, frozen=True):
    """The document cannot be parsed.

    :ivar fault: the module and the name of the ``DocumentFault``; empty if the document took too
        much time or memory, or if something failed that should not.
    :ivar parts: the arguments of the fault; without a fault: what failed, or nothing if the
        document took too much.
    """

    fault: str
    parts: list[str | int]


class ParserReady(_Message, frozen=True):
    """The first message of a parser: it waits for documents.

    :ivar problems: what its confinement lacks, for the log of the broker.
    """

    problems: list[str]


class ParserLeaving(_Message, frozen=True):
    """The parser ends, for a reason that has nothing to do with the next document."""


#: What a parser sends.
FromParser: TypeAlias = ParserReady | Parsed | Unparsed | ParserLeaving

_ENCODER: Final = msgpack.Encoder()


def name_of(what: Callable[..., object]) -> str:
    """The name by which a function, or the class of a fault, is found in another process."""
    return f"{what.__module__}:{what.__qualname__}"


def function_named(name: str) -> Callable[..., Any]:
    """The function with a name that ``name_of`` has made."""
    module, _, attribute = name.partition(":")
    function: Callable[..., Any] = getattr(import_module(module), attribute)
    return function


class Signature:
    """A function, with what encodes and decodes its arguments and its result by their types."""

    def __init__(self, function: Callable[..., Any]) -> None:
        hints = get_type_hints(function)
        self._function = function
        self._signature = signature(function)
        self._names = tuple(self._signature.parameters)
        types: Any = tuple(hints[name] for name in self._names)
        self._arguments = msgpack.Decoder(tuple[types])
        self._result = msgpack.Decoder(hints["return"])

    def encode_arguments(self, args: Sequence[object], kwargs: Mapping[str, object]) -> bytes:
        """Encode the arguments of a call, for ``Parse``.

        :raises DocumentUnread: they cannot be written as MessagePack.
        """
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        try:
            return _ENCODER.encode([bound.arguments[name] for name in self._names])
        except (UnicodeError, OverflowError, RecursionError):
            raise DocumentUnread("it has characters or numbers that nobody can read") from None

    def call(self, arguments: bytes) -> bytes:
        """Call the function, and encode what it returns."""
        given = dict(zip(self._names, self._arguments.decode(arguments), strict=True))
        return _ENCODER.encode(self._function(**given))

    def decode_result(self, encoded: bytes) -> Any:
        """Decode what the function has returned.

        :raises msgspec.DecodeError: the function cannot return such a value.
        """
        try:
            return self._result.decode(encoded)
        except (UnicodeError, RecursionError) as error:  # somebody broke into the process
            raise DecodeError(str(error)) from error


def fault_named(name: str, parts: list[str | int]) -> DocumentFault | None:
    """The fault that a parser has found; None if there is no such one.

    A parser that somebody broke into can choose between the faults that exist, and nothing else.
    """
    for kind in _faults(DocumentFault):
        if name_of(kind) == name:
            with suppress(TypeError):
                return kind(*parts)  # type: ignore[arg-type] # each kind has its own
    return None


def _faults(kind: type[DocumentFault]) -> Iterator[type[DocumentFault]]:
    """All classes of faults below one."""
    for each in kind.__subclasses__():
        yield each
        yield from _faults(each)
