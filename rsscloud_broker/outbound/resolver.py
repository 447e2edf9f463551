"""Looks up host names with c-ares, for the outbound clients and the URL policy.

A subscriber names a host, whose name server may take any time to answer.  The system's resolver
would block a thread for that time, and other lookups would wait for a thread.  c-ares handles any
number of lookups at the same time, without threads, on sockets that the reactor watches.  It uses
the system's ``/etc/resolv.conf`` and ``/etc/hosts``.  ``Names`` keeps the answers for their time to
live.  If a name is asked for while it is being looked up, all wait for the same answer.

A machine without a public IPv6 address prefers IPv4 (RFC 6724, section 5).  So for such a machine
the resolver asks for IPv6 addresses only if a name has no others.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from socket import AF_INET, AF_INET6, SOCK_STREAM, AddressFamily, inet_aton, inet_ntoa, inet_pton
from typing import Any, TypeAlias

from attrs import define
from pycares import ARES_SOCKET_BAD, AddrInfoResult, AresError, Channel, errno
from twisted.application.service import Service
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IDelayedCall, IReadDescriptor, IWriteDescriptor
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.python.threadable import isInIOThread
from zope.interface import implementer

from rsscloud_broker.errors import CallsUnavailable
from rsscloud_broker.outbound.names import Names
from rsscloud_broker.util.urls import is_localhost

#: Gives every address of a host name.  The Deferred fails with OSError if the name has no address,
#: and with CallsUnavailable if the broker cannot look it up for lack of its own means.
Resolve: TypeAlias = Callable[[str], Deferred[list[str]]]

#: Seconds until c-ares asks a name server again, at most; it learns how fast the server is, and
#: then asks earlier, after a quarter of a second at least.  The time doubles with each try.  And
#: how often it asks: a server that has to ask others may be slow.
TIMEOUT, TRIES = 1.0, 5

#: How many names c-ares looks up before its cache is emptied, two kilobytes for each and more if
#: a stranger wants it; and seconds after which the system's configuration is read again.
CACHED, REFRESH = 1000, 60.0

#: The text of the error if no name server answers.
NO_ANSWER = "no name server has answered"

#: Seconds for which the resolver says that it lacks a resource, unless a lookup succeeds earlier.
LACK_LASTS = 60.0

#: What is wrong with a name, in words.
_PROBLEMS = {
    errno.ARES_ENOTFOUND: "there is no such name",
    errno.ARES_ENODATA: "it has no address",
    errno.ARES_EBADNAME: "it is no name",
    errno.ARES_ETIMEOUT: NO_ANSWER,
    errno.ARES_ESERVFAIL: "its name server failed",
}

#: Statuses that say nothing about the name: the broker has no socket, memory or name server.
_OUR_OWN_LACK = {
    errno.ARES_ECONNREFUSED: "no name server can be reached",
    errno.ARES_ENOMEM: "there is no memory",
    errno.ARES_EFILE: "the system's configuration cannot be read",
    errno.ARES_ECANCELLED: "the broker stops",
    errno.ARES_EDESTRUCTION: "the broker stops",
}

#: Statuses after which a name may still have addresses of the other family.
_NONE_FOUND = frozenset({errno.ARES_ENOTFOUND, errno.ARES_ENODATA})

#: The flag ``ARES_AI_NOSORT`` of c-ares, which pycares does not name: to sort addresses opens a
#: socket for each, and changes nothing if all are of IPv4.
_NOSORT = 1 << 7

#: Both families.
_EITHER = AddressFamily.AF_UNSPEC

#: A public IPv6 address, whichever; nothing is sent to it.
_ANY_PUBLIC = "2000::1"

#: A host that must be an IPv4 address in an unusual form (URL standard, "ends in a number").
_NUMBER = re.compile(r"(?:[^:]*\.)?(?:[0-9]+|0x[0-9a-f]*)\.?", re.IGNORECASE | re.ASCII)


class Resolver(Service):
    """A ``Resolve`` that gives every address of a host name once.  A service: it must run.

    :param servers: name servers, each as ADDRESS or ADDRESS:PORT; empty for those of the system.
    """

    name = "resolver"
    log = Logger()

    def __init__(self, reactor: Any, servers: Sequence[str] = ()) -> None:
        self._reactor = reactor
        self._servers = servers
        self._channel: Channel | None = None
        self._sockets: dict[int, _Socket] = {}  # those that are watched, by c-ares's descriptors
        self._changes: deque[tuple[int, bool, bool, int | None]] = deque()  # what ``_watch`` got
        self._names = Names(reactor)
        self._waiting: dict[str, list[Deferred[list[str]]]] = {}  # who waits for which host
        self._results: deque[tuple[str, AddressFamily, AddrInfoResult | int]] = deque()
        self._is_handling = False  # whether ``_handle_results`` runs
        self._timer: IDelayedCall | None = None
        # Why a lookup failed for a lack of the broker's own means, empty after a success; and when.
        self._lack, self._lacked_at = "", -LACK_LASTS

    def startService(self) -> None:
        super().startService()
        servers = list(self._servers) or None
        self._channel = Channel(
            servers=servers, timeout=TIMEOUT, tries=TRIES, sock_state_cb=self._watch
        )
        self._note_fresh_cache()

    def stopService(self) -> None:
        super().stopService()
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.cancel()  # ends the lookups now; close() works in another thread
            channel.close()
            self._handle_results()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def lookups(self) -> int:
        """How many names are being looked up."""
        return len(self._waiting)

    def check(self) -> None:
        """Return if names can be looked up, by what the latest lookups have shown.

        :raises CallsUnavailable: they cannot; the text says why.
        """
        if self._channel is None:
            raise CallsUnavailable("names cannot be looked up: the resolver does not run")
        if self._lack and self._reactor.seconds() < self._lacked_at + LACK_LASTS:
            raise CallsUnavailable(self._lack)

    def __call__(self, host: str) -> Deferred[list[str]]:
        """Look up a host: a name in its ASCII form, or an address.  The Deferred fires with its
        addresses: at once if they are kept, else with all others who wait for the same host.
        """
        if is_localhost(host):  # c-ares knows it without a dot at its end only
            host = host.removesuffix(".")
        kept = self._names.get(host)
        if kept is not None:
            return succeed(kept)
        if _NUMBER.fullmatch(host):
            return _parse_ipv4(host)
        if self._channel is None:
            return fail(CallsUnavailable("names cannot be looked up: the broker stops"))
        looking: Deferred[list[str]] = Deferred()
        others = self._waiting.get(host)
        if others is not None:
            others.append(looking)
            return looking
        if self._asked >= CACHED or self._reactor.seconds() >= self._stale_at:
            with contextlib.suppress(AresError):  # it could start no thread: next time
                self._channel.reinit()  # this also empties the cache
            self._note_fresh_cache()
        self._asked += 1
        self._ask(host, AF_INET if self._prefers_ipv4 and ":" not in host else _EITHER)
        self._waiting[host] = [looking]
        self._handle_results()
        return looking

    def _ask(self, host: str, family: AddressFamily) -> None:
        """Have c-ares look up the addresses of a host, of one family or of either."""
        assert self._channel is not None
        self._channel.getaddrinfo(
            host,
            None,
            family=family,
            type=SOCK_STREAM,
            flags=_NOSORT if family == AF_INET else 0,
            callback=partial(self._add_result, host, family),
        )

    def _note_fresh_cache(self) -> None:
        """Note that c-ares's cache is empty now, when it is stale, and which family to ask for."""
        self._asked = 0
        self._stale_at = self._reactor.seconds() + REFRESH
        self._prefers_ipv4 = not has_public_ipv6()

    # --- called by c-ares, sometimes in a thread of its own, when it finds other name servers in
    # the system's configuration; the results are then passed on at the next tick

    def _watch(self, descriptor: int, reads: bool, writes: bool) -> None:
        """Start or stop watching a socket of c-ares."""
        # Watch a duplicate: c-ares may close its descriptor, and the system reuse the number,
        # before this object learns of it.
        self._changes.append((descriptor, reads, writes, _duplicate(descriptor)))
        if isInIOThread():
            self._apply_changes()
        else:
            self._reactor.callFromThread(self._apply_changes)

    def _apply_changes(self) -> None:
        """Have the reactor watch the sockets as ``_watch`` was asked, in order."""
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
        self, host: str, family: AddressFamily, result: AddrInfoResult | None, status: int | None
    ) -> None:
        """Keep a result for ``_handle_results``: addresses, or a status of c-ares if none."""
        self._results.append((host, family, result or status or 0))

    # --- called by the reactor

    def _process(self, read: int = ARES_SOCKET_BAD, written: int = ARES_SOCKET_BAD) -> None:
        """Have c-ares handle a ready socket, or its timeouts if there is none."""
        if self._channel is not None:
            self._channel.process_fd(read, written)
            self._handle_results()

    def _handle_results(self) -> None:
        """End finished lookups, or ask again for IPv6; while others go on, set the timer for them.

        The callbacks of c-ares do not call this, since who waits may look up a name at once.
        """
        if self._is_handling:
            return  # a caller has looked up another name
        self._is_handling = True
        while self._results:
            host, family, found = self._results.popleft()
            try:
                has_none = isinstance(found, int) and found in _NONE_FOUND
                if has_none and family == AF_INET and self._channel is not None:
                    self._ask(host, AF_INET6)
                else:
                    self._end_lookup(host, found)
            except Exception as error:  # log a bug; other lookups go on
                self.log.failure("Looking up {host} failed.", host=host)
                for looking in self._waiting.pop(host, ()):
                    looking.errback(OSError(f"its name could not be looked up: {error}"))
        self._is_handling = False
        if self._waiting and self._timer is None and self._channel is not None:
            # c-ares asks again after a quarter of a second at the earliest.
            self._timer = self._reactor.callLater(0.25, self._check_timeouts)

    def _end_lookup(self, host: str, found: AddrInfoResult | int) -> None:
        """End a lookup: give everybody who waits the addresses of the host, or an error."""
        problem: Exception | None = None
        addresses: list[str] = []
        if not isinstance(found, int):
            self._lack = ""
            addresses = _addresses(found)
            self._names.keep(host, addresses, _time_to_live(found))
        elif found in _OUR_OWN_LACK:
            lack = f"names cannot be looked up just now: {_OUR_OWN_LACK[found]}"
            self._lack, self._lacked_at = lack, self._reactor.seconds()
            problem = CallsUnavailable(lack)
        else:
            problem = OSError(_PROBLEMS.get(found) or errno.strerror(found))
        for looking in self._waiting.pop(host):
            if problem is None:
                looking.callback(addresses)
            else:
                looking.errback(problem)

    def _check_timeouts(self) -> None:
        self._timer = None
        self._process()


