"""What the broker talks about, and the ways in which it says no.

Every class here is frozen and holds plain values.  Times are seconds since the
epoch (UTC) as floats; durations are seconds.
"""

from __future__ import annotations

from hashlib import sha256

from attrs import field, frozen


@frozen
class Callback:
    """Where and how one subscriber wants to be told.

    :ivar url: the exact URL that is called.
    :ivar protocol: the name of the notifier that calls it, such as ``http-post``.
    :ivar procedure: the procedure called there, for the protocols that have one.
    """

    url: str
    protocol: str
    procedure: str = ""


@frozen
class Lease:
    """How long a subscription lasts unless it is renewed."""

    granted_at: float
    seconds: int

    @property
    def expires_at(self) -> float:
        return self.granted_at + self.seconds


@frozen
class Intent:
    """What a subscriber asked for, about one topic; not yet verified.

    :ivar topic: the URL to be watched.
    :ivar lease_seconds: how long the subscription is to last.
    :ivar challenge: whether the callback was named by somebody who may not be
        its owner, so that it must repeat a challenge and not merely answer.
    """

    topic: str
    callback: Callback
    lease_seconds: int
    challenge: bool = False


@frozen
class Subscription:
    """A verified wish to be told when a topic changes.

    :ivar id: the store's key; 0 before it is stored.
    :ivar consecutive_errors: notifications that failed since the last success.
    :ivar last_error: why the last of them failed, for people.
    :ivar marked: too many failed in a row; dropped at the top of the hour.
    """

    topic: str
    callback: Callback
    lease: Lease
    id: int = 0
    consecutive_errors: int = 0
    last_error: str = ""
    last_error_at: float | None = None
    marked: bool = False


@frozen
class Content:
    """The bytes of a topic as they were read, and what they were labelled."""

    body: bytes = field(repr=False)
    content_type: str = ""

    @property
    def digest(self) -> bytes:
        """SHA-256 of the bytes: what tells one content from another."""
        return sha256(self.body).digest()


@frozen
class Reading:
    """That a topic was read, and what tells this content from another.

    :ivar started_at: when the fetch began.  What was asked for later is not
        answered by this reading.
    """

    url: str
    digest: bytes
    size: int
    started_at: float


@frozen
class Topic:
    """A URL being watched, and what was there when it was last read."""

    url: str
    digest: bytes | None = None
    size: int | None = None
    read_at: float | None = None
    changed_at: float | None = None


@frozen
class Ping:
    """Somebody said that a site changed.

    :ivar name: the site's name; the URL where the pinger gave none.
    :ivar url: the site's home page, or its feed.
    :ivar changes_url: the page that changed, or empty.
    :ivar rss_url: the site's feed, or empty.
    :ivar tags: categories.
    :ivar received_at: when it arrived.
    :ivar id: the store's key, ascending; 0 before it is stored.
    """

    name: str
    url: str
    received_at: float
    changes_url: str = ""
    rss_url: str = ""
    tags: tuple[str, ...] = ()
    id: int = 0

    @property
    def named_urls(self) -> frozenset[str]:
        """Every URL that the ping says something about."""
        return frozenset(filter(None, (self.url, self.changes_url, self.rss_url)))


@frozen
class Notification:
    """That a topic changed, on its way to one subscriber."""

    topic: str
    callback: Callback


@frozen
class Outcome:
    """What came of a call to a subscriber.

    :ivar success: the subscriber took it, in the sense of its protocol.
    :ivar reason: for people: why not, where it did not.
    """

    success: bool
    reason: str = ""


@frozen
class Delivery:
    """One attempt to notify one subscription, and what came of it.

    :ivar marks: consecutive errors after which the subscription is marked;
        None where its protocol never gives up.
    """

    subscription: Subscription
    outcome: Outcome
    at: float
    marks: int | None = None


@frozen
class Fanout:
    """A walk over the subscriptions of a changed topic, not yet at its end.

    :ivar cursor: the id of the last subscription that was dealt with.
    """

    id: int
    topic: str
    cursor: int = 0


@frozen
class PingRecord:
    """What the store made of a ping.

    :ivar repeat: the same ping came a moment ago, so no new record was made.
    :ivar watched: the topics named by the ping that somebody subscribed to;
        each now waits in the store to be read.
    """

    ping: Ping
    repeat: bool
    watched: tuple[str, ...] = ()


@frozen
class ReadingRecord:
    """What the store made of a reading.

    :ivar changed: the content differs from what was last read.
    :ivar ping: the record made of the ping that caused the reading, if the
        content had changed.
    """

    topic: Topic
    changed: bool
    ping: Ping | None = None


@frozen
class Swept:
    """What the top of the hour removed."""

    expired: int = 0
    marked: int = 0
    topics: int = 0


class Refused(Exception):
    """The broker will not do what was asked.  Its text says why, to people."""


class UnsupportedProtocol(Refused):
    """No notifier of that name runs here."""

    def __init__(self, protocol: str) -> None:
        super().__init__(f"notifications by {protocol!r} are not offered here")
        self.protocol = protocol


class TopicUnreadable(Refused):
    """The topic could not be read, or its URL is one that never will be."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"{url}: {reason}")
        self.url = url
        self.reason = reason


class CallbackFailed(Refused):
    """The callback did not confirm that it wants the notifications."""


class PingTooSoon(Refused):
    """The topic was pinged a moment ago, and the operator set a pause."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"a ping was received less than {seconds} seconds ago")
        self.seconds = seconds


class Unavailable(Exception):
    """The store cannot take or give anything right now; nothing was changed."""


class OutboundError(Exception):
    """A request to somebody else's server did not get an answer.

    Its text says why, to people.
    """
