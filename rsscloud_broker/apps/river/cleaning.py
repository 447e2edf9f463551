"""Makes texts of strangers safe to show: HTML with a small set of elements, links and plain texts.

nh3 does the cleaning.  Only its list of what may stay is here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from html import escape, unescape
from typing import Final
from urllib.parse import urljoin

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
#: Elements that have no end, or whose end is seldom written.
_VOID: Final = frozenset(
    {
        *("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param"),
        *("source", "track", "wbr", "p", "li", "dt", "dd", "td", "th", "tr", "option"),
    }
)
_FORMATTING: Final = frozenset(
    {
        *("a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong"),
        *("tt", "u"),
    }
)
#: How many elements may be open at a time, and how many of those for the form of a text.
MAX_OPEN, MAX_FORMATTING = 100, 20
_TAG: Final = re.compile("<(/?)([A-Za-z][A-Za-z0-9]*)")
_MARKUP: Final = re.compile("<[^>]*>?")
_WEB: Final = re.compile(r"https?://[^\s/]", re.IGNORECASE)


def web_url(url: str, base: str) -> str:
    """A URL, absolute; empty if it is not http or https, or too long."""
    if len(url) > MAX_URL or len(base) > MAX_URL:
        return ""
    try:
        absolute = urljoin(base, clean(url))
    except ValueError:  # an invalid host in brackets
        return ""
    return absolute if _WEB.match(absolute) and len(absolute) <= MAX_URL else ""


def safe_html(html: str, base: str) -> str:
    """HTML that is safe to show on a page.

    Absolute links may make it much longer than it was.  If it becomes too long, nests too deep or
    has too many tags, only its text is left.

    :param base: the URL against which relative links are resolved.
    """
    html = legal(html[:MAX_HTML])
    if _nests_deep(html):
        return _text_of(html)
    cleaned = nh3.clean(
        html,
        tags=_TAGS,
        clean_content_tags=_LEFT_OUT,
        attributes=_ATTRIBUTES,
        attribute_filter=_attribute_filter(base),
        link_rel="nofollow noopener noreferrer",
        url_schemes={"http", "https"},
    ).strip()
    # The most tags of cleaned HTML: a page is made of them while everybody waits.
    if len(cleaned) <= MAX_CLEANED and cleaned.count("<") <= 5000:
        return cleaned
    return _text_of(html)


def _nests_deep(html: str) -> bool:
    """Whether more elements are open at a time than honest HTML has.

    Parsers of HTML take quadratic time for these: each paragraph begins all open elements for the
    form of a text anew.
    """
    is_open: Counter[str] = Counter()
    all_open = formatting = 0
    for match in _TAG.finditer(html):
        name = match[2].lower()
        if name in _VOID:
            continue
        # An end without a beginning closes nothing.
        step = 1 if not match[1] else -min(1, is_open[name])
        is_open[name] += step
        all_open += step
        if name in _FORMATTING:
            formatting += step
        if all_open > MAX_OPEN or formatting > MAX_FORMATTING:
            return True
    return False


def _text_of(html: str) -> str:
    """The text of HTML that is too much for a parser, as HTML."""
    return escape(unescape(_MARKUP.sub("", html)), quote=False).strip()


def safe_text(text: str) -> str:
    """HTML that shows a plain text."""
    return escape(legal(text[:MAX_HTML]), quote=False).strip()


def weight(html: str) -> int:
    """How much HTML counts on a page: a tag takes as long to show as some 20 characters."""
    return len(html) + 20 * html.count("<")


def plain(html: str) -> str:
    """The text of some HTML, on one line."""
    text = nh3.clean(html[: 4 * MAX_TITLE], tags=set(), clean_content_tags=_LEFT_OUT - {"title"})
    return clean(unescape(text))[:MAX_TITLE]


def _attribute_filter(base: str) -> Callable[[str, str, str], str | None]:
    """A filter for nh3: returns the value that an attribute gets, or None to leave it out."""

    def keep(tag: str, name: str, value: str) -> str | None:
        """URLs become absolute and must be of the web, sizes must be numbers; others stay."""
        if name in {"href", "src"}:
            return web_url(value, base) or None
        if name in {"width", "height", "colspan", "rowspan", "start"}:
            # At most four digits, as in ``markup``: honest pages and tables are no larger.
            return value if value.isascii() and value.isdigit() and len(value) < 5 else None
        return value

    return keep
