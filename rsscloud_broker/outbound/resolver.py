"""Looks up host names with c-ares, for the outbound clients and the URL policy.

A subscriber names a host, whose name server may take any time to answer.  The system's resolver
would block a thread for that time, and other lookups would wait for a thread.  c-ares handles any
number of lookups at the same time, without threads, on sockets that the reactor watches.  It uses
the system's ``/etc/resolv.conf`` and ``/etc/hosts``, and caches answers for their time to live.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from socket import SOCK_STREAM, inet_aton, inet_ntoa
from typing import Any, TypeAlias

from pycares import ARES_SOCKET_BAD, AddrInfoResult, AresError, Channel, errno
from twisted.application.service import Service
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IDelayedCall, IReadDescriptor, IWriteDescriptor
from twisted.python.failure import Failure
from twisted.python.threadable import isInIOThread
from zope.interface import implementer

from rsscloud_broker.errors import Unavailable

#: Gives every address of a host name.  It raises OSError if the name has no address, and
#: Unavailable if the broker cannot look it up for want of its own means.
Resolve: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]

#: Seconds until c-ares asks a name server again, at most; it learns how fast the server is, and
#: then asks earlier, after a quarter of a second at least.  The time doubles with each try.  And
#: how often it asks: a server that has to ask others may be slow.
TIMEOUT, TRIES = 1.0, 5

#: Seconds after which c-ares checks again whether a lookup has timed out.
TICK = 0.25

#: How many names are cached before the cache is emptied, two kilobytes for each; and seconds
#: after which the system's configuration is read again.
KEPT, REFRESH = 5000, 60.0

#: The text of the error if no name server answers.
NO_ANSWER = "no name server has answered"

#: What is wrong with a name, in words.
_PROBLEMS = {
    errno.ARES_ENOTFOUND: "there is no such name",
    errno.ARES_ENODATA: "it has no address",
    errno.ARES_EBADNAME: "it is no name",
    errno.ARES_ETIMEOUT: NO_ANSWER,
    errno.ARES_ESERVFAIL: "its name server failed",
}

#: Statuses that say nothing about the name: the broker has no socket, memory or name server.
_OUR_OWN_WANT = {
    errno.ARES_ECONNREFUSED: "no name server can be reached",
    errno.ARES_ENOMEM: "there is no memory",
    errno.ARES_EFILE: "the system's configuration cannot be read",
    errno.ARES_ECANCELLED: "the broker stops",
    errno.ARES_EDESTRUCTION: "the broker stops",
}

#: A host that must be an IPv4 address in an unusual form (URL standard, "ends in a number").
_NUMBER = re.compile(r"(?:[^:]*\.)?(?:[0-9]+|0x[0-9a-f]*)\.?", re.IGNORECASE | re.ASCII)


class Resolver(Service):
    """A ``Resolve`` that gives every address of a host name once.  A service: it must run.

    :param servers: name servers, each as ADDRESS or ADDRESS:PORT; empty for those of the system.
    """

    name = "resolver"

    def __init__(self, reactor: Any, servers: Sequence[str] = ()) -> None:
        self._reactor = reactor
        self._servers = servers
        self._channel: Channel | None = None
        self._sockets: dict[int, _Socket] = {}
        self._changes: deque[tuple[int, bool, bool, int | None]] = deque()
        self._asked = 0
        self._found: list[tuple[Deferred[list[str]], list[str] | int]] = []
        self._timer: IDelayedCall | None = None

    def startService(self) -> None:
        super().startService()
        servers = list(self._servers) or None
        self._channel = Channel(
            servers=servers, timeout=TIMEOUT, tries=TRIES, sock_state_cb=self._watch
        )
        self._fresh()

    def stopService(self) -> None:
        super().stopService()
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.cancel()  # ends the lookups now; close() works in another thread
            channel.close()
            self._tell()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def __call__(self, host: str) -> Deferred[list[str]]:
        """Look up a host: a name in its ASCII form, or an address."""
        if _NUMBER.fullmatch(host):
            return _ipv4(host)
        if self._channel is None:
            return fail(Unavailable("names cannot be looked up: the broker stops"))
        if self._kept >= KEPT or self._reactor.seconds() >= self._stale_at:
            with contextlib.suppress(AresError):  # it could start no thread: next time
                self._channel.reinit()  # this also empties the cache
            self._fresh()
        self._kept += 1
        self._asked += 1
        looking: Deferred[list[str]] = Deferred()
        callback = partial(self._add_result, looking)
        self._channel.getaddrinfo(host, None, type=SOCK_STREAM, callback=callback)
        self._tell()
        return looking

    def _fresh(self) -> None:
        self._kept = 0
        self._stale_at = self._reactor.seconds() + REFRESH

    # --- called by c-ares, sometimes in a thread of its own, when it finds other name servers in
    # the system's configuration; the results are then passed on at the next tick

    def _watch(self, descriptor: int, reads: bool, writes: bool) -> None:
        """Start or stop watching a socket of c-ares."""
        # Watch a duplicate: c-ares may close its descriptor, and the system reuse the number,
        # before this object learns of it.
        self._changes.append((descriptor, reads, writes, _duplicate(descriptor)))
        if isInIOThread():
            self._follow()
        else:
            self._reactor.callFromThread(self._follow)

    def _follow(self) -> None:
        """Pass the requests of ``_watch`` on to the reactor, in order."""
        while self._changes:
            descriptor, reads, writes, duplicate = self._changes.popleft()
            watched = self._sockets.get(descriptor)
            if watched is None:
                watched = _Socket(descriptor, duplicate, self._process)
                self._sockets[descriptor] = watched
            elif duplicate is not None:
                os.close(duplicate)
            (self._reactor.addReader if reads else self._reactor.removeReader)(watched)
            (self._reactor.addWriter if writes else self._reactor.removeWriter)(watched)
            if not (reads or writes):
                self._sockets.pop(descriptor).close()

    def _add_result(
        self, looking: Deferred[list[str]], result: AddrInfoResult | None, status: int | None
    ) -> None:
        self._found.append((looking, _addresses(result) if result else status or 0))

    # --- called by the reactor

    def _process(self, read: int = ARES_SOCKET_BAD, written: int = ARES_SOCKET_BAD) -> None:
        """Have c-ares handle a ready socket, or its timeouts if there is none."""
        if self._channel is not None:
            self._channel.process_fd(read, written)
            self._tell()

    def _tell(self) -> None:
        """Fire the Deferreds of finished lookups.

        Not in the callbacks of c-ares, since whoever waits may look up another name at once.
        """
        while self._found:
            looking, found = self._found.pop(0)
            self._asked -= 1
            if not isinstance(found, int):
                looking.callback(found)
            elif found in _OUR_OWN_WANT:
                want = f"names cannot be looked up just now: {_OUR_OWN_WANT[found]}"
                looking.errback(Unavailable(want))
            else:
                looking.errback(OSError(_PROBLEMS.get(found) or errno.strerror(found)))
        if self._asked and self._timer is None and self._channel is not None:
            self._timer = self._reactor.callLater(TICK, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._process()


@implementer(IReadDescriptor, IWriteDescriptor)
class _Socket:
    """A socket of c-ares that the reactor watches.

    :param duplicate: another descriptor of the same socket, which is watched if there is one.
    """

    def __init__(
        self, descriptor: int, duplicate: int | None, process: Callable[[int, int], object]
    ) -> None:
        self._descriptor = descriptor
        self._duplicate = duplicate
        self._process = process

    def fileno(self) -> int:
        return self._descriptor if self._duplicate is None else self._duplicate

    def close(self) -> None:
        if self._duplicate is not None:
            os.close(self._duplicate)

    def logPrefix(self) -> str:
        return "names"

    def doRead(self) -> None:
        self._process(self._descriptor, ARES_SOCKET_BAD)

    def doWrite(self) -> None:
        self._process(ARES_SOCKET_BAD, self._descriptor)

    def connectionLost(self, reason: Failure = Failure(ConnectionDone())) -> None:  # noqa: B008
        """The reactor found an error; c-ares finds it too when it reads the socket."""
        self.doRead()


def _duplicate(descriptor: int) -> int | None:
    """A duplicate of a descriptor; None if the process has no descriptors left."""
    try:
        return os.dup(descriptor)
    except OSError:
        return None


def _addresses(result: AddrInfoResult) -> list[str]:
    found = (node.addr[0] for node in result.nodes)
    return list(dict.fromkeys(one.decode() if isinstance(one, bytes) else one for one in found))


def _ipv4(host: str) -> Deferred[list[str]]:
    """Parse an IPv4 address like ``inet_aton``: shortened, in octal, as one number."""
    try:
        return succeed([inet_ntoa(inet_aton(host.removesuffix(".")))])
    except OSError:
        return fail(OSError("it is no address"))
