"""What the answers to a reader say about a feed's state, in words for its publisher.

Each function looks at one subject and says what is good, what is missing and what
is wrong, with what to do about it.  None of them does any input or output.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal
from urllib.parse import urljoin, urlsplit

from attrs import frozen

from rsscloud_broker.client.feed_requests import PERMANENT, Answer, Fetches
from rsscloud_broker.wire.feed import FeedFacts, UnreadableFeed, read_feed, xml_redirect
from rsscloud_broker.wire.feed_hints import DAYS
from rsscloud_broker.wire.http_dates import freshness, http_date

Kind = Literal["good", "missing", "wrong"]

#: A feed of more bytes ought to be shorter.
LARGE_BYTES: Final = 512 * 1024
#: Less than this is not worth being compressed.
SMALL_BYTES: Final = 1024
#: Longer than this no feed stays fresh, whatever its server says.
LONG_SECONDS: Final = 7 * 86_400
#: A clock may be wrong by so much.
_CLOCK_SECONDS = 60


@frozen
class Finding:
    """One thing that a publisher may want to know.

    :ivar subject: in a word or two.
    :ivar text: whole sentences.
    """

    kind: Kind
    subject: str
    text: str


def findings_of(fetches: Fetches) -> list[Finding]:
    """What is good, missing and wrong about a feed, in the order of the exchange."""
    found = [*_redirects(fetches)]
    last = fetches.last
    if last.status != 200:
        return [*found, _no_feed(fetches)]
    if (moved := xml_redirect(last.body)) is not None:
        return [*found, _moved_by_xml(moved)]
    found += [*_validators(last, fetches.again), *_caching(last), *_size(last)]
    try:
        facts = read_feed(last.body, last.headers.get("content-type", ""))
    except UnreadableFeed as error:
        return [*found, Finding("wrong", "feed", f"This is not a feed: {error.reason}.")]
    found.append(Finding("good", "feed", f"It is {_named(facts)}."))
    found += [Finding("wrong", "feed", f"{problem}.") for problem in facts.problems]
    return [*found, *_links(facts, last), *_push(facts), *_hints(facts)]


# --- where the feed is ------------------------------------------------------


def _redirects(fetches: Fetches) -> Iterator[Finding]:
    for answer in fetches.redirects:
        there = f"{answer.url} leads to {answer.target} (status {answer.status})"
        if answer.status in PERMANENT:
            text = (
                f"{there}: the feed has moved for good. Readers take over the new address;"
                " keep the redirect for those that have not asked yet."
            )
        else:
            text = (
                f"{there}, for the time being. Readers keep the old address and go on asking"
                " there, which makes two requests out of each. If the feed has moved for good,"
                " answer 301 instead."
            )
        yield Finding("good", "redirect", text)


def _no_feed(fetches: Fetches) -> Finding:
    """What to say of an answer that brings no feed."""
    last = fetches.last
    at = f"{last.url} answers with status {last.status}"
    if last.status == 410:
        return Finding(
            "good", "gone", f"{at}: the feed has ended. Readers drop it and never ask again."
        )
    if fetches.circle:
        text = f"{at} and leads back to where the reader has been. Nobody ever gets to the feed."
        return Finding("wrong", "redirect", text)
    if last.target:
        text = f"{at}: there are too many redirects. Lead from each old address to the feed itself."
        return Finding("wrong", "redirect", text)
    if last.status == 404:
        text = (
            f"{at}: not found, which readers take for a fault that passes. If the feed has moved,"
            " answer 301 with its new address; if it has ended, answer 410, and they stop asking."
        )
        return Finding("wrong", "not found", text)
    return Finding("wrong", "answer", f"{at}, where a feed is sent with 200.")


def _moved_by_xml(url: str) -> Finding:
    if not url:
        text = (
            "The document says that the feed has ended (an empty newLocation), like a status of"
            " 410: readers drop it. Answer 410 if your server lets you; more readers know it."
        )
        return Finding("good", "gone", text)
    if urlsplit(url).scheme not in {"http", "https"}:
        text = (
            f"newLocation is {url}. It must be the whole URL of the feed, with http:// or https://."
        )
        return Finding("wrong", "redirect", text)
    text = (
        f"The document says that the feed has moved to {url}, like a status of 301: readers take"
        " over the new address. Answer 301 if your server lets you; more readers know it."
    )
    return Finding("good", "redirect", text)


# --- what HTTP says ---------------------------------------------------------


def _validators(last: Answer, again: Answer | None) -> Iterator[Finding]:
    etag, modified = last.headers.get("etag", ""), last.headers.get("last-modified", "")
    if again is None:
        text = (
            f"There is neither an ETag nor a Last-Modified header, so every reader takes all"
            f" {_bytes(last.body)} each time it asks. With an ETag it asks whether the feed has"
            " changed, and a short 304 is the answer as long as it has not."
        )
        yield Finding("missing", "ETag", text)
        return
    yield _asked_again(last, again)
    if not etag:
        text = (
            "There is a Last-Modified header only. An ETag tells versions apart that are of the"
            " same second, and does not depend on clocks."
        )
        yield Finding("missing", "ETag", text)
    elif not etag.removeprefix("W/").startswith('"') or not etag.endswith('"'):
        yield Finding("wrong", "ETag", f"An ETag stands in double quotes; this one is {etag}")
    if modified:
        moment = http_date(modified)
        if moment is None:
            text = f"{modified} is not a date of HTTP, such as Sun, 06 Nov 1994 08:49:37 GMT."
            yield Finding("wrong", "Last-Modified", text)
        elif moment > last.at + _CLOCK_SECONDS:
            text = f"{modified} is in the future, so nothing can have changed since."
            yield Finding("wrong", "Last-Modified", text)


def _asked_again(last: Answer, again: Answer) -> Finding:
    if again.status == 304:
        text = (
            "Asked again for changes since, the server answered 304 and sent nothing: readers"
            " take the feed only when it has changed."
        )
        return Finding("good", "304", text)
    if again.status != 200:
        text = f"Asked again for changes since, the server answered with status {again.status}."
        return Finding("wrong", "304", text)
    if again.body != last.body:
        text = (
            "Between two requests in a row the feed changed. If it holds the time of the request,"
            " a counter or something random, every reader takes all of it each time it asks;"
            " leave that out."
        )
    elif again.headers.get("etag", "") != last.headers.get("etag", ""):
        text = (
            "The ETag was another one for the same bytes, so no reader ever gets a 304. Make it"
            " from what is sent, such as a hash of it."
        )
    else:
        text = (
            "Asked again for changes since, the server sent the same bytes once more instead of a"
            " 304: it hands out validators and does not look at If-None-Match and"
            " If-Modified-Since."
        )
    return Finding("wrong", "304", text)


def _caching(last: Answer) -> Iterator[Finding]:
    if "no-store" in last.headers.get("cache-control", "").lower():
        text = (
            "Cache-Control has no-store: readers and proxies may not keep the feed, not even to"
            " ask whether it has changed. no-cache, or a short max-age, is what you may want."
        )
        yield Finding("wrong", "Cache-Control", text)
        return
    seconds = freshness(last.headers, last.at)
    if seconds is None:
        text = (
            "The answer does not say how long it stays fresh. With Cache-Control: max-age=900,"
            " say, readers and the proxies between know for how long they need not ask."
        )
        yield Finding("missing", "Cache-Control", text)
    elif seconds > LONG_SECONDS:
        text = (
            f"The answer is to stay fresh for {_time(seconds)}, so readers that obey miss what is"
            " new for as long. That is a rule for images; give feeds one of their own."
        )
        yield Finding("wrong", "Cache-Control", text)
    elif seconds > 0:
        text = f"The answer stays fresh for {_time(seconds)}; nobody needs to ask before."
        yield Finding("good", "Cache-Control", text)
    else:
        text = "The answer is to be checked each time, which is cheap where 304 works."
        yield Finding("good", "Cache-Control", text)


def _size(last: Answer) -> Iterator[Finding]:
    if last.compressed:
        yield Finding("good", "gzip", "It was sent compressed, since the reader can take that.")
    elif len(last.body) >= SMALL_BYTES:
        text = (
            f"All {_bytes(last.body)} were sent as they are, though the reader offered gzip, which"
            " makes a feed several times smaller. Turn it on for the type of feeds."
        )
        yield Finding("missing", "gzip", text)
    if len(last.body) > LARGE_BYTES:
        text = (
            f"It has {_bytes(last.body)}. Keep the latest entries in it only; older ones can go to"
            " archived documents (RFC 5005)."
        )
        yield Finding("wrong", "size", text)
    label = last.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not any(name in label for name in ("xml", "json")):
        text = (
            f"It is labelled as {label or 'nothing'}. Feeds are application/rss+xml,"
            " application/atom+xml or application/feed+json."
        )
        yield Finding("wrong", "Content-Type", text)


# --- what the feed says -----------------------------------------------------


def _named(facts: FeedFacts) -> str:
    names = {"atom": "an Atom feed", "json feed": "a JSON Feed"}
    kind = names.get(facts.format, f"an RSS feed, version {facts.format.removeprefix('rss ')}")
    title = f", “{facts.title[:100]}”" if facts.title else ", without a title"
    return (
        f"{kind}{title}, with {_count(len(facts.entry_ids), 'entry', 'entries')} to be told apart"
    )


def _links(facts: FeedFacts, last: Answer) -> Iterator[Finding]:
    if not facts.link:
        yield Finding("missing", "link", "The feed does not say where its home page is.")
    if not facts.self_link:
        text = "The feed does not give its own address, which hubs and readers go by."
        yield Finding("missing", "self link", text)
    elif urljoin(last.url, facts.self_link) != last.url:
        text = (
            f"The feed gives {facts.self_link} as its own address, though it was found at"
            f" {last.url}. Pings for the one do not reach subscribers of the other."
        )
        yield Finding("wrong", "self link", text)


def _push(facts: FeedFacts) -> Iterator[Finding]:
    for cloud in facts.clouds:
        text = f"Readers can ask {cloud.url} to be told of changes, by {cloud.protocol}."
        yield Finding("good", "cloud", text)
    for hub in facts.hubs:
        yield Finding("good", "hub", f"Readers can subscribe to changes at {hub} (WebSub).")
    if not facts.clouds and facts.format != "atom":
        text = (
            "There is no cloud that rssCloud readers could use, so they have to ask again and"
            " again. Name a broker in a cloud element, and ping it when the feed has changed."
        )
        yield Finding("missing", "cloud", text)
    if not facts.hubs:
        text = (
            "There is no hub link, so WebSub readers have to ask again and again. Link a hub with"
            " rel=hub, and tell it when the feed has changed."
        )
        yield Finding("missing", "hub", text)


def _hints(facts: FeedFacts) -> Iterator[Finding]:
    hints = facts.hints
    if hints.ttl_minutes:
        text = f"What was read stays good for {_time(hints.ttl_minutes * 60)}; readers may wait."
        yield Finding("good", "ttl", text)
    if hints.update_seconds:
        text = f"The feed is brought up to date every {_time(hints.update_seconds)}."
        yield Finding("good", "syndication", text)
    if hints.skip_hours:
        hours = ", ".join(map(str, sorted(hints.skip_hours)))
        text = f"Readers need not ask in these hours, which are of GMT: {hours}."
        yield Finding("good", "skipHours", text)
    if hints.skip_days:
        days = ", ".join(DAYS[day] for day in sorted(hints.skip_days))
        yield Finding("good", "skipDays", f"Readers need not ask on {days}, by GMT.")
    if not facts.format.startswith("rss"):
        return  # these formats leave it to HTTP
    if not hints.ttl_minutes and not hints.update_seconds:
        text = (
            "There is no valid ttl, which says how often it is worth asking. Give it in minutes:"
            " the longer it is, the less you send, and the later news arrive."
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


def _bytes(body: bytes) -> str:
    size = len(body)
    return f"{size / 1024:.0f} KiB" if size >= 10 * 1024 else _count(size, "byte", "bytes")


def _time(seconds: float) -> str:
    for unit, one, more in (
        (86_400, "day", "days"),
        (3600, "hour", "hours"),
        (60, "minute", "minutes"),
    ):
        if seconds >= 2 * unit:
            return f"{round(seconds / unit, 1):g} {more}"
        if seconds == unit:
            return f"1 {one}"
    return f"{seconds:g} seconds" if seconds != 1 else "1 second"
