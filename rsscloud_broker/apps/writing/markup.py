"""Turns the HTML of blog editors into the plain text of messages, and text into HTML for them.

Messages are plain text.  Editors that speak the MetaWeblog API send HTML, and show as HTML what
they get.  From HTML the tool keeps the text with its line breaks, the links, and the addresses of
pictures, sounds and films; it drops scripts, styles, forms and all formatting.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from mimetypes import guess_type
from typing import Any, Final

from attrs import frozen
from lxml import etree

from rsscloud_broker.errors import DocumentFault, Refused
from rsscloud_broker.wire.text import legal

#: How many bytes of HTML are read.  No message is that long.
MAX_HTML: Final = 256 * 1024

#: HTML of at most this many characters is read in a few milliseconds, whatever is in it.
SMALL: Final = 8 * 1024

#: How many links and files are kept.
MAX_LINKS: Final = 100

#: Elements that begin a new line, and those that stand apart as paragraphs do.
_BREAKS: Final = frozenset({"br", "li", "tr", "dt", "dd"})
_BLOCKS: Final = frozenset(
    {
        *("address", "article", "aside", "blockquote", "details", "div", "dl", "figure", "footer"),
        *("form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "main", "nav", "ol", "p"),
        *("pre", "section", "table", "ul"),
    }
)

#: Elements whose content is dropped.  In ``category`` some editors of the Blogger API send numbers.
_DROPPED: Final = frozenset(
    {
        *("applet", "button", "category", "embed", "iframe", "math", "noscript", "object"),
        *("script", "select", "style", "svg", "template", "textarea"),
    }
)
_MEDIA: Final = frozenset({"img", "audio", "video", "source"})

#: A web address in a text, without the punctuation after it.
_URL: Final = re.compile(r"https?://[^\s<>\"]*[^\s<>\".,;:!?)\]']", re.IGNORECASE)
_WEB: Final = re.compile(r"https?://[^\s<>\"]+", re.IGNORECASE)
_TAG: Final = re.compile(r"<[a-zA-Z!/]")
_LINE_TAG: Final = re.compile(rf"<({'|'.join(sorted(_BLOCKS | _BREAKS))})\b", re.IGNORECASE)
_LINE_BREAKS: Final = re.compile(r"\r\n|\r|\n")
_SPACES: Final = re.compile(r"[ \t\r\n\f]+")
_SPACES_IN_LINE: Final = re.compile(r"[ \t\r\f]+")
_AROUND_BREAK: Final = re.compile(r" *\n *")
_MANY_BREAKS: Final = re.compile(r"\n{3,}")


class TooMuchMarkup(Refused, DocumentFault):
    """The HTML of a message is longer than any message can be."""


@frozen
class MarkupLink:
    """A link or a file in HTML.

    :ivar url: its http or https URL.
    :ivar text: the text of the link, or the text that stands for a picture; may be empty.
    """

    url: str
    text: str


@frozen
class MarkupContent:
    """What a message keeps of some HTML.

    :ivar text: the plain text.
    :ivar title: the text of a ``title`` element, with which editors of the Blogger API send the
        title of a message; empty if there is none.
    :ivar links: the links whose text is not their URL, each URL once, in order.
    :ivar media: the pictures, sounds and films, each URL once, in order.
    """

    text: str
    title: str = ""
    links: tuple[MarkupLink, ...] = ()
    media: tuple[MarkupLink, ...] = ()


def read_html(html: str) -> MarkupContent:
    """Read the HTML of a message.  Text without any tag may have entities and line breaks.

    If no tag makes a line break, those in the text count, since some editors leave paragraphs to
    the server.

    :raises TooMuchMarkup: the HTML is longer than `MAX_HTML`.
    """
    if len(html) > MAX_HTML:
        raise TooMuchMarkup(f"the HTML of a message has at most {MAX_HTML} characters")
    html = legal(html).strip()
    if not html:
        return MarkupContent("")
    if not _LINE_TAG.search(html):
        html = _LINE_BREAKS.sub("<br>", html)
    reader: Any = _Reader()
    etree.fromstring(
        html.encode("utf-8"), etree.HTMLParser(target=reader, encoding="utf-8", no_network=True)
    )
    content: MarkupContent = reader.content()
    return content


class _Reader:
    """Takes the elements of HTML from a parser, and collects what a message keeps of them.

    The parser of lxml calls ``start``, ``end``, ``data`` and ``close``.  No tree is
    built, so HTML may be nested to any depth.
    """

    def __init__(self) -> None:
        self._text: list[str] = []
        self._title: list[str] = []
        self._links: dict[str, MarkupLink] = {}
        self._media: dict[str, MarkupLink] = {}
        self._dropping = 0  # how many elements are open whose content is dropped
        self._in_title = False
        self._href = ""  # of the link that is open; empty if none is
        self._link_text: list[str] = []  # the pieces of its text
        self._picture_text = ""  # what stands for a picture in it

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Begin an element: keep a line break, a file or the URL of a link, or drop its content."""
        if tag in _DROPPED:
            self._dropping += 1
        elif tag == "title":
            self._in_title = True
        elif tag == "a":
            self._end_link()
            self._href = _web_url_or_empty(attributes.get("href", ""))
        elif tag in _MEDIA and not self._dropping:
            self._add_medium(attributes)
        if tag in _BLOCKS:
            self._text.append("\n\n")
        elif tag in _BREAKS:
            self._text.append("\n• " if tag == "li" else "\n")

    def end(self, tag: str) -> None:
        if tag in _DROPPED:
            self._dropping = max(0, self._dropping - 1)
        elif tag == "title":
            self._in_title = False
        elif tag == "a":
            self._end_link()
        if tag in _BLOCKS:
            self._text.append("\n\n")

    def data(self, data: str) -> None:
        """Keep a text, in the title or in the message; that of a link for the link, too."""
        if self._dropping:
            return
        data = _SPACES.sub(" ", data)
        if self._in_title:
            self._title.append(data)
            return
        self._text.append(data)
        if self._href:
            self._link_text.append(data)

    def close(self) -> None:
        self._end_link()

    def content(self) -> MarkupContent:
        """What was found, when the parser has finished."""
        return MarkupContent(
            _tidy("".join(self._text)),
            _tidy("".join(self._title)),
            tuple(self._links.values()),
            tuple(self._media.values()),
        )

    def _add_medium(self, attributes: Mapping[str, str]) -> None:
        """Keep the URL of a picture, a sound or a film, and the text that stands for it."""
        url, alt = _web_url_or_empty(attributes.get("src", "")), _tidy(attributes.get("alt", ""))
        if url and len(self._media) < MAX_LINKS:
            self._media.setdefault(url, MarkupLink(url, alt))
            self._picture_text = self._picture_text or alt

    def _end_link(self) -> None:
        """Keep the link that is open, unless it says no more than its text; close it."""
        href, text = self._href, _tidy("".join(self._link_text))
        # A picture often links to a larger version of itself.
        is_picture = not text and medium_of(href) != ""
        if href and text != href and not is_picture and len(self._links) < MAX_LINKS:
            self._links.setdefault(href, MarkupLink(href, text or self._picture_text))
        self._href, self._picture_text = "", ""
        self._link_text.clear()


