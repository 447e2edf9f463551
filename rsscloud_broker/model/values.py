"""The values that all parts of the broker exchange: topics, subscriptions, pings, notifications.

Each is frozen.  Times are seconds since the epoch (UTC) as floats; durations are seconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import IntEnum
from hashlib import sha256
from typing import Any

from attrs import evolve, field

from rsscloud_broker.model.frozen import frozen
from rsscloud_broker.model.hosts import host_of
from rsscloud_broker.model.ways import PRIVATE_PROTOCOLS, Way

#: Options of a subscription, such as a secret; only the notifier of its protocol knows them.
SubscriptionOptions = Mapping[str, str]


@frozen
class Callback:
    """The URL that a subscriber wants called, and the protocol by which to call it.

    :ivar url: the exact URL that the broker calls.
    :ivar protocol: the name of the notifier that calls it, such as ``http-post``.
    :ivar procedure: the procedure to call, in protocols that have procedures; else empty.
    """

    url: str
    protocol: str
    procedure: str = ""

    @property
    def host(self) -> str:
        """The host of the URL; see ``host_of``."""
        return host_of(self.url)

    @property
    def is_private(self) -> bool:
        """Whether strangers may know nothing of its subscriptions."""
        return self.protocol in PRIVATE_PROTOCOLS

    @property
    def origin(self) -> str:
        """The host and the port of the URL, as ``host:port``."""
        port = _PORT.match(self.url)
        default = 443 if self.url[:6].lower() == "https:" else 80
        return f"{self.host}:{port[1] if port else default}"


_PORT = re.compile(r"[a-z]+://(?:[^/?#@]*@)?(?:\[[^\]/?#]*\]|[^/?#:]*):0*([0-9]+)", re.IGNORECASE)


@frozen
class Lease:
    """How long a subscription lasts unless it is renewed."""

    granted_at: float
    seconds: int

    @property
    def expires_at(self) -> float:
        """When the lease ends."""
        return self.granted_at + self.seconds


@frozen
class Intent:
    """A request to subscribe to a topic or to unsubscribe, which is not yet verified.

    :ivar topic: the URL of the topic; the broker brings it into normal form.
    :ivar lease_seconds: how long the subscription is to last.
    :ivar challenge: whether the callback must repeat a challenge, and not merely answer,
        because the caller may not own it.
    :ivar source: the address of the caller, by which the broker limits requests; empty if there
        is no caller.
    :ivar options: the options of the subscription; they replace the ones of an earlier intent.
    :ivar unsubscribe: True to unsubscribe, False to subscribe.
    :ivar written: the topic as the subscriber wrote it, if that is not its normal form;
        else empty.
    :ivar present: whether the subscriber is notified at once, as if the topic had changed, and so
        gets its present content.  Only for ``IBroker.subscribe``: it is not stored.
    """

    topic: str
    callback: Callback
    lease_seconds: int
    challenge: bool = False
    source: str = ""
    options: SubscriptionOptions = field(factory=dict, hash=False, repr=False)
    unsubscribe: bool = False
    written: str = ""
    present: bool = False

    @property
    def as_written(self) -> Intent:
        """The intent with the topic as the subscriber wrote it.  The broker asks the callback to
        confirm the topic in this form.
        """
        return evolve(self, topic=self.written, written="") if self.written else self


@frozen
class Subscription:
    """The verified agreement that the broker notifies a callback when a topic changes.

    :ivar topic: the URL that the subscriber asked for, in normal form.
    :ivar id: the store's key; 0 before it is stored.
    :ivar consecutive_errors: the number of notifications that failed since the last success.
    :ivar last_error: why the last of these failed, for people.
    :ivar last_error_at: when it failed.
    :ivar dropping: whether enough notifications failed in a row that the next sweep, at the top
        of the hour, drops the subscription.
    :ivar attempts: how many attempts the pending notification of the subscription has had; None
        if it has no pending notification.
    :ivar options: the options that the subscriber asked for.
    :ivar wants_content: whether notifications carry the content of the topic.
    :ivar ended: why the topic has ended, for people; empty if it has not.
    :ivar moved_to: the present URL of the topic, if the topic has moved since the subscriber
        asked for it; else empty.
    :ivar failing_since: when the pending notification first failed; None if it has not.
    :ivar content_id: the store's key of the pushed content that the pending notification
        carries; None if it carries the newest content, or none.
    :ivar written: the topic as the subscriber wrote it, if that is not ``topic``; else empty.
    :ivar renewed: whether the store has just put it in place of an earlier one, which it renews.
    :ivar claim: the id of the node that has claimed its pending notification to try it; None if
        the subscription was not read for that.
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
    renewed: bool = field(default=False, eq=False)
    claim: int | None = field(default=None, eq=False)

    @property
    def told_topic(self) -> str:
        """The topic as the subscriber wrote it, the form in which notifications name it."""
        return self.written or self.topic


