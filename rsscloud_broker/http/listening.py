"""Makes services that listen from Twisted's endpoint strings, such as ``tcp:5337``.

``composition`` uses it at the start; ``start_checks`` tries the endpoints before that, without
listening.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from twisted.application import strports
from twisted.application.service import IService
from twisted.internet.abstract import isIPv6Address
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import serverFromString
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure
from zope.interface import directlyProvides, providedBy

from rsscloud_broker.config import ConfigError
from rsscloud_broker.config.endpoint_text import arguments
from rsscloud_broker.http.certificates import TLS, Certificate, tls_options
from rsscloud_broker.util.twisted_overrides.adopted_port import AdoptedPort

#: Endpoints that begin with this are sockets that systemd passes to the broker.
SYSTEMD = "systemd:"

#: How many connections wait in the system's queue until the broker accepts them, unless an endpoint
#: says another number.  Twisted's 50 are too few for all the browsers that come again after a
#: restart: the system ignores the others, and they wait for seconds until they try again.
BACKLOG = 1024

#: The kinds of endpoints that have a queue, with their positional arguments.
_POSITIONS = {
    "tcp": ("port", "interface", "backlog"),
    "tcp6": ("port", "interface", "backlog"),
    "ssl": ("port",),
    "unix": ("address", "mode", "backlog"),
}


def listener(
    description: str, site: Any, reactor: Any, certificates: list[Certificate] | None = None
) -> IService:
    """Make a service that listens on an endpoint once it is started.

    :param description: the endpoint, such as ``tcp:5337``.
    :param certificates: the list to which the endpoint's certificate is added once it listens.
    :raises ConfigError: the text is not an endpoint, or a file or socket that it names is missing.
    """
    adopting: Any = _AdoptingReactor(
        reactor, description, [] if certificates is None else certificates
    )
    try:
        if description.startswith(TLS):
            tls_options(description, reactor)
        service: IService = strports.service(_with_backlog(description), site, reactor=adopting)
    except Exception as error:  # parsers of endpoints raise exceptions of any class
        reason = str(error)
        if description.startswith(SYSTEMD) and isinstance(error, LookupError):
            reason = "systemd has passed no such socket; start the broker by its socket unit"
        raise ConfigError(f"listen: {description!r} is no endpoint to use: {reason}") from error
    return service


class _AdoptingReactor:
    """The reactor for one endpoint; it passes on everything but the methods below.

    A listener with TLS can read its certificate again while it runs: see ``certificates``.  A UNIX
    socket that systemd has opened stays as systemd made it: see ``twisted_overrides.adopted_port``.

    :param certificates: the list to which the endpoint's certificate is added, if it listens
        with TLS.
    :ivar adopted_port: the port of a socket of TCP that systemd has opened, once the broker uses
        it; 0 for all others.
    """

    adopted_port = 0

    def __init__(self, reactor: Any, description: str, certificates: list[Certificate]) -> None:
        self._reactor = reactor
        self._description = description
        self._certificates = certificates
        directlyProvides(self, providedBy(reactor))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reactor, name)

    def listenSSL(
        self, port: int, factory: Factory[Any], contextFactory: Any, **where: Any
    ) -> IListeningPort:
        """Listen as ``IReactorSSL`` does, with a certificate that can be read again."""
        certificate = Certificate(self._description, contextFactory)
        self._certificates.append(certificate)
        listening: IListeningPort = self._reactor.listenSSL(port, factory, certificate, **where)
        return listening

    def adoptStreamPort(
        self, fileDescriptor: int, addressFamily: int, factory: Factory[Any]
    ) -> IListeningPort:
        """Listen as ``IReactorSocket`` does, but leave a UNIX socket as it was found."""
        if addressFamily == socket.AF_UNIX:
            return AdoptedPort.adopt(fileDescriptor, factory, self._reactor)
        port: IListeningPort = self._reactor.adoptStreamPort(fileDescriptor, addressFamily, factory)
        where: Any = port.getHost()
        self.adopted_port = where.port
        return port


def adopted_port(service: Any) -> int:
    """The port of the socket of TCP that systemd has opened for a listener; 0 for all others."""
    reactor = getattr(getattr(service, "endpoint", None), "reactor", None)
    return reactor.adopted_port if isinstance(reactor, _AdoptingReactor) else 0


def _with_backlog(description: str) -> str:
    """The description of an endpoint, with ``BACKLOG`` if it can have one and names none."""
    positions = _POSITIONS.get(description.partition(":")[0])
    if positions is None or "backlog" in arguments(description, *positions):
        return description
    return f"{description}:backlog={BACKLOG}"


def check_endpoints(
    descriptions: Iterable[str], reactor: Any, *, beside: Iterable[str] = ()
) -> None:
    """Check that texts are endpoints that the broker can use, without listening.

    The sockets that systemd gives to the service alone are missing here, which is no fault.

    :param beside: endpoints that the broker listens on already, and goes on to.
    :raises ConfigError: some are not; the text has a line for each.
    """
    descriptions = list(descriptions)
    problems = list(_conflicts([*beside, *descriptions]))
    for description in descriptions:
        try:
            listener(description, Factory(), reactor)
        except ConfigError as error:
            if not _is_for_systemd(description, error):
                problems.append(str(error))
    if problems:
        raise ConfigError("\n".join(problems))


def _conflicts(descriptions: Sequence[str]) -> Iterator[str]:
    """A fault for each endpoint of TCP where another one already listens."""
    for first, second in combinations(descriptions, 2):
        (port, address), (other_port, other) = _place(first), _place(second)
        both = {address, other}
        if (":" in address) == (":" in other):
            overlap = len(both) == 1 or bool(both & {"", "0.0.0.0", "::"})  # noqa: S104
        else:
            overlap = "::" in both and _takes_ipv4()
        if port == other_port and int(port) and overlap:
            yield f"listen: {second!r} is the port at which {first!r} listens already"


def _takes_ipv4() -> bool:
    """Whether what listens at all addresses of IPv6 also listens at those of IPv4.

    So it is on Linux, unless ``net.ipv6.bindv6only`` is set.
    """
    try:
        with socket.socket(socket.AF_INET6) as one:
            return not one.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
    except OSError:  # there is no IPv6
        return False


def _place(description: str) -> tuple[str, str]:
    """The port and the address of an endpoint of TCP; the port is 0 if it is not known."""
    kind = description.partition(":")[0]
    if kind not in _POSITIONS:
        return "0", ""
    found = arguments(description, *_POSITIONS[kind])
    port, everywhere = found.get("port", ""), "::" if kind == "tcp6" else ""
    return port if port.isdecimal() else "0", found.get("interface", everywhere)


def _is_for_systemd(description: str, error: ConfigError) -> bool:
    """Whether an endpoint fails only because this process was not started by systemd.

    Twisted looks for the socket before it checks the domain, so the domain is checked here.

    :param error: the error that `listener` has raised.
    """
    if not description.startswith(SYSTEMD) or not isinstance(error.__cause__, LookupError):
        return False
    domain = arguments(description, "domain").get("domain", "")
    return hasattr(socket, f"AF_{domain}")


# --- trying -----------------------------------------------------------------

#: The kinds of endpoints that can be tried; others may come from third parties.
_TRIED = ("tcp", "tcp6", "ssl", "unix")


def can_be_tried(description: str) -> bool:
    """Whether `listening_error` can try an endpoint.

    It can try neither sockets that systemd passes on, nor the endpoints of third parties.
    """
    return description.partition(":")[0] in _TRIED


def listening_error(description: str) -> OSError | CannotListenError | None:
    """Return the error with which listening on an endpoint would fail now.

    It tries to listen, but accepts no connections and makes no file.

    :param description: an endpoint that `check_endpoints` and `can_be_tried` accept.
    :returns: None if the broker could listen.
    """
    trial: Any = _TrialReactor()
    found: list[OSError | CannotListenError] = []

    def failed(failure: Failure) -> None:
        failure.trap(CannotListenError, OSError)
        found.append(failure.value)  # type: ignore[arg-type] # it is one of these two

    listening: Deferred[Any] = serverFromString(trial, description).listen(Factory())
    listening.addErrback(failed)
    return found[0] if found else None


def is_busy(error: OSError | CannotListenError) -> bool:
    """Whether the broker cannot listen because another process does."""
    if isinstance(error, CannotListenError) and not isinstance(error.port, int):
        return _errno_of(error) == errno.EADDRINUSE and not _is_other_file(error.port)
    return _errno_of(error) == errno.EADDRINUSE


def sentence(error: OSError | CannotListenError) -> str:
    """Say, for the operator, why the broker cannot listen, and what to do."""
    number = _errno_of(error)
    if not isinstance(error, CannotListenError):  # the path of a UNIX socket
        path = os.fsdecode(error.filename2 or error.filename or "")
        return f"cannot listen: {path}: {error.strerror}; --listen names another address"
    if not isinstance(error.port, int):  # the path of a UNIX socket, too
        if _is_other_file(error.port):
            return (
                f"cannot listen: {os.fsdecode(error.port)} is a file and no socket: remove it, or "
                "name another address with --listen"
            )
        why = os.strerror(number) if number else str(error.socketError)
        return f"cannot listen: {os.fsdecode(error.port)}: {why}; --listen names another address"
    if number in {errno.EACCES, errno.EPERM} and error.port < 1024:
        return (
            f"cannot listen on port {error.port}: ports below 1024 need rights; have systemd open "
            "it (a socket unit, as in tap/), give the service "
            "AmbientCapabilities=CAP_NET_BIND_SERVICE, or name another port with --listen"
        )
    if number == errno.EADDRNOTAVAIL:
        return (
            f"cannot listen on {error.interface}: this machine has no such address; "
            "--listen names another"
        )
    again = " Is a broker running already?" if is_busy(error) else ""
    return f"{error}{again} --listen names another address."


def _errno_of(error: OSError | CannotListenError) -> int | None:
    """The system's number of an error (errno); None if it has none."""
    cause = error.socketError if isinstance(error, CannotListenError) else error
    number: int | None = getattr(cause, "errno", None)
    return number


