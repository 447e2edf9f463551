"""Where the broker listens: endpoint strings of Twisted, made into services.

An endpoint can be tried beforehand, without listening to anybody.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from twisted.application import strports
from twisted.application.service import IService
from twisted.internet.abstract import isIPv6Address
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import serverFromString
from twisted.internet.error import CannotListenError
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure

from rsscloud_broker.config import ConfigError
from rsscloud_broker.front_doors.adopting import Adopting
from rsscloud_broker.front_doors.certificates import TLS, Certificate, tls_options
from rsscloud_broker.front_doors.endpoint_text import arguments

#: What begins the name of a socket that systemd passes on, and nobody else.
SYSTEMD = "systemd:"


def listener(
    description: str, site: Any, reactor: Any, certificates: list[Certificate] | None = None
) -> IService:
    """A service that listens once it is started.

    :param description: such as ``tcp:5337``.
    :param site: the factory of what answers.
    :param certificates: takes the certificate of this listener as well, once it listens.
    :raises ConfigError: it is no endpoint, or needs what is not there.
    """
    adopting: Any = Adopting(reactor, description, [] if certificates is None else certificates)
    try:
        if description.startswith(TLS):
            tls_options(description, reactor)
        service: IService = strports.service(description, site, reactor=adopting)
    except Exception as error:  # the parsers of endpoints raise whatever they like
        reason = str(error)
        if description.startswith(SYSTEMD) and isinstance(error, LookupError):
            reason = "systemd has passed no such socket; start the broker by its socket unit"
        raise ConfigError(f"listen: {description!r} is no endpoint to use: {reason}") from error
    return service


def check_endpoints(descriptions: Iterable[str], where: str, reactor: Any) -> None:
    """Find endpoints that are none.

    :param where: what names them, for the message; empty if the reader knows.
    :raises ConfigError: with a line for each.
    """
    problems = []
    for description in descriptions:
        try:
            listener(description, Factory(), reactor)
        except ConfigError as error:
            if not _is_for_systemd(description, error):
                problems.append(f"{where}: {error}" if where else str(error))
    if problems:
        raise ConfigError("\n".join(problems))


def _is_for_systemd(description: str, error: ConfigError) -> bool:
    """Whether an endpoint fails only because this process was not started by systemd.

    Twisted looks the socket up by its number or name before it looks at the domain.

    :param error: what ``listener`` has raised.
    """
    if not description.startswith(SYSTEMD) or not isinstance(error.__cause__, LookupError):
        return False
    domain = arguments(description, "domain").get("domain", "")
    return hasattr(socket, f"AF_{domain}")


# --- trying -----------------------------------------------------------------

#: The kinds of endpoints that can be tried; others may be anybody's code.
_TRIED = ("tcp", "tcp6", "ssl", "unix")


def can_be_tried(description: str) -> bool:
    """Whether an endpoint is one for ``why_not``.

    Sockets that systemd passes on are not, nor are endpoints of kinds that come from elsewhere.
    """
    return description.partition(":")[0] in _TRIED


def why_not(description: str) -> OSError | CannotListenError | None:
    """What would keep the broker from listening now; None if nothing would.

    Nobody is listened to, and no file is made.

    :param description: an endpoint that ``check_endpoints`` and ``can_be_tried`` accept.
    """
    trial: Any = _Trial()
    found: list[OSError | CannotListenError] = []

    def failed(failure: Failure) -> None:
        failure.trap(CannotListenError, OSError)
        found.append(failure.value)  # type: ignore[arg-type] # it is one of these two

    listening: Deferred[Any] = serverFromString(trial, description).listen(Factory())
    listening.addErrback(failed)
    return found[0] if found else None


def is_busy(error: OSError | CannotListenError) -> bool:
    """Whether somebody else listens there."""
    if isinstance(error, CannotListenError) and not isinstance(error.port, int):
        return _number(error) == errno.EADDRINUSE and not _is_other_file(error.port)
    return _number(error) == errno.EADDRINUSE


def sentence(error: OSError | CannotListenError) -> str:
    """Why the broker cannot listen, and what to do, for people."""
    number = _number(error)
    if not isinstance(error, CannotListenError):  # where a UNIX socket was to be
        path = os.fsdecode(error.filename2 or error.filename or "")
        return f"cannot listen: {path}: {error.strerror}; --listen names another address"
    if not isinstance(error.port, int):  # likewise
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


def _number(error: OSError | CannotListenError) -> int | None:
    cause = error.socketError if isinstance(error, CannotListenError) else error
    number: int | None = getattr(cause, "errno", None)
    return number


class _Trial:
    """A reactor that only tries whether it could listen."""

    def listenTCP(
        self, port: int, factory: Factory[Any], backlog: int = 50, interface: str = ""
    ) -> None:
        """See ``IReactorTCP``; nothing listens afterwards."""
        family = socket.AF_INET6 if isIPv6Address(interface) else socket.AF_INET
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((interface, port))
            except OSError as error:
                raise CannotListenError(interface, port, error) from error

    def listenSSL(
        self,
        port: int,
        factory: Factory[Any],
        contextFactory: object,
        backlog: int = 50,
        interface: str = "",
    ) -> None:
        """See ``IReactorSSL``."""
        self.listenTCP(port, factory, backlog, interface)

    def listenUNIX(
        self,
        address: str,
        factory: Factory[Any],
        backlog: int = 50,
        mode: int = 0o666,
        wantPID: bool = False,
    ) -> None:
        """See ``IReactorUNIX``.

        With a lock beside it, a file is removed that is left from a broker which was killed.
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
    """Whether the path of a UNIX socket leads to a file that is none."""
    try:
        return bool(address) and not stat.S_ISSOCK(os.stat(address).st_mode)  # type: ignore[arg-type]
    except OSError:
        return False


def _is_left_over(address: str) -> bool:
    """Whether there is a UNIX socket at which nobody listens."""
    if _is_other_file(address):
        return False
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(address) != 0
