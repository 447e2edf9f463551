"""Reads and writes the origin of a ping: the brokers and lists by which it came here.

Brokers pass pings on to each other, and read each other's change lists.  So that no ping goes round
forever, each broker says by which ways a ping came.  A relay sends them in the header of its
request, the broker that it came from last at the end::

    Ping-Via: http://first.example http://second.example
    Ping-Time: 2026-09-29T11:57:41.250000Z

The second line is the time at which the ping was made.  A broker that learns of the same ping in
two ways, by a relay and from a list, recognises it by that time.

A change list has them in the attribute ``via`` of a ping, in the same form.  Both are additions of
this broker; other servers ignore them.

A broker is named by its public URL.  Two URLs mean the same broker if they have the same host and
port; the default ports of http and https count as the same, since a broker may serve both.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final
from urllib.parse import urlsplit

from attrs import evolve, frozen

from rsscloud_broker.model import Ping
from rsscloud_broker.wire.times import exact_iso_time
from rsscloud_broker.wire.web_address import fault_of

#: The names of the headers.
HEADER, TIME_HEADER = "Ping-Via", "Ping-Time"

#: By how many brokers a ping may have come.  Nobody has this many; a ping that says so goes round.
MAX_BROKERS: Final = 16

#: The largest number of characters of an origin.
MAX_ORIGIN: Final = 2048

_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?Z")

_DEFAULT_PORTS: Final = frozenset({None, 80, 443})


class BadOrigin(ValueError):
    """An origin cannot be used.  The text says why, for its sender."""


@frozen
class Passage:
    """What the headers of a request say about a ping.

    :ivar origin: see ``Ping``.
    :ivar made_at: when the ping was made; None if that is not said.
    """

    origin: str = ""
    made_at: float | None = None

    def of(self, ping: Ping) -> Ping:
        """A ping that has just come, as the headers say that it was made."""
        if not self.origin:
            return ping
        age = 0.0 if self.made_at is None else ping.received_at - self.made_at
        # The sender of an older ping is not believed: it counts as made when it came.
        believed = 0.0 < age <= 3600.0
        made_at = ping.received_at - age if believed else ping.received_at
        return evolve(ping, origin=self.origin, received_at=made_at)


def headers_of(ping: Ping, identity: str) -> dict[str, str]:
    """The headers with which a broker passes a ping on.

    :param identity: the URL by which others know this broker; empty if they cannot.
    """
    passed = extended(ping.origin, identity)
    if not passed:
        return {}
    return {HEADER.lower(): passed, TIME_HEADER.lower(): exact_iso_time(ping.received_at)}


def read_time(text: str) -> float | None:
    """Read the time of a ping, in UTC: ``2026-09-29T11:57:41Z``, perhaps with decimals.

    :returns: seconds since the epoch; None if the text is no such time.
    """
    if not _TIME.fullmatch(text):
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:  # for instance a 13th month
        return None


def read_origin(text: str) -> str:
    """Read an origin from a header or from an attribute.

    :returns: the URLs, separated by single blanks; empty if the text is.
    :raises BadOrigin: the text is too long, or has something else than URLs.
    """
    if not text:
        return ""
    if len(text) > MAX_ORIGIN:
        raise BadOrigin(f"{HEADER} has {len(text)} characters; at most {MAX_ORIGIN} are taken")
    brokers = text.replace(",", " ").split()
    if len(brokers) > MAX_BROKERS:
        raise BadOrigin(
            f"the ping has passed {len(brokers)} brokers, and at most {MAX_BROKERS} may be passed: "
            "it seems to go round"
        )
    for broker in brokers:
        if not broker.isascii() or fault_of(broker):
            raise BadOrigin(f"{HEADER} has something that is not the URL of a broker")
    return " ".join(brokers)


def extended(origin: str, broker: str) -> str:
    """An origin with one more broker or list at its end.

    :param broker: its URL; empty for a broker that other brokers cannot know by its URL.
    """
    return " ".join(filter(None, (origin, broker)))


def has_passed(origin: str, url: str) -> bool:
    """Whether a ping with an origin has passed the broker at a URL.

    :param url: any URL of that broker; empty for none.
    """
    if not origin or not url:
        return False
    site = _host_and_port(url)
    return any(_host_and_port(broker) == site for broker in origin.split())


def site_of(url: str) -> str:
    """The beginning of a URL, up to its host and port, which names the broker that serves it."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _host_and_port(url: str) -> tuple[str, int | None]:
    """Host and port by which brokers are compared; the port is None if it is a default."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return url, None
    return (parts.hostname or url).rstrip("."), None if port in _DEFAULT_PORTS else port
