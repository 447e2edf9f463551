"""Where the broker listens: endpoint strings of Twisted, made into services."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from twisted.application import strports
from twisted.application.service import IService
from twisted.internet.protocol import Factory

from rsscloud_broker.config import ConfigError
from rsscloud_broker.front_doors.adopting import Adopting
from rsscloud_broker.front_doors.certificates import Certificate

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
        service: IService = strports.service(description, site, reactor=adopting)
    except Exception as error:  # the parsers of endpoints raise whatever they like
        reason = str(error)
        if description.startswith(SYSTEMD) and isinstance(error, LookupError):
            reason = "systemd has passed no such socket; start the broker by its socket unit"
        raise ConfigError(f"listen: {description!r} is no endpoint to use: {reason}") from error
    return service


def check_endpoints(descriptions: Iterable[str], where: str, reactor: Any) -> None:
    """Find endpoints that are none.

    :param where: what names them, for the message.
    :raises ConfigError: with a line for each.
    """
    problems = []
    for description in descriptions:
        if description.startswith(SYSTEMD):
            continue  # its sockets are there for who is started by systemd
        try:
            listener(description, Factory(), reactor)
        except ConfigError as error:
            problems.append(f"{where}: {error}")
    if problems:
        raise ConfigError("\n".join(problems))
