"""The answers to GET and HEAD of a file; ``web.feed_answers`` says how.

The files are by strangers, so no browser may run anything in them.

Everybody gets a file byte for byte as it came, except people who open a feed in a browser: they
get it as plain XML that names the broker's style sheet, so that they see what they can read::

    <?xml version="1.0" encoding="utf-8"?><?xml-stylesheet type="text/css" href="/changes.css"?>

A feed that names a style sheet of its own is served to them as it is, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Final
from zlib import crc32

from attrs import frozen
from twisted.web.server import Request

from rsscloud_broker.apps.hosting.rows import Served
from rsscloud_broker.http.answering import Answer
from rsscloud_broker.http.requests import header
from rsscloud_broker.web.feed_answers import STYLED_VARY, FeedAnswers
from rsscloud_broker.wire.change_list import style_data
from rsscloud_broker.wire.negotiation import wants_page

#: A browser that shows a file runs nothing in it, and loads nothing for it.
SAFE: Final = {
    "content-security-policy": "default-src 'none'; sandbox; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
}

#: What comes before the instruction, in documents whose first bytes are those of ASCII.
_HEAD: Final = re.compile(
    rb"(?:\xef\xbb\xbf)?(?:<\?xml\s[^>]{1,300}\?>|(?!<\?xml\s)(?=\s{0,99}<[!?\w]))"
)
#: The types of feeds; the style sheet has nothing for lists of feeds.
_FEEDS: Final = ("application/rss+xml", "application/rdf+xml", "application/atom+xml")


def _instruction_offset(content: Served) -> int | None:
    """Where in a feed the instruction can stand; None if it is no feed, or names a sheet already.

    The document is not parsed, since it is a stranger's.
    """
    head = _HEAD.match(content.body) if content.media_type.startswith(_FEEDS) else None
    return None if head is None or b"<?xml-stylesheet" in content.body else head.end()


@frozen
class FileAnswers:
    """The answers to requests for a file.

    :ivar exact: those with its bytes.
    :ivar make_shown: makes those for people who open it in a browser; None if they get the same.
        They are few, so nothing of it is kept in memory.
    """

    exact: FeedAnswers
    make_shown: Callable[[], FeedAnswers] | None

    @classmethod
    def of(cls, content: Served, link: str, now: float, sheet: str) -> FileAnswers:
        """Make the answers for a file.

        :param link: the value of its Link header; empty for none.
        :param now: the present time, in seconds since the epoch.
        :param sheet: the URL of the style sheet for feeds.
        """
        tag, at = content.digest.hex()[:32], content.modified_at
        exact = partial(FeedAnswers.of, content.body, content.packed, content.media_type, tag, at)
        if (place := _instruction_offset(content)) is None:
            return cls(exact(now, link, SAFE), None)
        varying = {**SAFE, "vary": STYLED_VARY}
        # The sheet may be at another host than the feeds.
        source = "'self'" if sheet.startswith("/") else sheet
        policy = f"style-src {source}; {SAFE['content-security-policy']}"
        more = {**varying, "content-security-policy": policy}
        _, _, charset = content.media_type.partition(";")
        instruction = f"<?xml-stylesheet {style_data(sheet)}?>".encode("ascii")

        def make_shown() -> FeedAnswers:
            """The answers with the name of the style sheet put in; their ETag depends on it too."""
            body = content.body[:place] + instruction + content.body[place:]
            kind = f"application/xml;{charset}"
            shown_tag = f"{tag}-{crc32(sheet.encode()):08x}"
            return FeedAnswers.of(body, b"", kind, shown_tag, at, now, link, more)

        return cls(exact(now, link, varying), make_shown)

    @property
    def size(self) -> int:
        """About how many bytes it takes in memory."""
        return self.exact.size

    def answer_to(self, request: Request) -> Answer:
        """The answer to a request."""
        if self.make_shown is not None and wants_page(header(request, "accept"), _FEEDS):
            return self.make_shown().answer_to(request)
        return self.exact.answer_to(request)