def _web_url_or_empty(url: str) -> str:
    """A URL if it is a whole http or https URL; else empty."""
    url = url.strip()
    return url if _WEB.fullmatch(url) else ""


def _tidy(text: str) -> str:
    """A text whose white space is as HTML shows it, without any at its ends."""
    text = _AROUND_BREAK.sub("\n", _SPACES_IN_LINE.sub(" ", text))
    return _MANY_BREAKS.sub("\n\n", legal(text)).strip()


def medium_of(url: str, media_type: str = "") -> str:
    """Whether there is an ``image``, an ``audio`` or a ``video`` at a URL; empty if neither.

    :param media_type: the media type of what is there; if it is not known, the end of the URL
        decides.
    """
    file = url.partition("#")[0].partition("?")[0].rpartition("/")[2]
    known = media_type or (guess_type(file)[0] if _web_url_or_empty(url) else None) or ""
    kind = known.partition("/")[0].lower()
    return kind if kind in {"image", "audio", "video"} else ""


def to_html(text: str) -> str:
    """A plain text as HTML: URLs become links, line breaks ``br``, and empty lines paragraphs.

    ``read_html`` makes the same text of it.
    """
    paragraphs = [_paragraph_html(paragraph) for paragraph in text.split("\n\n")]
    return (
        paragraphs[0] if len(paragraphs) == 1 else "".join(f"<p>{each}</p>" for each in paragraphs)
    )


def _paragraph_html(paragraph: str) -> str:
    """A paragraph of plain text as HTML: URLs become links, line breaks ``br``."""
    parts: list[str] = []
    end = 0
    for found in _URL.finditer(paragraph):
        url = escape(found[0])
        parts += [escape(paragraph[end : found.start()]), f'<a href="{url}">{url}</a>']
        end = found.end()
    return "".join([*parts, escape(paragraph[end:])]).replace("\n", "<br />")
