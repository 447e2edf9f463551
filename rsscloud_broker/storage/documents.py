"""Reads the JSON documents that the command ``import`` takes, without touching a database.

It reads two kinds: the export of this broker, as ``exports.export_text`` makes it::

    {"format": "rsscloud-broker", "version": 1, "exported_at": "2026-05-01T12:00:00.000000Z",
     "topics": [{"url": "http://feeds.example/rss", "digest": "9f86…", "size": 4711,
                 "read_at": "…Z", "changed_at": "…Z", "ended": "",
                 "subscriptions": [{"callback": "http://reader.example/notify",
                                    "protocol": "http-post", "procedure": "",
                                    "granted_at": "…Z", "lease_seconds": 90000,
                                    "consecutive_errors": 0, "last_error": "",
                                    "last_error_at": null, "dropping": false,
                                    "options": {}, "wants_content": false,
                                    "written_topic": ""}]}],
     "blocks": [{"kind": "host", "object": "spam.example", "reason": "spam",
                 "account": "alice", "at": "…Z"}]}

``options`` may hold the secrets with which notifications are signed: keep such a document
private.  If the subscriber wrote the URL of the topic in another form than ``url``,
``written_topic`` has that form.

The export leaves work under way out: requested checks, fan-outs, pending notifications, their
contents, and intents that wait to be verified.  It also leaves out pings, poll plans, what feeds
say about themselves, and moves: a topic that has moved is listed under each URL that somebody
subscribed to, with the result of its last fetch, and the next fetch finds the move again.

The second kind is version 2 of the data file of rsscloud-server, whose ``feeds`` have a member for
each feed.  Only the subscriptions are read, since this broker cannot compare what that server
keeps of a feed's content with its own digests::

    {"version": 2,
     "feeds": {"http://feeds.example/rss": {
         "resource": {…},
         "subscriptions": [{"url": "http://reader.example/websub", "protocol": "websub",
                            "ctUpdates": 3, "ctErrors": 1, "ctConsecutiveErrors": 1,
                            "whenCreated": "…Z", "whenLastUpdate": "…Z",
                            "whenLastError": null, "whenExpires": "…Z",
                            "details": {"leaseSeconds": 864000, "secret": "sesame"}}]}}}

``notifyProcedure`` is there for ``xml-rpc``.  Only a WebSub subscription says how long its lease
is; the lease of any other is taken to have begun 25 hours before its end.  After three errors in
a row rsscloud-server calls a callback no more, and drops the subscription later; such a
subscription is imported with ``dropping`` set, which means the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from ipaddress import ip_network
from typing import Any

from attrs import define, evolve, frozen

from rsscloud_broker.model import Callback, Lease, Subscription, Topic
from rsscloud_broker.model.administration import BLOCK_KINDS, Block
from rsscloud_broker.util.urls import normal_form
from rsscloud_broker.wire import websub

#: The name of the protocol WebSub in both kinds of documents.
WEBSUB = "websub"

_URL = re.compile(r"https?://[^\s\x00-\x1f\x7f\ud800-\udfff]+", re.IGNORECASE)
_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")

#: Leases of thirty years, and counts of 32 bits, which PostgreSQL stores.
_LONGEST_LEASE_SECONDS = 10**9
_MAX_ERRORS = 2**31 - 1


class InvalidImport(ValueError):
    """The document cannot be imported.  The text says where it is faulty, and what the rule is."""


@frozen
class TopicEntry:
    """A topic in a document, and its subscriptions."""

    topic: Topic
    subscriptions: tuple[Subscription, ...]


def read_document(document: object) -> list[TopicEntry]:
    """Read the topics and subscriptions of a document, each once.

    :param document: the document, as ``json.loads`` returns it.
    :returns: topics by their URLs in normal form, whatever the form in the document.
    :raises InvalidImport: the document is of neither kind, or is faulty.
    """
    top = _Value(document)
    if top.member("format").value == "rsscloud-broker":
        if top.member("version").value != 1:
            raise top.member("version").invalid("must be 1, the only one known to this broker")
        entries = [_topic(item) for item in top.member("topics").items()]
    elif top.member("feeds").value is not None:
        if top.member("version").value != 2:
            raise top.member("version").invalid("must be 2, for a data file of rsscloud-server")
        entries = [_feed(url, value) for url, value in top.member("feeds").members()]
    else:
        raise InvalidImport(
            'the document is neither an export of this broker ("format": "rsscloud-broker") '
            'nor a data file of rsscloud-server ("version": 2, "feeds": …)'
        )
    _check_unique(entries)
    return _in_normal_form(entries)


def read_blocks(document: object) -> list[Block]:
    """Read the blocks of administrators in a document; a document of another kind has none.

    :raises InvalidImport: a block is faulty.
    """
    top = _Value(document)
    if top.member("format").value != "rsscloud-broker":
        return []
    return [_block(item) for item in top.member("blocks").items()]


def _block(value: _Value) -> Block:
    """A block of an export."""
    kind = value.member("kind")
    if kind.value not in BLOCK_KINDS:
        raise kind.invalid(f"must be one of {', '.join(BLOCK_KINDS)}")
    what = value.member("object")
    if kind.value == "source":
        try:
            ip_network(what.name())
        except ValueError:
            raise what.invalid("must be a network, such as 192.0.2.0/24") from None
    if kind.value == "topic":
        what.check_url(what.name())
    return Block(
        kind.value,
        what.name(),
        value.member("reason", "").text(),
        value.member("account", "").text(),
        value.member("at").time(),
    )


def _check_unique(entries: list[TopicEntry]) -> None:
    """:raises InvalidImport: two entries have the same URL."""
    seen: set[str] = set()
    for index, entry in enumerate(entries):
        if entry.topic.url in seen:
            raise InvalidImport(f"topics[{index}].url: {entry.topic.url} is in the list twice")
        seen.add(entry.topic.url)


def _in_normal_form(entries: Iterable[TopicEntry]) -> list[TopicEntry]:
    """Bring the URLs of topics into normal form, and merge entries of the same topic."""
    merged: dict[str, TopicEntry] = {}
    for entry in entries:
        url = normal_form(entry.topic.url)
        moved = TopicEntry(
            evolve(entry.topic, url=url),
            tuple(_with_normal_topic(url, one) for one in entry.subscriptions),
        )
        merged[url] = _merge(merged[url], moved) if url in merged else moved
    return list(merged.values())


def _with_normal_topic(url: str, one: Subscription) -> Subscription:
    """The subscription with its topic in normal form, and the document's form in ``written``."""
    written = one.told_topic
    return evolve(one, topic=url, written="" if written == url else written)


