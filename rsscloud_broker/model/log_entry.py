"""The entries of the event log: what the broker did, or refused to do, and why.

The event log is for people.  A sink writes an entry for each event on the bus; pages and commands
read the entries.  Do not confuse it with the log of the process, which ``logs`` writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from attrs import field

from rsscloud_broker.model.frozen import frozen

#: The kinds of entries, and the outcomes that each may have.
KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "ping": ("accepted", "repeated", "refused"),
    "fetch": ("changed", "unchanged", "failed"),
    "topic": ("ended", "revived", "moved"),
    "subscription": (
        "requested",
        "verified",
        "renewed",
        "denied",
        "unsubscribed",
        "expired",
        "dropped",
    ),
    "fan-out": ("begun", "ended"),
    "notification": ("delivered", "failed", "given up"),
    "host": ("unreachable", "reachable"),
    "relay": ("delivered", "failed", "skipped"),
    "administration": ("done",),
}


@frozen
class LogEntry:
    """One entry of the event log.

    :ivar kind, outcome: see ``KINDS``.
    :ivar at: when it happened.
    :ivar id: the store's key, ascending; 0 if the entry is not stored yet.
    :ivar topic: the URL of the topic; empty if the entry concerns no single topic.
    :ivar host: the host that the entry concerns: of the kind ``host`` the host itself, else that of
        the callback if there is one, else that of the topic; empty if there is none.
    :ivar protocol: the protocol of the subscription or of the ping; empty if there is none.
    :ivar callback: the URL of the callback; empty if there is none.
    :ivar source: the address of the client that asked; empty if nobody asked.
    :ivar account: the account whose owner did it; empty if nobody was signed in.
    :ivar reason: why it happened, in a sentence for people; often empty.
    :ivar numbers: measurements by name, such as ``status``, ``milliseconds`` or ``delivered``.
    """

    kind: str
    outcome: str
    at: float
    id: int = 0
    topic: str = ""
    host: str = ""
    protocol: str = ""
    callback: str = ""
    source: str = ""
    account: str = ""
    reason: str = ""
    numbers: Mapping[str, float] = field(factory=dict)

    @property
    def is_about_a_subscriber(self) -> bool:
        """Whether the host is one of callbacks, and not that of a topic."""
        return bool(self.callback) or self.kind == "host"


@frozen
class LogFilter:
    """Which entries somebody wants to see.  An empty field lets all entries pass.

    :ivar topic: the URL of a topic, in normal form.
    :ivar host: the name of a host.
    :ivar kind, outcome: see ``KINDS``.
    :ivar host_of_topic: whether ``host`` is compared with the hosts of topics only, and not with
        those of callbacks.
    """

    topic: str = ""
    host: str = ""
    kind: str = ""
    outcome: str = ""
    host_of_topic: bool = False

    def passes(self, entry: LogEntry) -> bool:
        """Whether an entry is among them."""
        return (
            self.topic in ("", entry.topic)
            and (not self.host or self._passes_host(entry))
            and self.kind in ("", entry.kind)
            and self.outcome in ("", entry.outcome)
        )

    def _passes_host(self, entry: LogEntry) -> bool:
        """Whether the host of an entry is the wanted one, and may be compared."""
        is_hidden = self.host_of_topic and entry.is_about_a_subscriber
        return self.host == entry.host and not is_hidden
