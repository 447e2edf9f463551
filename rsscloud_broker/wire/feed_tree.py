"""Parses an RSS or Atom feed into a tree of elements, even if the feed is malformed.

It first parses a feed strictly and without a DOCTYPE, like all other XML (``xml.parse``).  If that
fails, it parses once more, leniently: it decodes the feed by the first encoding that fits, removes
everything before the root element, such as a DOCTYPE, and removes HTML that was not escaped; then
it uses libxml2's recovering parser.  No entity is ever expanded: a feed that declares entities is
unreadable, and the lenient parser gets no declarations.

docs/decisions/0009 says why it uses libxml2 and not a parser made for feeds.
"""

from __future__ import annotations

import codecs
import re
import sys
from html.entities import html5
from typing import Final

from attrs import frozen
from lxml import etree

from rsscloud_broker.errors import DocumentFault
from rsscloud_broker.wire import xml
from rsscloud_broker.wire.text import legal

#: The largest feed that is parsed, in bytes.
MAX_BYTES: Final = 10 * 1024 * 1024
#: The root element of a malformed feed must begin within this many characters.
_PROLOG_CHARACTERS = 64 * 1024

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (b"<\0?\0", "utf-16-le"),
    (b"\0<\0?", "utf-16-be"),
)
#: As in ``xml``: a declaration of UTF-16 that can be read byte by byte is wrong.
_DECLARED = re.compile(
    rb"""<\?xml[^>]{0,200}?\sencoding\s*=\s*["'](?!utf-16)([A-Za-z][\w.:-]{0,40})""",
    flags=re.IGNORECASE,
)
_CHARSET = re.compile(r"""charset\s*=\s*["']?([\w.:-]{1,40})""", flags=re.IGNORECASE)
_ENTITY = re.compile(r"<!ENTITY\s+[^%\s]")
_AMPERSAND = re.compile(
    r"&(?!#[0-9]{1,7};|#x[0-9A-Fa-f]{1,6};|(?:amp|lt|gt|quot|apos);)(\w{1,32};)?"
)
_REFERENCE = re.compile(r"&#(?:([0-9]{1,7})|x([0-9A-Fa-f]{1,6}));")
#: HTML in descriptions that are not escaped; its elements are seldom closed.
_HTML = re.compile(
    r"</?(?:a|b|big|blockquote|br|center|code|div|em|font|h[1-6]|hr|i|iframe|img|li|ol|p|pre|s"
    r"|script|small|span|strong|sub|sup|table|tbody|td|th|tr|tt|u|ul)(?=[\s/>])[^<>]*>",
    flags=re.IGNORECASE,
)


class UnreadableFeed(DocumentFault):
    """A document is not a feed, or cannot be parsed."""


@frozen
class Tree:
    """A parsed document.

    :ivar complaint: why the document is not well-formed; empty if it is.  In a document that is
        not, elements may be in the wrong place.
    """

    root: etree._Element
    complaint: str = ""


def read_tree(body: bytes, content_type: str, roots: frozenset[str]) -> Tree:
    """Parse a document, leniently if need be.

    :param content_type: the Content-Type header, for its charset.
    :param roots: the names that the root element of a malformed document may have, in lower case
        and without a prefix; a well-formed document may have any root.
    :raises UnreadableFeed: the document is too large, declares entities, or has no such root.
    """
    if len(body) > MAX_BYTES:
        raise UnreadableFeed(f"it is larger than {MAX_BYTES} bytes")
    if not body.strip():
        raise UnreadableFeed("it is empty")
    found = _CHARSET.search(content_type)
    charset = found[1] if found else None
    try:
        return Tree(_parse_strictly(body, charset))
    except xml.MalformedXML as malformed:
        complaint = malformed.reason
    text = _decode(body, charset)
    start = _find_root(text, roots)
    if _ENTITY.search(text, 0, _PROLOG_CHARACTERS if start is None else start):
        raise UnreadableFeed("it declares entities of its own, which are not read here")
    if start is None:
        raise UnreadableFeed("it is neither RSS nor Atom")
    if "DOCTYPE" in complaint:  # RSS 0.91 required one, so that alone is no fault
        try:
            return Tree(_parse_strictly(legal(text[start:]).encode(), "utf-8"))
        except xml.MalformedXML as malformed:
            complaint = malformed.reason
    # Of a malformed feed only the beginning is parsed: the facts about the feed come first.
    return Tree(_parse_leniently(text[start : start + (1024 * 1024)]), complaint)