def _merge(one: TopicEntry, other: TopicEntry) -> TopicEntry:
    """Merge two entries of a topic: the later fetch counts, and each subscription is kept once."""
    last = max(one.topic, other.topic, key=_last_seen)
    return TopicEntry(last, _each_once(iter(one.subscriptions + other.subscriptions)))


def _last_seen(topic: Topic) -> float:
    """When the topic was last read or ended; 0 if never."""
    return max(topic.read_at or 0.0, topic.changed_at or 0.0)


def _topic(item: _Value) -> TopicEntry:
    """A topic of an export, with its subscriptions."""
    url = item.member("url").url()
    digest, size = item.member("digest"), item.member("size")
    if (digest.value is None) != (size.value is None):
        raise digest.invalid("goes together with size: give both or neither")
    known = digest.value is not None
    return TopicEntry(
        topic=Topic(
            url=url,
            digest=digest.digest() if known else None,
            size=size.whole(0, 2**62) if known else None,
            read_at=item.member("read_at").time_or_none(),
            changed_at=item.member("changed_at").time_or_none(),
            ended=item.member("ended", "").text(),
        ),
        subscriptions=_each_once(
            _subscription(url, one) for one in item.member("subscriptions").items()
        ),
    )


def _subscription(topic: str, item: _Value) -> Subscription:
    """A subscription of an export."""
    written = item.member("written_topic", "")
    return Subscription(
        topic=topic,
        callback=Callback(
            url=item.member("callback").url(),
            protocol=item.member("protocol").name(),
            procedure=item.member("procedure", "").text(),
        ),
        lease=Lease(
            granted_at=item.member("granted_at").time(),
            seconds=item.member("lease_seconds").whole(1, _LONGEST_LEASE_SECONDS),
        ),
        consecutive_errors=item.member("consecutive_errors", 0).whole(0, _MAX_ERRORS),
        last_error=item.member("last_error", "").text(),
        last_error_at=item.member("last_error_at").time_or_none(),
        dropping=item.member("dropping", False).flag(),
        options=item.member("options", {}).texts(),
        wants_content=item.member("wants_content", False).flag(),
        written=written.url() if written.text() else "",
    )


def _feed(url: str, value: _Value) -> TopicEntry:
    """A topic of a data file of rsscloud-server, of which only the subscriptions are read."""
    value.check_url(url)
    return TopicEntry(
        topic=Topic(url=url),
        subscriptions=_each_once(
            _server_subscription(url, one) for one in value.member("subscriptions").items()
        ),
    )