@frozen
class Content:
    """The bytes that were fetched from a topic or pushed for it, unchanged.

    :ivar content_type: the value of their Content-Type header.
    :ivar link: the value of the Link header (RFC 8288) that a publisher pushed with the
        content, for the broker to pass on; empty for fetched content.
    """

    body: bytes = field(repr=False)
    content_type: str = ""
    link: str = ""

    @property
    def digest(self) -> bytes:
        """SHA-256 of the bytes.  The broker compares contents by it."""
        return sha256(self.body).digest()


@frozen
class Validators:
    """The validators that a server sent with a content, for a conditional request (RFC 9110,
    section 8.8).

    They are kept as they came; a validator that did not come is empty.
    """

    etag: str = ""
    last_modified: str = ""


#: The validators of a topic that was never fetched: they make the next fetch unconditional.
NO_VALIDATORS = Validators()


class Need(IntEnum):
    """Whether a fetch must bring a topic's content only if that has changed, or in any case."""

    CHANGES, CONTENT = 0, 1


@frozen
class FetchResult:
    """The result of a successful fetch, as the core hands it to the store.

    :ivar url: the present URL of the topic.
    :ivar digest: the digest of the content, by which the store finds out whether it changed.
    :ivar size: the number of bytes of the content.
    :ivar started_at: when the fetch began.  It does not satisfy checks requested later.
    :ivar content: the content, for subscribers that want it; None if the server did not send it
        because it had not changed, or if nobody needs it.
    :ivar fresh_seconds: see ``Fetched``.
    :ivar pinged: whether somebody said that the topic changed.
    :ivar origin: of the ping; see ``Ping``.
    :ivar result: the response of the server in a few words, for people.
    :ivar asked_at: when the fetch was first requested; None if that is not known.
    :ivar seconds: how long the server took to answer.
    :ivar way: how the broker learned of the change, if it is one, or why it fetched the topic.
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
    seconds: float = 0.0
    origin: str = ""
    way: Way = Way.FETCH


@frozen
class Topic:
    """A URL that somebody has subscribed to or says has changed, and the result of its last fetch.

    :ivar digest: the digest of the content; None if the topic was never fetched.
    :ivar size: the number of bytes of the content; None if there is no digest.
    :ivar read_at: when the last successful fetch began; None if there was none.
    :ivar changed_at: when the topic last changed or ended; None if it never did.
    :ivar ended: why the topic has ended, for people; empty if it has not.
    :ivar validators: the validators that came with the content.
    :ivar subscribers: the number of its subscriptions, counted up to 10,000.
    :ivar need: how much its subscriptions need of its content.
    :ivar is_public: whether it has subscriptions that strangers may know of.
    :ivar public_digest: the digest of the last content that was found while it was public, or
        because somebody asked for it openly (``Way.is_open``); None if there is none.
    """

    url: str
    digest: bytes | None = None
    size: int | None = None
    read_at: float | None = None
    changed_at: float | None = None
    ended: str = ""
    validators: Validators = NO_VALIDATORS
    subscribers: int = 0
    need: Need = field(default=Need.CHANGES, eq=False)
    is_public: bool = field(default=False, eq=False)
    public_digest: bytes | None = field(default=None, eq=False)

    @property
    def is_known(self) -> bool:
        """Whether strangers may know that the broker knows it."""
        return self.is_public or self.public_digest is not None

    @property
    def is_private(self) -> bool:
        """Whether it has private followers only, and strangers may not know that."""
        return self.subscribers > 0 and not self.is_known

    def shows(self, way: Way) -> bool:
        """Whether strangers may know of a fetch that was made for a reason."""
        return self.is_public or way.is_open


@frozen
class TopicStatus:
    """A topic with the history of its fetches and the plan of its polls.

    The core plans polls by it, and pages show it to people.

    :ivar asked_at: when the last fetch began, successful or not.
    :ivar result: the result of that fetch in a few words, for people.
    :ivar failures: how many fetches in a row have failed.
    :ivar pinged_at: when the last fetch began that a ping caused.
    :ivar fresh_seconds: see ``Fetched``; after a failure what its ``Retry-After`` asks for.
    :ivar next_poll_at: when the topic is polled next; None if it is not polled.
    :ivar poll_reason: why it is polled at that time, for people.
    :ivar poll_interval: the seconds that the plan is based on; None if there is no plan yet.
    :ivar planned_at: when the plan was made.
    :ivar feed: what the feed says about itself, as JSON values; empty if it was not read as one.
    :ivar moved_from: the earlier URLs of the topic, by which it is still found.
    :ivar change_days: how often strangers could see it change, by day since the epoch.
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
    change_days: Mapping[int, int] = field(factory=dict, hash=False)


