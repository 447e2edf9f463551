"""Looks host names up, by the system's resolver."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

#: Gives every address of a host name; raises OSError where there is none.
Resolve: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]

#: Calls a function in a thread kept for looking names up, so that a name server
#: that hangs stops neither the reactor nor the store.
InThread = Callable[[Callable[[str], list[str]], str], Awaitable[list[str]]]


class Resolver:
    """Gives every address of a host name, each once; raises OSError where there is none."""

    def __init__(self, in_thread: InThread) -> None:
        self._in_thread = in_thread

    def __call__(self, host: str) -> Awaitable[list[str]]:
        return self._in_thread(addresses, host)


def addresses(host: str) -> list[str]:
    """Look a name up; blocks."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))
