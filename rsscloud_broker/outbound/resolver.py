"""Looks host names up.

Who subscribes names a host, and that host's name server may take any time to answer,
or never do so.  The system's own resolver would hold a thread for as long, and those
whose name servers are well would wait for one.  So names are looked up by c-ares, which
asks for any number of them at a time, and has the reactor wait for the answers.  It goes
by the system's ``/etc/resolv.conf`` and ``/etc/hosts``, and keeps what it has found for
as long as it is good.
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

#: Gives every address of a host name; raises OSError where there is none, and Unavailable
#: where that cannot be found out for want of our own means.
Resolve: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]

#: Seconds until a name server is asked again, at the most: c-ares soon knows how fast it is
#: and asks earlier, after a quarter of a second at the least.  Each further time is twice as
#: long.  And how often it is asked: one that has to ask others takes its time.
TIMEOUT, TRIES = 1.0, 5

#: Seconds between two looks at whether it is time to ask again.
TICK = 0.25

#: Names whose addresses are kept, two kilobytes for each; and seconds after which
#: the configuration of the system is read anew.
KEPT, REFRESH = 5000, 60.0

#: What is wrong with a name, in words.
_PROBLEMS = {
    errno.ARES_ENOTFOUND: "there is no such name",
    errno.ARES_ENODATA: "it has no address",
    errno.ARES_EBADNAME: "it is no name",
    errno.ARES_ETIMEOUT: "no name server has answered",
    errno.ARES_ESERVFAIL: "its name server failed",
}

#: Statuses that say nothing of the name: there is no socket, memory or name server.
_OUR_OWN_WANT = {
    errno.ARES_ECONNREFUSED: "no name server can be reached",
    errno.ARES_ENOMEM: "there is no memory",
    errno.ARES_EFILE: "the system's configuration cannot be read",
    errno.ARES_ECANCELLED: "the broker stops",
    errno.ARES_EDESTRUCTION: "the broker stops",
}

#: A host that must be an IPv4 address, though not in its usual form (URL standard,
#: "ends in a number").
_NUMBER = re.compile(r"(?:[^:]*\.)?(?:[0-9]+|0x[0-9a-f]*)\.?", re.IGNORECASE | re.ASCII)


class Resolver(Service):
    """Gives every address of a host name, each once; see ``Resolve``.

    :param servers: name servers, ADDRESS or ADDRESS:PORT each; those of the system if
        there are none.
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
            channel.cancel()  # now: to close it is the work of another thread
            channel.close()
            self._tell()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def __call__(self, host: str) -> Deferred[list[str]]:
        """Look a host up: a name in its ASCII form, or an address."""
        if _NUMBER.fullmatch(host):
            return _ipv4(host)
        if self._channel is None:
            return fail(Unavailable("names cannot be looked up: the broker stops"))
        if self._kept >= KEPT or self._reactor.seconds() >= self._stale_at:
            with contextlib.suppress(AresError):  # it has no thread for that: later, then
                self._channel.reinit()  # what has been found is forgotten then, too
            self._fresh()
        self._kept += 1
        self._asked += 1
        looking: Deferred[list[str]] = Deferred()
        found = partial(self._take, looking)
        self._channel.getaddrinfo(host, None, type=SOCK_STREAM, callback=found)
        self._tell()
        return looking

    def _fresh(self) -> None:
        self._kept = 0
        self._stale_at = self._reactor.seconds() + REFRESH

    # --- c-ares calls: from a thread of its own, too, where it finds other name servers in
    # the system's configuration; what it has to tell is passed on at the next tick then

    def _watch(self, descriptor: int, reads: bool, writes: bool) -> None:
        """Watch a socket, or do not any more."""
        # A descriptor of our own: theirs may be closed, and be another's, before we know.
        self._changes.append((descriptor, reads, writes, _another(descriptor)))
        if isInIOThread():
            self._follow()
        else:
            self._reactor.callFromThread(self._follow)

    def _follow(self) -> None:
        """Watch what there is to watch, in the order in which c-ares said so."""
        while self._changes:
            descriptor, reads, writes, own = self._changes.popleft()
            watched = self._sockets.get(descriptor)
            if watched is None:
                watched = self._sockets[descriptor] = _Socket(descriptor, own, self._process)
            elif own is not None:
                os.close(own)
            (self._reactor.addReader if reads else self._reactor.removeReader)(watched)
            (self._reactor.addWriter if writes else self._reactor.removeWriter)(watched)
            if not (reads or writes):
                self._sockets.pop(descriptor).close()

    def _take(
        self, looking: Deferred[list[str]], result: AddrInfoResult | None, status: int | None
    ) -> None:
        self._found.append((looking, _addresses(result) if result else status or 0))

    # --- our own

    def _process(self, read: int = ARES_SOCKET_BAD, written: int = ARES_SOCKET_BAD) -> None:
        """Have c-ares look at a socket, or at how late it is."""
        if self._channel is not None:
            self._channel.process_fd(read, written)
            self._tell()

    def _tell(self) -> None:
        """Pass on what has been found; only now, for who is told may ask for more."""
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
    """A socket of c-ares, as the reactor watches it.

    :param own: a descriptor of the same socket that is ours, if there is one.
    """

    def __init__(
        self, descriptor: int, own: int | None, process: Callable[[int, int], object]
    ) -> None:
        self._descriptor = descriptor
        self._own = own
        self._process = process

    def fileno(self) -> int:
        return self._descriptor if self._own is None else self._own

    def close(self) -> None:
        if self._own is not None:
            os.close(self._own)

    def logPrefix(self) -> str:
        return "names"

    def doRead(self) -> None:
        self._process(self._descriptor, ARES_SOCKET_BAD)

    def doWrite(self) -> None:
        self._process(ARES_SOCKET_BAD, self._descriptor)

    def connectionLost(self, reason: Failure = Failure(ConnectionDone())) -> None:  # noqa: B008
        """The reactor has found an error: c-ares finds it by reading."""
        self.doRead()


def _another(descriptor: int) -> int | None:
    """Another descriptor of the same socket; None if there can be no more."""
    try:
        return os.dup(descriptor)
    except OSError:
        return None


def _addresses(result: AddrInfoResult) -> list[str]:
    found = (node.addr[0] for node in result.nodes)
    return list(dict.fromkeys(one.decode() if isinstance(one, bytes) else one for one in found))


def _ipv4(host: str) -> Deferred[list[str]]:
    """Read an IPv4 address as systems have always done: shortened, in octal, as one number."""
    try:
        return succeed([inet_ntoa(inet_aton(host.removesuffix(".")))])
    except OSError:
        return fail(OSError("it is no address"))
