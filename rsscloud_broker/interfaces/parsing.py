"""The interface for parsing documents of strangers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ParamSpec, Protocol, TypeVar

from rsscloud_broker.errors import ParsingUnavailable

P = ParamSpec("P")
T = TypeVar("T")


class Parsing(Protocol):
    """Has a function parse a document of a stranger, within limits of time and memory.

    Feeds, pages, lists and HTML of strangers are parsed by nothing else in the broker's process:
    a library that is given such a document may take minutes or gigabytes, or end its process.
    """

    def __call__(
        self, owner: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[T]:
        """Call a function in another process.

        :param owner: whose document it is: a host, or the name of an account.  The documents of
            many owners take turns.
        :param function: a function at the top of a module, with a type for each parameter and for
            what it returns; msgspec must know these types.  It must not rely on anything that it
            was not given, and must not be given anything that is of use to a thief.
        :param args: its arguments.
        :returns: what the function returns.
        :raises DocumentFault: the function has raised it.
        :raises DocumentTooCostly: the document takes too much time or memory.
        :raises DocumentUnread: it cannot be sent to the other process, or the function has failed.
        :raises ParsingUnavailable: too many documents wait, no process can be started, or the
            broker stops.
        """
        ...


async def parse_directly(
    owner: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Parse in this process: what a program gets that has nothing else to do."""
    return function(*args, **kwargs)


async def not_parsed(owner: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Parse nothing: what a part gets in a program without processes that parse.

    :raises ParsingUnavailable: always.
    """
    raise ParsingUnavailable("this program parses no documents")