@implementer(IReadDescriptor, IWriteDescriptor)
@define(eq=False)
class _Socket:
    """A socket of c-ares that the reactor watches.

    :param duplicate: another descriptor of the same socket, which is watched if there is one.
    """

    _descriptor: int
    _duplicate: int | None
    _process: Callable[[int, int], object]

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
    try:
        return os.dup(descriptor)
    except OSError:
        return None


def _addresses(result: AddrInfoResult) -> list[str]:
    found = (node.addr[0] for node in result.nodes)
    return list(dict.fromkeys(one.decode() if isinstance(one, bytes) else one for one in found))


def _time_to_live(result: AddrInfoResult) -> int:
    """Seconds for which addresses are valid, and the names that lead to them."""
    seconds = [node.ttl for node in result.nodes] + [name.ttl for name in result.cnames]
    return min(seconds, default=0)


def has_public_ipv6() -> bool:
    """Whether this machine would call public IPv6 addresses from a public one (RFC 4291)."""
    with contextlib.suppress(OSError), socket.socket(AF_INET6, socket.SOCK_DGRAM) as probe:
        probe.connect((_ANY_PUBLIC, 53))
        source = inet_pton(AF_INET6, probe.getsockname()[0])
        return source[0] >> 5 == 1  # 2000::/3
    return False


def _parse_ipv4(host: str) -> Deferred[list[str]]:
    """Parse an IPv4 address like ``inet_aton``: shortened, in octal, as one number."""
    try:
        return succeed([inet_ntoa(inet_aton(host.removesuffix(".")))])
    except OSError:
        return fail(OSError("it is no address"))
