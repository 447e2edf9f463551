"""Makes texts of strangers safe to show: HTML with a small set of elements, links and plain texts.

nh3 does the cleaning.  Only its list of what may stay is here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape, unescape
from typing import Final
from urllib.parse import urldefrag, urljoin

import nh3

from rsscloud_broker.wire.text import clean, legal

#: Longer HTML is cut before it is cleaned, so that what is left is whole again.
MAX_HTML: Final = 50_000
#: The most characters of cleaned HTML.
MAX_CLEANED: Final = 2 * MAX_HTML
#: Longer titles are cut, longer URLs left out.
MAX_TITLE, MAX_URL = 500, 2048

_TAGS: Final = {
    *("a", "abbr", "b", "blockquote", "br", "cite", "code", "dd", "del", "div", "dl", "dt", "em"),
    *("figcaption", "figure", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "i", "img", "ins", "kbd"),
    *("li", "ol", "p", "pre", "q", "s", "samp", "small", "span", "strong", "sub", "sup", "table"),
    *("tbody", "td", "tfoot", "th", "thead", "tr", "u", "ul", "var"),
}
_ATTRIBUTES: Final = {
    "a": {"href", "title"},
    "abbr": {"title"},
    "img": {"src", "alt", "title", "width", "height"},
    "ol": {"start"},
    "td": {"colspan", "rowspan"},
    "th": {"colspan", "rowspan"},
}
#: Elements that are left out with all that is in them.
_LEFT_OUT: Final = {"script", "style", "template", "title", "noscript", "iframe", "object", "svg"}
_WEB: Final = re.compile(r"https?://[^\s/]", re.IGNORECASE)


def web_url(url: str, base: str) -> str:
    """A URL, absolute; empty if it is not http or https, or too long."""
    try:
        absolute = urljoin(base, clean(url))
    except ValueError:  # an invalid host in brackets
        return ""
    return absolute if _WEB.match(absolute) and len(absolute) <= MAX_URL else ""


def safe_html(html: str, base: str) -> str:
    """HTML that is safe to show on a page.

    Absolute links may make it much longer than it was.  If it becomes too long, only its text is
    left.

    :param base: the URL against which relative links are resolved.
    """
    cleaned = nh3.clean(
        legal(html[:MAX_HTML]),
        tags=_TAGS,
        clean_content_tags=_LEFT_OUT,
        attributes=_ATTRIBUTES,
        attribute_filter=_filter(base),
        link_rel="nofollow noopener noreferrer",
        url_schemes={"http", "https"},
    ).strip()
    if len(cleaned) <= MAX_CLEANED:
        return cleaned
    return nh3.clean(legal(html[:MAX_HTML]), tags=set(), clean_content_tags=_LEFT_OUT).strip()


def safe_text(text: str) -> str:
    """HTML that shows a plain text."""
    return escape(legal(text[:MAX_HTML]), quote=False).strip()


def plain(html: str) -> str:
    """The text of some HTML, on one line."""
    text = nh3.clean(html[: 4 * MAX_TITLE], tags=set(), clean_content_tags=_LEFT_OUT - {"title"})
    return clean(unescape(text))[:MAX_TITLE]


def without_fragment(url: str) -> str:
    """A URL without its fragment."""
    return urldefrag(url).url


def _filter(base: str) -> Callable[[str, str, str], str | None]:
    def keep(tag: str, name: str, value: str) -> str | None:
        if name in {"href", "src"}:
            return web_url(value, base) or None
        if name in {"width", "height", "colspan", "rowspan", "start"}:
            return value if value.isascii() and value.isdigit() and len(value) < 5 else None
        return value

    return keep
