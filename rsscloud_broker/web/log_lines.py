"""Says the entries of the event log in sentences, for the page and for its event stream.

A line names its topic once, and links to the page of the topic.  So its sentence comes in three
parts: what stands before the topic, the topic, and what stands after it.  ``_SENTENCES`` has the
sentences; a function of that table returns the first and the last part.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlencode

from attrs import asdict, evolve, frozen
from twisted.web.template import Tag, tags

from rsscloud_broker.model.disclosure import HIDDEN
from rsscloud_broker.model.log_entry import LogEntry
from rsscloud_broker.model.ways import Way
from rsscloud_broker.wire.times import iso_time
from rsscloud_broker.wire.units import in_words

#: Characters that change the direction of the text after them: overrides, embeddings, isolates.
_DIRECTIONS: Final = re.compile("[\u202a-\u202e\u2066-\u2069]")

#: What pages call a kind or an outcome whose own name few people know.
PLAIN_WORDS: Final[Mapping[str, str]] = {
    "fan-out": "subscribers",
    "dropped": "removed",
    "dropping": "will be removed",
}


def options(words: Iterable[str], chosen: str) -> list[Tag]:
    """The options of a ``select`` field, of which one may be chosen."""
    return [
        tags.option(
            PLAIN_WORDS.get(word, word),
            value=word,
            **({"selected": "selected"} if word == chosen else {}),
        )
        for word in words
    ]


@frozen
class Line:
    """One entry as people read it.

    :ivar at: the time, such as ``2026-11-22T10:30:00Z``.
    :ivar before, topic, after: the parts of the sentence; the topic may be empty.
    """

    id: int
    at: str
    kind: str
    outcome: str
    before: str
    topic: str
    after: str

    @property
    def link(self) -> str:
        """The path of the page about the topic; empty if the topic is no web address."""
        if not self.topic.startswith(("http://", "https://")):
            return ""
        return f"/topic?{urlencode({'url': self.topic})}"

    def as_json(self) -> bytes:
        """The line as a JSON object, on one line."""
        fields = {**asdict(self), "link": self.link}
        return json.dumps(fields, separators=(",", ":")).encode("ascii")

    def as_item(self) -> Tag:
        """The line as an item of a list."""
        topic = tags.a(tags.bdi(self.topic), href=self.link) if self.link else self.topic
        return tags.li(
            tags.time(self.at.replace("T", " ").rstrip("Z"), datetime=self.at),
            tags.span(self.before, topic, self.after),
            class_=f"outcome-{self.outcome.replace(' ', '-')}",
        )


def line_of(entry: LogEntry) -> Line:
    """The line for an entry.

    :param entry: an entry with only those parts that the readers may see: see ``disclosure``.
    """
    # Subscribers and servers write the reasons: theirs must not turn the rest of the sentence.
    entry = evolve(entry, reason=_DIRECTIONS.sub("\N{REPLACEMENT CHARACTER}", entry.reason))
    # What has no sentence of its own is of a later version.
    say = _SENTENCES.get((entry.kind, entry.outcome), "{kind} {outcome} {topic}{reason}")
    before, after = _filled(say, entry) if isinstance(say, str) else say(entry)
    topic = entry.topic
    if not (topic and after):  # there is no topic, or the sentence has no place for it
        before, topic, after = f"{before.strip()}{after}", "", ""
    return Line(entry.id, iso_time(entry.at), entry.kind, entry.outcome, before, topic, after)


#: A sentence with names in braces; or what takes an entry, and returns the two parts.
_Sentence = str | Callable[[LogEntry], tuple[str, str]]


def _filled(sentence: str, entry: LogEntry) -> tuple[str, str]:
    """What stands before and after the topic in a sentence of the table."""
    words = {
        "kind": entry.kind,
        "outcome": entry.outcome,
        "subscriber": _subscriber(entry),
        "reason": _reason(entry),
        "source": _source(entry),
        "fetch": _fetch_details(entry),
        "host": _host_name(entry),
        "server": entry.host or "another server",
        "pings": f"{count_of(entry, 'pings'):,}",
        "moved_to": entry.reason,
    }
    before, _, after = sentence.partition("{topic}")
    return before.format_map(words), after.format_map(words)


def _subscriber(entry: LogEntry) -> str:
    return entry.callback or entry.host or HIDDEN


def _reason(entry: LogEntry) -> str:
    """The end of a sentence: the reason, if there is one."""
    reason = entry.reason.strip().rstrip(".")
    return f": {reason}." if reason else "."


def _source(entry: LogEntry) -> str:
    """A sentence that says where something came from; empty if that is unknown, or hidden."""
    return f" It came from {entry.source}." if entry.source else ""


def _fetch_details(entry: LogEntry) -> str:
    """What a fetch brought, or why it failed, and how long it took; empty if nothing is known."""
    failed = entry.outcome == "failed"
    details = [entry.reason] if entry.reason and not failed else []
    if milliseconds := entry.numbers.get("milliseconds"):  # 0 for what was published here
        details.append(f"after {milliseconds:,.0f} ms")
    said = _reason(entry).rstrip(".") if failed else ""
    return f"{said} ({', '.join(details)})" if details else said


def count_of(entry: LogEntry, name: str) -> int:
    """A number of an entry that counts something; 0 if it is not there."""
    return int(entry.numbers.get(name, 0))


def _retry_time(entry: LogEntry) -> str:
    """The time of the next attempt, with its date if that is another day."""
    when = datetime.fromtimestamp(entry.numbers.get("retry_at", 0.0), UTC)
    same_day = when.date() == datetime.fromtimestamp(entry.at, UTC).date()
    return f"{when:%H:%M:%S} UTC" if same_day else f"{when:%Y-%m-%d %H:%M:%S} UTC"


def _ping_accepted(entry: LogEntry) -> tuple[str, str]:
    if entry.protocol == Way.PUBLISHED:
        return "This broker itself published a change of ", f".{_source(entry)}"
    return "A ping for ", f" was accepted{_reason(entry)}{_source(entry)}"


def _ping_refused(entry: LogEntry) -> tuple[str, str]:
    if more := count_of(entry, "requests"):
        requests = "1 more request was" if more == 1 else f"{more:,} more requests were"
        return f"{requests} refused within a minute.", ""
    return "A ping for ", f" was refused{_reason(entry)}{_source(entry)}"


def _subscription_requested(entry: LogEntry) -> tuple[str, str]:
    """A request to subscribe; with a reason, one to unsubscribe."""
    if entry.reason:
        return f"{_subscriber(entry)} asked to be notified of ", f" no longer.{_source(entry)}"
    return f"{_subscriber(entry)} asked to be notified of ", f" ({entry.protocol}).{_source(entry)}"


def _subscription_granted(entry: LogEntry) -> tuple[str, str]:
    lease = in_words(entry.numbers.get("lease_seconds", 0.0))
    if entry.outcome == "renewed":
        return f"{_subscriber(entry)} renewed its subscription to ", f" for {lease}."
    return f"{_subscriber(entry)} confirmed: it is subscribed to ", f" for {lease}."


def _subscription_removed(entry: LogEntry) -> tuple[str, str]:
    """Whose subscription has ended and why, or how many more have."""
    what = "has expired" if entry.outcome == "expired" else "was removed"
    if more := count_of(entry, "subscriptions"):
        many = what.replace("has", "have").replace("was", "were") if more > 1 else what
        return f"{more:,} more subscription{'s' if more > 1 else ''} {many}.", ""
    return f"The subscription of {_subscriber(entry)} to ", f" {what}{_reason(entry)}"


def _fan_out_ended(entry: LogEntry) -> tuple[str, str]:
    """How many subscribers accepted, failed or wait, and how long notifying them took."""
    names = ("delivered", "failed", "waiting")
    delivered, failed, waiting = (count_of(entry, name) for name in names)
    if not delivered + failed + waiting:
        return "Nobody had to be notified of ", "."
    counts = [f"{delivered:,} accepted"]
    counts += [f"{failed:,} failed"] if failed else []
    counts += [f"{waiting:,} wait{'s' if waiting == 1 else ''}"] if waiting else []
    last = f"the last after {entry.numbers.get('last_seconds', 0.0):g} s"
    first = entry.numbers.get("first_seconds")
    times = last if first is None else f"the first after {first:g} s, {last}"
    return "The subscribers of ", f" were notified: {', '.join(counts)}; {times}."


def _notification_failed(entry: LogEntry) -> tuple[str, str]:
    """Who was not notified and why, and whether there is another attempt."""
    reason = entry.reason.strip().rstrip(".") or "it did not accept the notification"
    if entry.outcome == "given up":
        what_next = "the broker makes no further attempt"
    else:
        what_next = f"the next attempt is at {_retry_time(entry)}"
    return f"{_subscriber(entry)} was not notified of ", f": {reason}; {what_next}."


def _host_unreachable(entry: LogEntry) -> tuple[str, str]:
    until = _retry_time(entry)
    reason = f" ({entry.reason})" if entry.reason else ""
    return f"{_host_name(entry)} does not answer{reason}: it is not called until {until}.", ""


def _host_name(entry: LogEntry) -> str:
    """The host of an entry, with its port if only that is meant."""
    port = count_of(entry, "port")
    name = entry.host or "The host of a subscriber"
    return f"{name}, port {port}," if port and entry.host else name


def _administration_done(entry: LogEntry) -> tuple[str, str]:
    """What an administrator did: the text before the topic, and the text after it.

    In the entries that strangers get, account and reason are empty: see ``model/disclosure.py``.
    """
    who = entry.account or "An administrator"
    if not entry.reason:
        did = f"{who} did something"
        return (f"{did} about ", ".") if entry.topic else (f"{did}.", "")
    did = f"{entry.reason.strip().rstrip('.')}."
    before, topic, after = did.partition(entry.topic) if entry.topic else (did, "", "")
    return (f"{who} {before}", after) if topic else (f"{who} {did}", "")


_SENTENCES: Final[Mapping[tuple[str, str], _Sentence]] = {
    ("ping", "accepted"): _ping_accepted,
    ("ping", "repeated"): (
        "A ping for {topic} was accepted, and not recorded again: the same one came a moment "
        "ago.{source}"
    ),
    ("ping", "refused"): _ping_refused,
    ("fetch", "changed"): "The broker fetched {topic}: it has changed{fetch}.",
    ("fetch", "unchanged"): "The broker fetched {topic}: it has not changed{fetch}.",
    ("fetch", "failed"): "The broker could not fetch {topic}{fetch}.",
    ("topic", "ended"): "{topic} has ended{reason}",
    ("topic", "revived"): "{topic} had ended, and is fetched again.",
    ("topic", "moved"): "{topic} has moved to {moved_to}, with its subscribers.",
    ("subscription", "requested"): _subscription_requested,
    ("subscription", "verified"): _subscription_granted,
    ("subscription", "renewed"): _subscription_granted,
    ("subscription", "denied"): "The request of {subscriber} about {topic} failed{reason}{source}",
    ("subscription", "unsubscribed"): "{subscriber} unsubscribed from {topic}.",
    ("subscription", "expired"): _subscription_removed,
    ("subscription", "dropped"): _subscription_removed,
    ("fan-out", "begun"): "The broker begins to notify the subscribers of {topic}.",
    ("fan-out", "ended"): _fan_out_ended,
    ("notification", "delivered"): "{subscriber} was notified of {topic}.",
    ("notification", "failed"): _notification_failed,
    ("notification", "given up"): _notification_failed,
    ("host", "unreachable"): _host_unreachable,
    ("host", "reachable"): "{host} answers again.",
    ("relay", "delivered"): "The broker passed a ping for {topic} on to {server}.",
    ("relay", "failed"): "The broker could not pass a ping for {topic} on to {server}{reason}",
    ("relay", "skipped"): "The broker did not pass {pings} pings on to {server}{reason}",
    ("administration", "done"): _administration_done,
}
