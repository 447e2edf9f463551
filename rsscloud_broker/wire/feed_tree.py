"""From the bytes of a feed to a tree of elements, though they be malformed.

A feed is first read as any other XML here (``xml.parse``), which is strict and
takes no DOCTYPE.  What that refuses is read once more, leniently: decoded by
whatever encoding fits, freed of what stands before the feed's root, a DOCTYPE
among it, and of HTML that was not escaped, and given to the recovering parser
of libxml2.  Nothing is ever expanded: entities that a document declares for
itself make it unreadable, and the lenient parser sees no declarations at all.

Why libxml2's and not a parser made for feeds: docs/decisions/0009.
"""

from __future__ import annotations

import codecs
import re
from html.entities import html5
from typing import Final

from attrs import frozen
from lxml import etree

from rsscloud_broker.wire import xml
from rsscloud_broker.wire.text import legal

#: The largest feed that is looked into.
MAX_BYTES: Final = 10 * 1024 * 1024
#: What is read of a malformed one: that which is of the feed as a whole comes first.
LENIENT_CHARACTERS: Final = 1024 * 1024
#: Where its root is looked for.
_PROLOG_CHARACTERS = 64 * 1024

# Posts that are whole pages nest deeper than a call does, and have more in them.
_MAX_DEPTH = 200
_MAX_ELEMENTS = 500_000

#: Of Python's encodings those that are none of documents, and slow or odd.
_NO_DOCUMENTS = frozenset({"idna", "punycode", "raw-unicode-escape", "unicode-escape"})
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (b"<\0?\0", "utf-16-le"),
    (b"\0<\0?", "utf-16-be"),
)
_DECLARED = re.compile(rb"""<\?xml[^>]{0,200}?\sencoding\s*=\s*["']([A-Za-z][\w.:-]{0,40})""")
_CHARSET = re.compile(r"""charset\s*=\s*["']?([\w.:-]{1,40})""", flags=re.IGNORECASE)
_ENTITY = re.compile(r"<!ENTITY\s+[^%\s]")
_AMPERSAND = re.compile(
    r"&(?!#[0-9]{1,7};|#x[0-9A-Fa-f]{1,6};|(?:amp|lt|gt|quot|apos);)(\w{1,32};)?"
)
#: Where descriptions are not escaped, the markup in them is seldom closed.
_HTML = re.compile(
    r"</?(?:a|b|big|blockquote|br|center|code|div|em|font|h[1-6]|hr|i|iframe|img|li|ol|p|pre|s"
    r"|script|small|span|strong|sub|sup|table|tbody|td|th|tr|tt|u|ul)(?=[\s/>])[^<>]*>",
    flags=re.IGNORECASE,
)


class UnreadableFeed(ValueError):
    """A document is no feed, or none that can be read.  The text says why.

    :ivar reason: a clause about the document.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@frozen
class Tree:
    """A document as elements.

    :ivar complaint: why it is not well-formed; empty if it is.  If not, elements
        may not stand where they were meant to.
    """

    root: etree._Element
    complaint: str = ""


def read_tree(body: bytes, content_type: str, roots: frozenset[str]) -> Tree:
    """Read a document, leniently if need be.

    :param content_type: the HTTP header, for its charset.
    :param roots: what the root element may be called, in lower case and without
        a prefix.  This holds for malformed documents: others are returned
        whatever they are.
    :raises UnreadableFeed: it is too large, declares entities, or has no such root.
    """
    if len(body) > MAX_BYTES:
        raise UnreadableFeed(f"it is larger than {MAX_BYTES} bytes")
    found = _CHARSET.search(content_type)
    charset = found[1] if found else None
    try:
        return Tree(_strict(body, charset))
    except xml.MalformedXML as malformed:
        complaint = malformed.reason
    text = _decoded(body, charset)
    start = _root_at(text, roots)
    if _ENTITY.search(text, 0, _PROLOG_CHARACTERS if start is None else start):
        raise UnreadableFeed("it declares entities of its own, which are not read here")
    if start is None:
        raise UnreadableFeed("it is neither RSS nor Atom nor a JSON Feed")
    if "DOCTYPE" in complaint:  # which RSS 0.91 asked for: that alone is no fault
        try:
            return Tree(_strict(legal(text[start:]).encode(), "utf-8"))
        except xml.MalformedXML as malformed:
            complaint = malformed.reason
    return Tree(_recovered(text[start : start + LENIENT_CHARACTERS]), complaint)


def _strict(document: bytes, charset: str | None) -> etree._Element:
    return xml.parse(document, charset, max_depth=_MAX_DEPTH, max_elements=_MAX_ELEMENTS)


def _decoded(body: bytes, charset: str | None) -> str:
    """The text, by the first encoding that fits it: documents are wrong about theirs."""
    for mark, encoding in _MARKS:
        if body.startswith(mark):
            return body.decode(encoding, "replace")
    declared = _DECLARED.search(body, 0, 1024)
    names = (declared[1].decode("ascii") if declared else "utf-8", charset, "utf-8")
    for name in filter(None, names):
        if name.lower().replace("_", "-") in _NO_DOCUMENTS:
            continue
        try:
            return body.decode(name)
        except (LookupError, UnicodeError):
            continue
    return body.decode("windows-1252", "replace")


def _root_at(text: str, roots: frozenset[str]) -> int | None:
    """Where the root element begins, after whatever stands before it.

    Besides what may stand there that is, for one, what a script had to say
    about its own faults.
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


def _recovered(text: str) -> etree._Element:
    """What libxml2 makes of a text that is nearly XML."""
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
        root = etree.fromstring(_tidied(legal(text)).encode(), parser)
    except etree.XMLSyntaxError:
        root = None
    if root is None:
        raise UnreadableFeed("there is nothing in it that can be read")
    return root


def _tidied(text: str) -> str:
    """A text without the commonest faults, which would spoil what comes after them.

    What stands in CDATA sections is right as it is.
    """
    markup, *sections = text.split("<![CDATA[")
    tidied = [_tidied_markup(markup)]
    for section in sections:
        inside, end, markup = section.partition("]]>")
        if end:
            tidied += ("<![CDATA[", inside, end, _tidied_markup(markup))
        else:
            tidied.append(_tidied_markup(inside))
    return "".join(tidied)


def _tidied_markup(markup: str) -> str:
    return _AMPERSAND.sub(_character, _HTML.sub("", markup))


def _character(reference: re.Match[str]) -> str:
    """A character that HTML has a name for; else the ampersand itself."""
    name = reference[1]
    if name and name in html5:
        return "".join(f"&#{ord(character)};" for character in html5[name])
    return f"&amp;{name or ''}"
