"""Says in sentences what the broker knows of a topic, for the page of the topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from attrs import frozen
from twisted.web.template import Flattenable, Tag, XMLString, tags

from rsscloud_broker.model import Topic, TopicOverview
from rsscloud_broker.util.urls import normal_form
from rsscloud_broker.web import plots, words
from rsscloud_broker.web.pages import linked
from rsscloud_broker.web.words import clipped, counted, moment, strangers_text
from rsscloud_broker.wire.cloud import Cloud
from rsscloud_broker.wire.feed_hints import DAYS
from rsscloud_broker.wire.links import HUB_PATHS
from rsscloud_broker.wire.units import DAY

#: Of a topic with more subscriptions only this many are counted.
COUNTED: Final = 10_000

#: A title or a sentence of a feed is cut to this many characters.
_LONG: Final = 300

#: How many days the plot of changes shows.
_DAYS: Final = 30


@frozen
class ThisBroker:
    """The addresses by which a feed may name this broker as its cloud or hub.

    :ivar public_url: the broker's own URL, without a slash at the end.
    :ivar has_cloud: whether the broker accepts rssCloud registrations.
    :ivar has_hub: whether the broker is a WebSub hub.
    """

    public_url: str
    has_cloud: bool
    has_hub: bool

    def is_cloud(self, cloud: Cloud) -> bool:
        """Whether a cloud is this broker."""
        own = urlsplit(self.public_url)
        port = own.port or (443 if own.scheme == "https" else 80)
        return (cloud.domain.lower(), cloud.port) == (own.hostname, port)

    def is_hub(self, url: str) -> bool:
        """Whether a hub is this broker."""
        return normal_form(url) in {normal_form(self.public_url + path) for path in HUB_PATHS}


def changes_plot(changes: Mapping[int, int], now: float) -> Flattenable:
    """A figure with the changes of a topic on each of the last days; nothing if there are none.

    :param changes: numbers by day since the epoch.
    """
    today = int(now // DAY)
    days = range(today - _DAYS + 1, today + 1)
    numbers = [changes.get(day, 0) for day in days]
    if not any(numbers):
        return ""
    said = f"{counted(sum(numbers), 'change')} in the last {_DAYS} days (UTC)"
    drawn = XMLString(plots.bars(days, numbers, "most in a day")).load()
    return tags.figure(*drawn, tags.figcaption(said), class_="plot small")


def title_of(overview: TopicOverview) -> str:
    """What the feed of a topic calls itself; empty if it is no feed or has no title."""
    title = overview.status.feed.get("title")
    return title if isinstance(title, str) else ""


def lead(overview: TopicOverview, asked: str) -> Flattenable:
    """The first sentences: whether the broker watches the topic, and for how many subscribers.

    :param asked: the URL by which somebody asked for the topic.
    """
    topic = overview.status.topic
    if normal_form(asked) != topic.url:
        moved = tags.p("The topic has moved from there to ", linked(topic.url, topic.url), ".")
        return [moved, _watch_sentence(topic)]
    return _watch_sentence(topic)


def _watch_sentence(topic: Topic) -> Tag:
    """Whether the broker watches a topic, and for how many subscribers."""
    if topic.ended:
        return tags.p(f"This topic has ended: {topic.ended}. The broker does not fetch it.")
    if not topic.subscribers:
        return tags.p(
            "The broker knows this feed or page (a topic), and nobody has subscribed to it here. "
            "So the broker fetches it only when somebody pings: says that it has changed."
        )
    if topic.subscribers == 1:
        text = "One subscriber is notified when it changes."
    else:
        is_many = topic.subscribers >= COUNTED
        count = f"At least {COUNTED:,}" if is_many else f"{topic.subscribers:,}"
        text = f"{count} subscribers are notified when it changes."
    return tags.p(f"The broker watches this feed or page (a topic). {text}")


def facts(overview: TopicOverview, this_broker: ThisBroker, now: float) -> list[Tag]:
    """All that the broker knows of a topic, as lists of names and sentences.

    What its feed says of itself is folded.
    """
    topic = overview.status.topic
    pairs = [*_address_facts(overview)]
    if topic.subscribers or topic.ended:  # else nobody watches it, and the event log says more
        pairs[1:1] = _fetch_facts(overview, now)
    problems = overview.status.feed.get("problems") or ()
    more = f", and {counted(len(problems), 'problem')} in it" if problems else ""
    summary = tags.summary(f"What its feed says{more}")
    return [
        words.facts(pairs),
        tags.details(summary, words.facts(_feed_facts(overview, this_broker)), class_="folded"),
    ]


def _address_facts(overview: TopicOverview) -> Iterator[tuple[str, Flattenable]]:
    """What the page says of the addresses of a topic and of its subscriptions: names and values."""
    topic = overview.status.topic
    is_long = len(topic.url) > _LONG
    address = strangers_text(topic.url, _LONG) if is_long else tags.code(topic.url, class_="copy")
    yield "Topic", linked(topic.url, address)
    old = overview.status.moved_from
    if old:
        yield "Moved from", _bullets([linked(url, strangers_text(url, _LONG)) for url in old])
    counts = sorted(overview.subscriptions.items(), key=lambda pair: (-pair[1], pair[0]))
    by_protocol = ", ".join(f"{number:,} by {protocol}" for protocol, number in counts)
    total = sum(overview.subscriptions.values())
    if total >= COUNTED:
        by_protocol = f"at least {COUNTED:,}; of the first {COUNTED:,}: {by_protocol}"
    yield "Subscriptions", by_protocol or "none"


def _fetch_facts(overview: TopicOverview, now: float) -> Iterator[tuple[str, Flattenable]]:
    """The fetches of a topic and the next poll: names, and sentences."""
    status, topic = overview.status, overview.status.topic
    if status.asked_at is None:
        yield "Last fetch", "never"
    else:
        said = f": {clipped(status.result, _LONG)}" if status.result else ""
        yield "Last fetch", [moment(status.asked_at, now), said]
    if status.failures:
        failed = "the last fetch" if status.failures == 1 else f"the last {status.failures} fetches"
        yield "Failures", f"{failed} failed"
    if topic.read_at is not None and topic.size is not None:
        yield "Last content", [moment(topic.read_at, now), f": {counted(topic.size, 'byte')}"]
    if topic.changed_at is not None:
        yield "Last change", moment(topic.changed_at, now)
    yield (
        "Last ping",
        "never, as far as the broker knows"
        if status.pinged_at is None
        else [moment(status.pinged_at, now), ", which made the broker fetch it"],
    )
    if topic.ended:
        return
    if status.next_poll_at is None:
        why = clipped(status.poll_reason, _LONG) if topic.subscribers else "nobody has subscribed"
        yield "Next poll", f"none is planned: {why}" if why else "none is planned"
    else:
        reason = f": {clipped(status.poll_reason, _LONG)}" if status.poll_reason else ""
        yield "Next poll", [moment(status.next_poll_at, now), reason]


def _feed_facts(
    overview: TopicOverview, this_broker: ThisBroker
) -> Iterator[tuple[str, Flattenable]]:
    """What the feed of a topic says of itself: names, and sentences."""
    feed = overview.status.feed
    if not feed:
        yield "Feed", "The broker has not read its content as a feed yet."
        return
    if "unreadable" in feed:
        reason = clipped(str(feed["unreadable"]), _LONG)
        yield "Feed", f"The broker cannot read its content as a feed: {reason}."
        return
    link, own = str(feed.get("link", "")), str(feed.get("self_link", ""))
    title = [", called ", strangers_text(str(feed["title"]), _LONG)] if feed.get("title") else []
    yield "Feed", ["It is ", clipped(str(feed.get("format", "a feed"))), *title, "."]
    if link:
        yield "Home page", linked(link, strangers_text(link, _LONG))
    if own:
        yield (
            "Own address",
            [linked(own, strangers_text(own, _LONG)), _other_address_note(own, overview)],
        )
    yield "Cloud", _cloud_fact(feed.get("clouds") or (), this_broker)
    yield "Hub", _hub_fact(feed.get("hubs") or (), this_broker)
    yield "Hints", _hints_fact(feed.get("hints") or {})
    problems = [clipped(str(problem), _LONG) for problem in feed.get("problems") or ()]
    if problems:
        yield "Problems", _bullets([f"{problem}." for problem in problems])


def _other_address_note(own: str, overview: TopicOverview) -> str:
    """The end of a sentence if a feed gives an address that the topic never had."""
    if normal_form(own) in {overview.status.topic.url, *overview.status.moved_from}:
        return ""
    return ". This is another address than the one that the broker fetches."


def _cloud_fact(named: Sequence[Mapping[str, Any]], this_broker: ThisBroker) -> Flattenable:
    """Which clouds a feed names, and whether this broker is among them."""
    clouds = [Cloud(**cloud) for cloud in named]
    if any(map(this_broker.is_cloud, clouds)):
        return "It names this broker as its cloud, so rssCloud readers find the broker."
    if clouds:
        return [
            "It names another cloud: ",
            _bullets([strangers_text(each.url, _LONG) for each in clouds]),
        ]
    if this_broker.has_cloud:
        return "It names no cloud, so rssCloud readers do not find this broker through it."
    return "It names no cloud."


def _hub_fact(named: Sequence[str], this_broker: ThisBroker) -> Flattenable:
    """Which hubs a feed names, and whether this broker is among them."""
    hubs = [str(hub) for hub in named]
    if any(map(this_broker.is_hub, hubs)):
        return "It names this broker as its hub, so WebSub subscribers find the broker."
    if hubs:
        return ["It names another hub: ", _bullets([strangers_text(hub, _LONG) for hub in hubs])]
    if this_broker.has_hub:
        return "It names no hub in its content, so WebSub subscribers may not find this broker."
    return "It names no hub in its content."


def _hints_fact(hints: Mapping[str, Any]) -> str:
    """What a feed asks of those who poll it."""
    clauses = []
    if minutes := hints.get("ttl_minutes"):
        clauses.append(f"keep it for {counted(minutes, 'minute')} (ttl)")
    if seconds := hints.get("update_seconds"):
        clauses.append(f"it is updated every {counted(round(seconds / 60), 'minute')}")
    if hours := hints.get("skip_hours"):
        clauses.append(f"skip the hours {', '.join(map(str, hours))} (GMT)")
    if days := hints.get("skip_days"):
        clauses.append(f"skip {', '.join(DAYS[day] for day in days)}")
    return "; ".join(clauses) or "It says nothing about when to poll it."


def _bullets(items: Sequence[Flattenable]) -> Tag:
    return tags.ul(*(tags.li(item) for item in items))
