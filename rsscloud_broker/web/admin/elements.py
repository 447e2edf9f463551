"""The elements that only the pages of the console share: links, states, messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import urlencode

from twisted.web.template import Flattenable, Tag, tags

from rsscloud_broker.http.shown_exchange import message
from rsscloud_broker.model import Exchange
from rsscloud_broker.model.administration import Block
from rsscloud_broker.model.work import HostState
from rsscloud_broker.web.admin.operations import close_breaker
from rsscloud_broker.web.log_lines import PLAIN_WORDS
from rsscloud_broker.web.words import moment, one_button, strangers_text
from rsscloud_broker.wire.text import legal

#: The longest texts of strangers that are shown: URLs, and reasons.
MAX_URL, MAX_REASON = 200, 500

#: Colours of states of subscriptions.
_COLOURS: Final = {"active": "good", "failing": "bad", "dropping": "bad", "waiting": "waiting"}

#: How many rows a page of the console shows; the others are behind a link.
ON_PAGE: Final = 50


def path(place: str, **query: object) -> str:
    """A path on this broker with a query; empty values are left out."""
    given = {name: value for name, value in query.items() if value not in {"", None}}
    return f"{place}?{urlencode(given)}" if given else place


def further(place: str, **query: object) -> Tag | str:
    """A link to the next page of a list; empty if ``after`` is None."""
    if query.get("after") is None:
        return ""
    return tags.p(tags.a("Next page", href=path(place, **query), rel="next"), class_="pages")


def badges(states: Iterable[str]) -> list[Flattenable]:
    """The states of a subscription."""
    shown: list[Flattenable] = []
    for state in states:
        kind = f"badge {_COLOURS.get(state, '')}".strip()
        shown += [tags.span(PLAIN_WORDS.get(state, state), class_=kind), " "]
    return shown


def subscription_link(key: int, *text: Flattenable) -> Tag:
    """A link to the page of a subscription."""
    return tags.a(*text, href=path("/admin/subscription", id=key))


def topic_link(url: str) -> Tag:
    """A link to the page of a topic for administrators."""
    return tags.a(strangers_text(url, MAX_URL), href=path("/admin/topic", url=url))


def blocked(block: Block | None) -> Flattenable:
    """That something is blocked, and why; empty if it is not."""
    if block is None:
        return ""
    return [
        f"The {block.kind} ",
        strangers_text(block.object, MAX_URL),
        f" is blocked by {block.account}: ",
        strangers_text(block.reason, MAX_REASON),
    ]


def breaker_row(one: HostState, csrf: str, now: float) -> Sequence[Flattenable]:
    """A row of the table of open breakers."""
    close = one_button("Call it now", "/admin/hosts", csrf, do=close_breaker.name, host=one.host)
    return (strangers_text(one.host), f"{one.failures:,}", moment(one.retry_at, now), close)


#: The headings of the table of open breakers.
BREAKER_COLUMNS: Final = ("Host", "Calls without an answer", "Next call", "Call it now")


def raw(exchange: Exchange, number: int) -> list[Tag]:
    """A request and its answer, as blocks of code.

    :param number: tells the blocks of one page apart, for screen readers.
    """
    body = exchange.request_body
    asked = message(
        f"{exchange.method} {exchange.url}",
        exchange.request_headers.items(),
        body.decode("utf-8", "replace"),
    )
    answer = tags.p("There was no answer.", class_="quiet")
    if exchange.status is not None:
        headers, body = exchange.answer_headers.items(), exchange.answer_body
        answer = _code(
            "Answer",
            number,
            message(f"Status {exchange.status}", headers, body.decode("utf-8", "replace")),
        )
    return [_code("Request", number, asked), answer]


def _code(label: str, number: int, text: str) -> Tag:
    """A block of code with a heading."""
    block = tags.pre(legal(text), class_="raw", tabindex="0", role="region")
    return tags.div(tags.h4(label), block(**{"aria-label": f"{label} {number}"}))