def _parse_strictly(document: bytes, charset: str | None) -> etree._Element:
    """Parse a document as all other XML; MalformedXML if it is not well-formed."""
    return xml.parse(document, charset, max_depth=xml.FEED_DEPTH, max_elements=xml.FEED_ELEMENTS)


def _decode(body: bytes, charset: str | None) -> str:
    """A body as text, by the first encoding that fits: many documents declare a wrong one."""
    for mark, encoding in _MARKS:
        if body.startswith(mark):
            return body.decode(encoding, "replace")
    declared = _DECLARED.search(body, 0, 1024)
    names = (declared[1].decode("ascii") if declared else "utf-8", charset, "utf-8")
    for codec in filter(None, map(xml.codec_of, filter(None, names))):
        try:
            return body.decode(codec)
        except UnicodeError:
            continue
    return body.decode("windows-1252", "replace")


def _find_root(text: str, roots: frozenset[str]) -> int | None:
    """The position of the root element in a text; None if there is none.

    Anything may come before it, for instance error messages of the script that made the feed.
    """
    root = re.compile(
        rf"<(?:[\w.-]{{1,40}}:)?(?:{'|'.join(sorted(roots))})(?=[\s/>])", flags=re.IGNORECASE
    )
    position = text.find("<")
    while 0 <= position < _PROLOG_CHARACTERS:
        if root.match(text, position):
            return position
        if text.startswith("<!--", position):
            position = text.find("-->", position)
        position = text.find("<", position + 1) if position >= 0 else -1
    return None


def _parse_leniently(text: str) -> etree._Element:
    """The root element that libxml2's recovering parser finds in a malformed text."""
    parser = etree.XMLParser(
        recover=True,
        encoding="utf-8",
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
    )
    try:
        root = etree.fromstring(_tidy(legal(text)).encode(), parser)
    except etree.XMLSyntaxError:
        root = None
    if root is None:
        raise UnreadableFeed("there is nothing in it that can be read")
    return root


def _tidy(text: str) -> str:
    """A text without the most common faults, which would spoil the text that follows them.

    CDATA sections stay as they are.
    """
    markup, *sections = text.split("<![CDATA[")
    tidied = [_tidy_markup(markup)]
    for section in sections:
        inside, end, markup = section.partition("]]>")
        if end:
            tidied += ("<![CDATA[", inside, end, _tidy_markup(markup))
        else:
            tidied.append(_tidy_markup(inside))
    return "".join(tidied)


def _tidy_markup(markup: str) -> str:
    """A text outside of CDATA, without the most common faults."""
    return _AMPERSAND.sub(_replace_entity, _REFERENCE.sub(_drop_illegal, _HTML.sub("", markup)))


def _drop_illegal(reference: re.Match[str]) -> str:
    """What replaces a reference to a character by its number: nothing if XML has no such one.

    Of a surrogate libxml2 would make bytes that are not UTF-8.
    """
    number = int(reference[1]) if reference[1] else int(reference[2], 16)
    return reference[0] if number <= sys.maxunicode and legal(chr(number)) else ""


def _replace_entity(reference: re.Match[str]) -> str:
    """What replaces an ampersand: the characters that an HTML entity names, or else ``&amp;``."""
    name = reference[1]
    if name and name in html5:
        return "".join(f"&#{ord(character)};" for character in html5[name])
    return f"&amp;{name or ''}"
