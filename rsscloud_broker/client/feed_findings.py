"""Judges a feed and its server's answers, in sentences for the publisher.

Each function looks at one subject and says what is good, what is missing and what is wrong, with
what to do about it.  None of them does input or output.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from attrs import frozen

from rsscloud_broker.client.feed_requests import PERMANENT, FeedAnswer, Fetches
from rsscloud_broker.interfaces import Finding
from rsscloud_broker.util.urls import joined
from rsscloud_broker.wire import links
from rsscloud_broker.wire.conditional import sendable
from rsscloud_broker.wire.feed import read_feed, xml_redirect
from rsscloud_broker.wire.feed_facts import FeedFacts
from rsscloud_broker.wire.feed_hints import DAYS
from rsscloud_broker.wire.feed_tree import UnreadableFeed
from rsscloud_broker.wire.http_dates import freshness, http_date
from rsscloud_broker.wire.units import in_words
from rsscloud_broker.wire.web_address import fault_of_form

#: A feed of more bytes than this should be shorter.
LARGE_BYTES: Final = 512 * 1024
#: No feed should be fresh for longer than this, in seconds.
LONG_SECONDS: Final = 7 * 86_400


@frozen
class Judgement:
    """What the answers to the requests for a feed say.

    :ivar findings: the findings, in the order of the exchange: redirects, headers, content.
    :ivar facts: what the feed says of itself; None if the last answer is no feed.
    :ivar hubs: the URLs of the hubs that the feed or its server names.
    """

    findings: tuple[Finding, ...]
    facts: FeedFacts | None = None
    hubs: tuple[str, ...] = ()


def judge(fetches: Fetches) -> Judgement:
    """Judge a feed by the answers to the requests for it.

    The largest feeds take a second or two, so a server should call this in a thread.
    """
    found = [*_judge_redirects(fetches)]
    last = fetches.last
    if last.status != 200:
        return Judgement((*found, _judge_no_feed(fetches)))
    if (moved := xml_redirect(last.body)) is not None:
        return Judgement((*found, _judge_xml_redirect(moved)))
    found += [*_judge_validators(last, fetches.again), *_judge_caching(last), *_judge_size(last)]
    try:
        facts = read_feed(last.body, last.headers.get("content-type", ""))
    except UnreadableFeed as error:
        text = f"This is not a feed: {error.reason}."
        return Judgement((*found, Finding("wrong", "feed", text)))
    found.append(Finding("good", "feed", f"It is {_describe_feed(facts)}."))
    found += [Finding("wrong", "feed", f"{problem}.") for problem in facts.problems]
    in_headers: list[links.WebLink] = []
    try:
        in_headers = links.parse(last.headers.get("link", ""))
    except links.MalformedLink as error:
        found.append(Finding("wrong", "Link", f"Nobody can use its Link header: {error}."))
    found += _judge_links(facts, last, links.targets(in_headers, "self"))
    # WebSub subscribers look at the headers first (WebSub, section 4).
    named = (*links.targets(in_headers, "hub"), *facts.hubs)
    hubs = tuple(dict.fromkeys(filter(None, (joined(last.url, hub) for hub in named))))
    for hub in named:
        if not joined(last.url, hub):
            text = f"The hub {hub} is no URL, so nobody can subscribe there. Correct its address."
            found.append(Finding("wrong", "hub", text))
    found += [*_judge_push(facts, hubs), *_judge_hints(facts)]
    return Judgement(tuple(found), facts, hubs)


# --- where the feed is ------------------------------------------------------


def _judge_redirects(fetches: Fetches) -> Iterator[Finding]:
    """A finding for each redirect that was followed: good, as readers can follow it, too."""
    for answer in fetches.redirects:
        there = f"{answer.url} leads to {answer.target} (status {answer.status})"
        if answer.status in PERMANENT:
            text = (
                f"{there}: the feed has moved for good. Readers adopt the new address; keep the"
                " redirect for readers that have not asked yet."
            )
        else:
            text = (
                f"{there}, for the time being. Readers keep the old address and go on asking"
                " there, so each fetch takes two requests. If the feed has moved for good,"
                " answer 301 instead."
            )
        yield Finding("good", "redirect", text)


def _judge_no_feed(fetches: Fetches) -> Finding:
    """The finding about an answer that has no feed."""
    last = fetches.last
    at = f"{last.url} answers with status {last.status}"
    if last.status == 410:
        return Finding(
            "good", "gone", f"{at}: the feed has ended. Readers drop it and never ask again."
        )
    if fetches.circle:
        text = f"{at} and redirects in a circle. Nobody ever gets to the feed."
        return Finding("wrong", "redirect", text)
    if fetches.stopped:
        text = f"{at}, but its redirect to {last.target} was not followed: {fetches.stopped}."
        return Finding("missing", "redirect", text)
    if last.target:
        text = f"{at}: there are too many redirects. Redirect each old address to the feed itself."
        return Finding("wrong", "redirect", text)
    if last.status == 404:
        text = (
            f"{at}: not found, which readers take for a temporary fault. If the feed has moved,"
            " answer 301 with its new address; if it has ended, answer 410, and they stop asking."
        )
        return Finding("wrong", "not found", text)
    return Finding("wrong", "answer", f"{at}; a feed must be sent with status 200.")


def _judge_xml_redirect(url: str) -> Finding:
    """The finding about ``newLocation``; an empty URL says that the feed has ended."""
    if not url:
        text = (
            "The document says that the feed has ended (an empty newLocation), like a status of"
            " 410: readers drop it. If your server can, answer 410, which more readers understand."
        )
        return Finding("good", "gone", text)
    if fault_of_form(url):
        text = (
            f"newLocation is {url}. It must be the whole URL of the feed, with http:// or https://."
        )
        return Finding("wrong", "redirect", text)
    text = (
        f"The document says that the feed has moved to {url}, like a status of 301: readers adopt"
        " the new address. If your server can, answer 301, which more readers understand."
    )
    return Finding("good", "redirect", text)


# --- what HTTP says ---------------------------------------------------------


def _judge_validators(last: FeedAnswer, again: FeedAnswer | None) -> Iterator[Finding]:
    """The findings about ETag and Last-Modified; ``again`` is None if neither can be sent back."""
    etag, modified = last.headers.get("etag", ""), last.headers.get("last-modified", "")
    if not etag and not modified:
        text = (
            f"There is neither an ETag nor a Last-Modified header, so every reader takes all"
            f" {_size(last.body)} each time it asks. With an ETag, readers ask whether the feed"
            " has changed, and your server answers with a short 304 as long as it has not."
        )
        yield Finding("missing", "ETag", text)
        return
    if again is not None:
        yield _judge_second_answer(last, again)
    if not etag:
        text = (
            "There is only a Last-Modified header. An ETag also distinguishes versions of the same"
            " second, and does not depend on clocks."
        )
        yield Finding("missing", "ETag", text)
    elif not sendable(etag):
        text = (
            "The ETag cannot be sent back, so no reader can ask by it whether the feed has changed:"
            " it is very long, or has characters that are not printable. Make it of letters and"
            " digits in double quotes."
        )
        yield Finding("wrong", "ETag", text)
    elif not etag.removeprefix("W/").startswith('"') or not etag.endswith('"'):
        yield Finding("wrong", "ETag", f"An ETag must be in double quotes; this one is {etag}")
    if modified:
        moment = http_date(modified)
        if moment is None:
            text = f"{modified} is not an HTTP date, such as Sun, 06 Nov 1994 08:49:37 GMT."
            yield Finding("wrong", "Last-Modified", text)
        elif moment > last.at + 60:  # a clock may be wrong by a minute
            text = f"{modified} is in the future, so the feed never seems to have changed since."
            yield Finding("wrong", "Last-Modified", text)


def _judge_second_answer(last: FeedAnswer, again: FeedAnswer) -> Finding:
    """The finding about the answer to the second, conditional request."""
    if again.status == 304:
        text = (
            "Asked again for changes, the server answered 304 and sent nothing: readers take the"
            " feed only when it has changed."
        )
        return Finding("good", "304", text)
    if again.status != 200:
        text = f"Asked again for changes, the server answered with status {again.status}."
        return Finding("wrong", "304", text)
    if again.body != last.body:
        text = (
            "The feed changed between two requests in a row. If it contains the time of the"
            " request, a counter or something random, leave that out: otherwise every reader takes"
            " the whole feed each time it asks."
        )
    elif again.headers.get("etag", "") != last.headers.get("etag", ""):
        text = (
            "The same bytes came with another ETag, so no reader ever gets a 304. Make the ETag"
            " from the bytes, for instance as a hash of them."
        )
    else:
        text = (
            "Asked again for changes, the server sent the same bytes instead of a 304: it sends"
            " validators, but ignores If-None-Match and If-Modified-Since."
        )
    return Finding("wrong", "304", text)


def _judge_caching(last: FeedAnswer) -> Iterator[Finding]:
    """The findings about how long readers may keep the feed without asking."""
    if "no-store" in last.headers.get("cache-control", "").lower():
        text = (
            "Cache-Control has no-store: readers and proxies may not keep the feed, not even to"
            " ask whether it has changed. You probably want no-cache, or a short max-age."
        )
        yield Finding("wrong", "Cache-Control", text)
        return
    seconds = freshness(last.headers, last.at)
    if seconds is None:
        text = (
            "The answer does not say how long it stays fresh. With a header such as Cache-Control:"
            " max-age=900, readers and proxies know for how long they need not ask."
        )
        yield Finding("missing", "Cache-Control", text)
    elif seconds > LONG_SECONDS:
        text = (
            f"The answer says that it stays fresh for {in_words(seconds)}, so readers that obey"
            " miss all changes for so long. Such a time is for images; give feeds a shorter one."
        )
        yield Finding("wrong", "Cache-Control", text)
    elif seconds > 0:
        text = f"The answer stays fresh for {in_words(seconds)}; nobody needs to ask before then."
        yield Finding("good", "Cache-Control", text)
    else:
        text = "Readers must ask for changes each time, which is cheap if 304 works."
        yield Finding("good", "Cache-Control", text)


def _judge_size(last: FeedAnswer) -> Iterator[Finding]:
    """The findings about compression, the size of the feed, and its media type."""
    if last.compressed:
        yield Finding("good", "gzip", "The server compresses the feed for readers that accept it.")
    elif len(last.body) >= 1024:  # a smaller feed need not be compressed
        text = (
            f"The server sent all {_size(last.body)} uncompressed, though the reader accepts"
            " gzip, which makes a feed several times smaller. Turn gzip on for the feed's type."
        )
        yield Finding("missing", "gzip", text)
    if len(last.body) > LARGE_BYTES:
        text = (
            f"The feed has {_size(last.body)}. Keep only the latest entries in it; older ones can"
            " go to archived documents (RFC 5005)."
        )
        yield Finding("wrong", "size", text)
    label = last.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not any(name in label for name in ("xml", "json")):
        text = (
            f"The feed is sent with the type {label or '(none)'}. The types of feeds are"
            " application/rss+xml, application/atom+xml and application/feed+json."
        )
        yield Finding("wrong", "Content-Type", text)


# --- what the feed says -----------------------------------------------------


def _describe_feed(facts: FeedFacts) -> str:
    """The format and the title of the feed, and how many of its entries have ids, as a clause."""
    names = {"atom": "an Atom feed", "json feed": "a JSON Feed"}
    kind = names.get(facts.format, f"an RSS feed, version {facts.format.removeprefix('rss ')}")
    title = f", “{facts.title[:100]}”" if facts.title else ", without a title"
    return f"{kind}{title}, with {_count(len(facts.entry_ids), 'entry', 'entries')} that have ids"


def _judge_links(
    facts: FeedFacts, last: FeedAnswer, in_headers: Sequence[str]
) -> Iterator[Finding]:
    """The findings about the feed's home page and its own address.

    :param in_headers: the addresses of the feed by its Link headers.
    """
    if not facts.link:
        yield Finding("missing", "link", "The feed does not say where its home page is.")
    written = facts.self_link or next(iter(in_headers), "")
    if in_headers and joined(last.url, in_headers[0]) != joined(last.url, written):
        text = (
            f"The Link header gives {in_headers[0]} as the address of the feed, and the feed itself"
            f" gives {written}. Subscribers use the one in the header; make both the same."
        )
        yield Finding("wrong", "self link", text)
    if not written:
        text = "The feed does not give its own address, by which hubs and readers know it."
        yield Finding("missing", "self link", text)
    elif joined(last.url, written) != last.url:
        text = (
            f"The feed gives {written} as its own address, but it is at {last.url}. Pings"
            " for one address do not reach subscribers of the other."
        )
        yield Finding("wrong", "self link", text)


def _judge_push(facts: FeedFacts, hubs: Sequence[str]) -> Iterator[Finding]:
    """The findings about the clouds and hubs that the feed names."""
    for cloud in facts.clouds:
        text = f"Readers can register at {cloud.url} by {cloud.protocol} (rssCloud)."
        yield Finding("good", "cloud", text)
    for hub in hubs:
        yield Finding("good", "hub", f"Readers can subscribe to changes at {hub} (WebSub).")
    if not facts.clouds and facts.format != "atom":
        text = (
            "The feed names no cloud, so rssCloud readers have to poll. Name a broker in a cloud"
            " element, and ping it when the feed has changed."
        )
        yield Finding("missing", "cloud", text)
    if not hubs:
        text = (
            "The feed names no hub, so WebSub readers have to poll. Link to a hub with rel=hub,"
            " and ping it when the feed has changed."
        )
        yield Finding("missing", "hub", text)


def _judge_hints(facts: FeedFacts) -> Iterator[Finding]:
    """The findings about what the feed says of how often to ask for it."""
    hints = facts.hints
    if hints.ttl_minutes:
        text = f"Readers may keep the feed for {in_words(hints.ttl_minutes * 60)}."
        yield Finding("good", "ttl", text)
    if hints.update_seconds:
        text = f"The feed is updated every {in_words(hints.update_seconds)}."
        yield Finding("good", "syndication", text)
    if hints.skip_hours:
        hours = ", ".join(map(str, sorted(hints.skip_hours)))
        text = f"Readers need not ask in these hours (GMT): {hours}."
        yield Finding("good", "skipHours", text)
    if hints.skip_days:
        days = ", ".join(DAYS[day] for day in sorted(hints.skip_days))
        yield Finding("good", "skipDays", f"Readers need not ask on these days (GMT): {days}.")
    if not facts.format.startswith("rss"):
        return  # Atom and JSON Feed have no such hints, and leave this to HTTP
    if not hints.ttl_minutes and not hints.update_seconds:
        text = (
            "There is no valid ttl, which says how often readers should ask. Give it in minutes:"
            " the longer it is, the less you send, and the later readers see new entries."
        )
        yield Finding("missing", "ttl", text)
    if not hints.skip_hours and not hints.skip_days:
        text = (
            "If there are hours or days in which you never publish, name them in skipHours and"
            " skipDays: readers then leave your server alone."
        )
        yield Finding("missing", "skipHours", text)


# --- words ------------------------------------------------------------------


def _count(number: int, one: str, more: str) -> str:
    return f"{number} {one if number == 1 else more}"


def _size(body: bytes) -> str:
    size = len(body)
    return f"{size / 1024:.0f} KiB" if size >= 10 * 1024 else _count(size, "byte", "bytes")