class _TrialReactor:
    """A reactor that does not listen: it raises the error that listening would meet."""

    def listenTCP(
        self, port: int, factory: Factory[Any], backlog: int = 50, interface: str = ""
    ) -> None:
        """Raise the error that listening would meet: see ``IReactorTCP``.  The socket is closed."""
        family = socket.AF_INET6 if isIPv6Address(interface) else socket.AF_INET
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((interface, port))
            except OSError as error:
                raise CannotListenError(interface, port, error) from error

    def listenSSL(
        self, port: int, factory: Factory[Any], contextFactory: object, **where: Any
    ) -> None:
        """Raise the error that ``listenTCP`` raises: see ``IReactorSSL``."""
        self.listenTCP(port, factory, **where)

    def listenUNIX(
        self, address: str, factory: Factory[Any], wantPID: bool = False, **others: object
    ) -> None:
        """Raise the error that listening on a UNIX socket would meet: see ``IReactorUNIX``.

        A socket file that a killed broker has left is no error if its lock is there too: with
        the lock, Twisted removes the file.
        """
        path = Path(address)
        if not os.path.exists(path):
            if not os.access(path.parent, os.W_OK | os.X_OK, effective_ids=True):
                there = os.path.exists(path.parent)
                number = errno.EACCES if there else errno.ENOENT
                raise OSError(number, os.strerror(number), address)
        elif not wantPID or not os.path.lexists(f"{address}.lock") or not _is_left_over(address):
            busy = OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
            raise CannotListenError(None, address, busy)


def _is_other_file(address: str | bytes | None) -> bool:
    """Whether a path leads to a file that is not a socket."""
    try:
        return bool(address) and not stat.S_ISSOCK(os.stat(address).st_mode)  # type: ignore[arg-type]
    except OSError:
        return False


def _is_left_over(address: str) -> bool:
    """Whether a path leads to a UNIX socket on which nobody listens any more."""
    if _is_other_file(address):
        return False
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(address) != 0
