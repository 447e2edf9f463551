"""The values that the broker works with.

Every class here is frozen and holds plain values.  Times are seconds since the
epoch (UTC) as floats; durations are seconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from attrs import evolve, field, frozen

#: What a subscriber asked of its notifications, beyond that it wants them: how they
#: are to be signed, for one.  The notifier alone knows what the names mean.
SubscriptionOptions = Mapping[str, str]


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

    @property
    def host(self) -> str:
        """The host that is called; see ``host_of``."""
        return host_of(self.url)

    @property
    def origin(self) -> str:
        """The host and the port that are called, as ``host:port``."""
        port = _PORT.match(self.url)
        default = 443 if self.url[:6].lower() == "https:" else 80
        return f"{self.host}:{port[1] if port else default}"


_HOST = re.compile(r"[a-z]+://(?:[^/?#@]*@)?(?:\[([^\]/?#]*)\]|([^/?#:]*))", re.IGNORECASE)
_PORT = re.compile(r"[a-z]+://(?:[^/?#@]*@)?(?:\[[^\]/?#]*\]|[^/?#:]*):0*([0-9]+)", re.IGNORECASE)


def host_of(url: str) -> str:
    """The host of a URL, in lower case and without a dot at its end; empty if there is none.

    With and without the dot of the root a name leads to the same place, while the URLs
    are two: this is what hosts are counted by, and not what is called.  It is asked for
    each notification, so it does not take the whole URL apart.
    """
    found = _HOST.match(url)
    return (found[1] or found[2]).lower().rstrip(".") if found else ""


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

    :ivar topic: the URL to be watched; the broker brings it into normal form.
    :ivar lease_seconds: how long the subscription is to last.
    :ivar challenge: whether the callback was named by somebody who may not be
        its owner, so that it must repeat a challenge and not merely answer.
    :ivar source: the address of the caller, for the limits of what one may ask;
        empty if nobody called.
    :ivar options: of the subscription; replaced by those of the last intent.
    :ivar ends: whether the subscription is to end, and not to begin.
    :ivar written: the topic as the subscriber wrote it, where that is not its normal form;
        else empty.
    """

    topic: str
    callback: Callback
    lease_seconds: int
    challenge: bool = False
    source: str = ""
    options: SubscriptionOptions = field(factory=dict, hash=False, repr=False)
    unsubscribe: bool = False
    written: str = ""

    @property
    def as_written(self) -> Intent:
        """The intent with the topic as the subscriber wrote it, which is what the subscriber
        is asked to confirm.
        """
        return evolve(self, topic=self.written, written="") if self.written else self


@frozen
class Subscription:
    """A verified wish to be told when a topic changes.

    :ivar id: the store's key; 0 before it is stored.
    :ivar consecutive_errors: notifications that failed since the last success.
    :ivar last_error: why the last of them failed, for people.
    :ivar dropping: too many failed in a row; dropped at the top of the hour.
    :ivar attempts: how often the notification that waits for this subscription
        was tried already; None if none waits.
    :ivar options: what the subscriber asked of notifications.
    :ivar wants_content: whether notifications carry the content of the topic.
    :ivar ended: why the topic has ended, for people; empty while it has not.
    :ivar moved_to: the URL that is watched, where the topic has moved since it was
        subscribed to; empty while it is where it was.
    :ivar failing_since: when the notification that waits failed first; None if it has not.
    :ivar content_id: the store's key of the content that the notification that waits is to
        carry, if that was pushed; None for the newest, or none.
    :ivar written: the topic as the subscriber wrote it, where that is not ``topic``; else
        empty.
    """

    topic: str
    callback: Callback
    lease: Lease
    id: int = 0
    consecutive_errors: int = 0
    last_error: str = ""
    last_error_at: float | None = None
    dropping: bool = False
    attempts: int | None = None
    options: SubscriptionOptions = field(factory=dict, hash=False, repr=False)
    wants_content: bool = False
    ended: str = ""
    moved_to: str = ""
    failing_since: float | None = None
    content_id: int | None = None
    written: str = ""

    @property
    def told_topic(self) -> str:
        """The topic as the subscriber wrote it, which is what the subscriber is told."""
        return self.written or self.topic


@frozen
class Content:
    """The bytes of a topic as they were read or pushed, and what they were labelled.

    :ivar link: the value of the Link header (RFC 8288) that a publisher pushed
        with them, to be passed on; empty for what was read.
    """

    body: bytes = field(repr=False)
    content_type: str = ""
    link: str = ""

    @property
    def digest(self) -> bytes:
        """SHA-256 of the bytes: what tells one content from another."""
        return sha256(self.body).digest()