def _server_subscription(topic: str, item: _Value) -> Subscription:
    """A subscription of a data file of rsscloud-server: see the docstring of the module."""
    protocol = item.member("protocol").name()
    procedure = item.member("notifyProcedure")
    has_procedure = procedure.value is not None and procedure.value is not False
    details = _details(item)
    length = details.member("leaseSeconds", 25 * 3600)
    seconds = length.whole(1, _LONGEST_LEASE_SECONDS)
    # rsscloud-server writes the epoch for "never".
    last_error_at = item.member("whenLastError").time_or_none() or None
    errors = item.member("ctConsecutiveErrors", 0).whole(0, _MAX_ERRORS)
    secret = details.member("secret", "").text() if protocol == WEBSUB else ""
    return Subscription(
        topic=topic,
        callback=Callback(
            url=item.member("url").url(),
            protocol=protocol,
            procedure=procedure.text() if has_procedure else "",
        ),
        lease=Lease(item.member("whenExpires").time() - seconds, seconds),
        consecutive_errors=errors,
        last_error_at=last_error_at,
        dropping=errors >= 3,  # rsscloud-server calls no more then
        options={websub.SECRET: secret} if secret else {},
        wants_content=protocol == WEBSUB,
    )


def _details(item: _Value) -> _Value:
    """The details of a subscription, which rsscloud-server keeps for some protocols."""
    details = item.member("details")
    return _Value({}, item, "details") if details.value is None else details


def _each_once(subscriptions: Iterator[Subscription]) -> tuple[Subscription, ...]:
    """The subscriptions of a topic; of several with the same callback only the last."""
    return tuple({one.callback: one for one in subscriptions}.values())


@define
class _Value:
    """A value in a document with its position, which the errors name.

    Each method returns the value as one type, or raises ``InvalidImport``.
    """

    value: Any
    parent: _Value | None = None
    key: str | int = ""

    def invalid(self, rule: str) -> InvalidImport:
        return InvalidImport(f"{self._path()}: {rule}")

    def _path(self) -> str:
        """The position of the value in the document, such as ``topics[0].url``."""
        if self.parent is None:
            return "the document"
        before = "" if self.parent.parent is None else self.parent._path()
        if isinstance(self.key, int):
            return f"{before}[{self.key}]"
        if self.key.isidentifier():
            return f"{before}.{self.key}" if before else self.key
        return f"{before}[{json.dumps(self.key)}]"

    def member(self, key: str, default: object = None) -> _Value:
        """A member of an object.

        :param default: its value if the object does not have it.
        """
        if not isinstance(self.value, dict):
            raise self.invalid("must be an object")
        return _Value(self.value.get(key, default), self, key)

    def members(self) -> Iterator[tuple[str, _Value]]:
        if not isinstance(self.value, dict):
            raise self.invalid("must be an object")
        return ((key, _Value(value, self, key)) for key, value in self.value.items())

    def items(self) -> Iterator[_Value]:
        """The items of an array; none if the value is absent."""
        if self.value is not None and not isinstance(self.value, list):
            raise self.invalid("must be an array")
        return (_Value(item, self, index) for index, item in enumerate(self.value or ()))

    def text(self) -> str:
        if not isinstance(self.value, str) or _UNSTORABLE.search(self.value):
            raise self.invalid("must be a text without null characters or lone surrogates")
        return self.value

    def texts(self) -> dict[str, str]:
        members = {key: value.text() for key, value in self.members()}
        if any(map(_UNSTORABLE.search, members)):
            raise self.invalid("must have names without null characters or lone surrogates")
        return members

    def name(self) -> str:
        if not self.text():
            raise self.invalid("must not be empty")
        return self.text()

    def url(self) -> str:
        if not isinstance(self.value, str):
            raise self.invalid("must be an http or https URL")
        self.check_url(self.value)
        return self.value

    def check_url(self, url: str) -> None:
        """:raises InvalidImport: ``url``, such as the key of this value, is no HTTP URL."""
        if not _URL.fullmatch(url):
            raise self.invalid("must be an http or https URL, without spaces")

    def digest(self) -> bytes:
        if not isinstance(self.value, str) or not _DIGEST.fullmatch(self.value):
            raise self.invalid("must be a SHA-256 digest, 64 hexadecimal digits")
        return bytes.fromhex(self.value)

    def whole(self, minimum: int, maximum: int) -> int:
        whole = isinstance(self.value, int) and not isinstance(self.value, bool)
        if not whole or not minimum <= self.value <= maximum:
            raise self.invalid(f"must be a whole number from {minimum} to {maximum}")
        return int(self.value)

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            raise self.invalid("must be true or false")
        return self.value

    def time_or_none(self) -> float | None:
        return None if self.value is None else self.time()

    def time(self) -> float:
        """Seconds since the epoch.  A time without an offset is in UTC."""
        rule = 'must be a time in ISO 8601, such as "2026-05-01T12:00:00Z"'
        if not isinstance(self.value, str):
            raise self.invalid(rule)
        try:
            time = datetime.fromisoformat(self.value)
        except ValueError:
            raise self.invalid(rule) from None
        if time.tzinfo is None:
            time = time.replace(tzinfo=UTC)
        return time.timestamp()