@frozen
class TopicOverview:
    """What a page says about a topic.

    :ivar subscriptions: the number of its subscriptions by protocol, of 10,000 at most.
    """

    status: TopicStatus
    subscriptions: Mapping[str, int] = field(factory=dict, hash=False)


@frozen
class TopicSummary:
    """A topic that has subscriptions, in a line.

    :ivar id: the store's key, ascending.
    :ivar title: the title of its feed; empty if that is not known.
    :ivar subscriptions: as for ``TopicOverview``.
    """

    id: int
    url: str
    title: str
    subscriptions: Mapping[str, int] = field(factory=dict, hash=False)


@frozen
class Ping:
    """A message that a site changed, or one of its feeds.

    :ivar name: the site's name; the URL if the caller gave no name.
    :ivar url: the site's home page, or its feed.
    :ivar changes_url: the page that changed, or empty.
    :ivar rss_url: the site's feed, or empty.
    :ivar tags: the categories of the site.
    :ivar received_at: when the broker received the ping.
    :ivar id: the store's key, ascending; 0 before the ping is stored.
    :ivar origin: the brokers and lists by which the ping came, see ``wire.origin``; empty if it was
        made here.
    """

    name: str
    url: str
    received_at: float
    changes_url: str = ""
    rss_url: str = ""
    tags: tuple[str, ...] = ()
    id: int = 0
    origin: str = ""

    @property
    def named_urls(self) -> frozenset[str]:
        """All URLs in the ping."""
        return frozenset(filter(None, (self.url, self.changes_url, self.rss_url)))


@frozen
class Notification:
    """The message to one subscriber that a topic changed.

    :ivar content: the content of the topic, if the protocol carries it; else None.
    """

    topic: str
    callback: Callback
    options: SubscriptionOptions = field(factory=dict, hash=False, repr=False)
    content: Content | None = None


@frozen
class Denial:
    """The message to a subscriber that it has no subscription, or has it no longer.

    :ivar reason: why not, for people.
    """

    topic: str
    callback: Callback
    reason: str
    options: SubscriptionOptions = field(factory=dict, hash=False, repr=False)


@frozen
class Exchange:
    """A request to a callback that failed, and its answer, for an administrator.

    Secrets are not in it: the values of headers that could be used by others are ``HIDDEN``.

    :ivar request_headers: names in lower case, and values, as the notifier gave them.
    :ivar request_body: the first ``KEPT_OF_BODY`` bytes.
    :ivar status: the status of the answer; None if there was no answer.
    :ivar answer_headers: names in lower case, and values.
    :ivar answer_body: the first ``KEPT_OF_BODY`` bytes.
    :ivar url: the URL that gave the answer, after redirects.
    """

    method: str
    url: str
    request_headers: Mapping[str, str] = field(factory=dict, hash=False)
    request_body: bytes = field(default=b"", repr=False)
    status: int | None = None
    answer_headers: Mapping[str, str] = field(factory=dict, hash=False)
    answer_body: bytes = field(default=b"", repr=False)


#: How many bytes of a body an exchange keeps, and what stands for a secret.
KEPT_OF_BODY, HIDDEN = 4096, "(hidden)"


@frozen
class Outcome:
    """The outcome of a call to a subscriber.

    :ivar success: whether the subscriber accepted the call, in the terms of its protocol.
    :ivar reason: why the subscriber did not accept it, for people.
    :ivar answered: whether the host answered at all.  A success without an answer means that no
        call was necessary.
    :ivar retry_after: the pause in seconds that the answer asked for; None if it asked for none.
    :ivar gone: whether the subscriber wants no more notifications, ever.
    :ivar refused: whether the broker refused to call the URL, and did not call it.
    :ivar port_only: whether only the port that was called failed, and the host is there.
    :ivar interrupted: whether the courier that called ended meanwhile, whosever fault that is.
    :ivar exchange: the request and the answer of a notification that failed, which the store
        keeps for administrators; None if the notifier does not tell.
    """

    success: bool
    reason: str = ""
    answered: bool = True
    retry_after: float | None = None
    gone: bool = False
    refused: bool = False
    port_only: bool = False
    interrupted: bool = False
    exchange: Exchange | None = field(default=None, eq=False, repr=False)