@frozen
class Validators:
    """What a server gave with a content, to be asked by whether there is another one
    (RFC 9110, section 8.8).  As they came; empty where there were none.
    """

    etag: str = ""
    last_modified: str = ""


#: Those of a topic of which nothing is known.
NO_VALIDATORS = Validators()


@frozen
class Fetched:
    """What a topic's server answered.

    :ivar content: None where it is the one that the validators were of.
    :ivar moved_to: where the topic is from now on, by its server's own word; empty if
        that is where it was.
    :ivar fresh_seconds: for how long there is no need to ask again (RFC 9111); None
        where nothing was said of that.
    :ivar result: what came, in a few words for people.
    """

    content: Content | None
    validators: Validators = NO_VALIDATORS
    moved_to: str = ""
    fresh_seconds: float | None = None
    result: str = ""


@frozen
class FetchResult:
    """That a topic was read, and what tells this content from another.

    :ivar started_at: when the fetch began.  What was asked for later is not
        answered by this reading.
    :ivar asked_at: when it was first asked for; None if that is not known.
    :ivar content: what was read, for the subscribers who want it; None if it was not
        sent, since it is what was there before.
    :ivar pinged: whether it was read because somebody said that it changed.
    :ivar result: what came, in a few words for people.
    """

    url: str
    digest: bytes
    size: int
    started_at: float
    content: Content | None = None
    validators: Validators = NO_VALIDATORS
    fresh_seconds: float | None = None
    pinged: bool = False
    result: str = ""
    asked_at: float | None = None


@frozen
class Topic:
    """A URL being watched, and what was there when it was last read.

    :ivar ended: why it is not read any more, for people; empty while it is.
    :ivar validators: of what was last read.
    :ivar subscribers: how many subscriptions it has; beyond 10,000 it is not counted.
    """

    url: str
    digest: bytes | None = None
    size: int | None = None
    read_at: float | None = None
    changed_at: float | None = None
    ended: str = ""
    validators: Validators = NO_VALIDATORS
    subscribers: int = 0


@frozen
class TopicStatus:
    """All that is known of a topic: for people, and for planning its polls.

    :ivar asked_at: when its server was last asked, whatever came of it.
    :ivar result: what came of it, in a few words for people.
    :ivar failures: how often in a row it could not be read.
    :ivar pinged_at: when it was last read because somebody said that it changed.
    :ivar fresh_seconds: as in the last ``Fetched``.
    :ivar next_poll_at: when it is polled next; None if it is not.
    :ivar poll_reason: why then, for people.
    :ivar poll_interval: what the plan was made of; None if none was made yet.
    :ivar planned_at: when the plan was made.
    :ivar feed: what the feed says of itself, as JSON can hold it; empty if it was not
        read as a feed yet.
    :ivar moved_from: the URLs under which it was known before, and still is found.
    """

    topic: Topic
    asked_at: float | None = None
    result: str = ""
    failures: int = 0
    pinged_at: float | None = None
    fresh_seconds: float | None = None
    next_poll_at: float | None = None
    poll_reason: str = ""
    poll_interval: float | None = None
    planned_at: float | None = None
    feed: Mapping[str, Any] = field(factory=dict, hash=False)
    moved_from: tuple[str, ...] = ()


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
    """That a topic changed, on its way to one subscriber.

    :ivar content: of the topic, for a notifier that carries it; None for others.
    """

    topic: str
    callback: Callback
    options: SubscriptionOptions = field(factory=dict, hash=False, repr=False)
    content: Content | None = None


@frozen
class Denial:
    """That there is no subscription, or not any more, on its way to its subscriber.

    :ivar reason: why, for people.
    """

    topic: str
    callback: Callback
    reason: str
    options: SubscriptionOptions = field(factory=dict, hash=False, repr=False)


@frozen
class Outcome:
    """What came of a call to a subscriber.

    :ivar success: the subscriber took it, in the sense of its protocol.
    :ivar reason: for people: why not, where it did not.
    :ivar answered: whether its host gave any answer at all.  A success without an answer
        needed no call.
    :ivar retry_after: seconds that the answer asked to wait before the next try.
    :ivar gone: the subscriber wants no more of this, ever.
    :ivar refused: the broker would not call a URL like that, and did not.
    :ivar port_only: there was no answer, but the host is there: only the port that was
        called is to blame.
    """

    success: bool
    reason: str = ""
    answered: bool = True
    retry_after: float | None = None
    gone: bool = False
    refused: bool = False
    port_only: bool = False
