"""FetchResult XML that strangers sent: hardened, and patient with common sins.

Every inbound document goes through :func:`parse`.  It never fetches anything,
expands no entities, and refuses any document that brings a DOCTYPE, which is
where entity bombs and external references live: as soon as that word is read,
for reading what stands in it can take very long.  What is left is a plain tree
of elements and text: comments and processing instructions are gone, CDATA is
text.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from functools import lru_cache

from lxml import etree

from rsscloud_broker.wire.text import clean

#: How deep elements may nest unless the caller says otherwise.
MAX_DEPTH = 50
#: lxml takes quadratic time to list the attributes of an element.
MAX_ATTRIBUTES = 50
#: How many elements there may be unless the caller says otherwise.
MAX_ELEMENTS = 10_000

#: Bytes of a prolog that are looked at together.
_SLICE = 4096

# Old templating systems send blank lines before the declaration, sometimes
# after a byte order mark.  UTF-16, where a NUL follows "<", is left alone.
_BEGINNING = re.compile(rb"(\xef\xbb\xbf)?([ \t\r\n]*)(?=<(?!\0))")
_NO_DOCTYPE = "a DOCTYPE is not accepted here: send the document without it"
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, b"<\0?\0", b"\0<\0?")
# A declaration of UTF-16 that can be read byte by byte is wrong about itself:
# strings made by .NET say so after they were sent as UTF-8.
_DECLARES_ENCODING = re.compile(
    rb"""<\?xml[^>]*?\sencoding\s*=\s*["'](?!utf-16)([A-Za-z][\w.:-]{0,40})""", flags=re.IGNORECASE
)


#: Encodings in which ASCII stands for itself, and for nothing else.
ASCII_AND_MORE = frozenset(
    {"utf-8", "utf8", "us-ascii", "ascii", "iso-8859-1", "iso-8859-15", "windows-1251"}
    | {"windows-1252", "iso8859-1"}
)


#: The namespace of prefixes that are declared as none, which XML does not allow: see
#: ``_declared``.
NO_NAMESPACE = "urn:no-namespace"
_DECLARED_AS_NONE = re.compile(rb"""(\sxmlns:[A-Za-z_][\w.-]{0,40}\s*=\s*)(?:""|'')""", re.ASCII)


class MalformedXML(Exception):
    """A document is not well-formed, or not of a kind that is accepted here.

    :ivar reason: the line and what is wrong there, for the sender.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def parse(
    document: bytes,
    charset: str | None = None,
    *,
    max_depth: int = MAX_DEPTH,
    max_elements: int = MAX_ELEMENTS,
) -> etree._Element:
    """Read a document; its root element comes back.

    A byte order mark tells the encoding; else the document's own declaration;
    else ``charset``, if it is one that is known; else it is UTF-8.

    :param charset: the charset parameter of the HTTP Content-Type.
    :param max_depth: how deep elements may nest, the root being 1.
    :param max_elements: how many elements there may be.
    :raises MalformedXML: not well-formed, has a DOCTYPE, or goes beyond
        the limits of nesting, of elements and of attributes in an element.
    """
    blank_lines = 0
    if beginning := _BEGINNING.match(document):
        blank_lines = beginning[2].count(b"\n")
        document = document[beginning.end() :]
    encoding = _encoding(document, charset, bool(beginning and beginning[1]))
    legible = _is_legible(document, encoding)
    try:
        # Calls have none, and are legible; looking twice takes its time.
        if not legible or b"<!DOCTYPE" in document:
            parser = _new_parser(encoding, _Prolog())
            _read_prolog(document, parser)
        parser = _new_parser(encoding)
        try:
            root = etree.fromstring(document, parser)
        except etree.XMLSyntaxError:
            declared = _declared(document)
            if declared is None:
                raise
            parser = _new_parser(encoding)
            root = etree.fromstring(declared, parser)
    except etree.XMLSyntaxError as error:
        raise MalformedXML(_first_complaint(parser, error, blank_lines)) from None
    if root.getroottree().docinfo.internalDTD is not None:
        raise MalformedXML(_NO_DOCTYPE)
    too_many = len(document) > 4 * max_elements and root.xpath(f"count(//*) > {max_elements}")
    if too_many:  # an element takes four bytes, so most documents need not be counted
        raise MalformedXML(f"the document has more than {max_elements} elements")
    # Each element has a "<" and each attribute a "=".  Where those are few the tree need
    # not be searched: libxml2 gives way to other threads while it does that, and they
    # take much longer than a search.
    if not legible or document.count(b"<") > max_depth:
        _refuse_any(root, "/*" * (max_depth + 1), f"elements nest more than {max_depth} deep")
    if not legible or document.count(b"=") > MAX_ATTRIBUTES:
        _refuse_any(
            root,
            f"//*[@*[{MAX_ATTRIBUTES + 1}]]",
            f"an element has more than {MAX_ATTRIBUTES} attributes",
        )
    return root


def local_name(element: etree._Element) -> str:
    """The name of an element without its namespace."""
    return str(element.tag).rpartition("}")[2]


def namespace(element: etree._Element) -> str:
    """The namespace of an element, or the empty string."""
    found = str(element.tag).rpartition("}")[0][1:]
    return "" if found == NO_NAMESPACE else found


def texts(element: etree._Element) -> list[str]:
    """What stands directly inside an element: before, between and after its children."""
    return [text for text in (element.text, *(child.tail for child in element)) if text]


def has_text(element: etree._Element) -> bool:
    """Whether there is more than white space directly inside an element."""
    text = element.text
    if text and not text.isspace():
        return True
    for child in element:
        text = child.tail
        if text and not text.isspace():
            return True
    return False


def describe(element: etree._Element) -> str:
    """Where an element is and what it is called, to begin a message with."""
    return f"line {element.sourceline}: {local_name(element)[:60]}"


def _declared(document: bytes) -> bytes | None:
    """A document whose prefixes are declared as something; None if all are already.

    PHP's SoapClient and Perl's SOAP::Lite declare one as nothing when they are told of no
    namespace.  Namespaces in XML 1.0, section 2.2, forbids that.
    """
    declared, count = _DECLARED_AS_NONE.subn(rb'\1"%b"' % NO_NAMESPACE.encode(), document)
    return declared if count else None


def _refuse_any(root: etree._Element, path: str, reason: str) -> None:
    if _finder(path)(root):
        raise MalformedXML(reason)


@lru_cache(maxsize=16)
def _finder(path: str) -> etree.XPath:
    """An expression for the first of what a path leads to, made once."""
    return etree.XPath(f"({path})[1]")


def _encoding(document: bytes, charset: str | None, marked_utf_8: bool) -> str | None:
    """The encoding to impose on a document; None to let it tell its own."""
    if marked_utf_8:
        return "utf-8"
    if document.startswith(_UTF_16):
        return None
    declared = _DECLARES_ENCODING.match(document)
    return _python_name(declared[1].decode("ascii")) if declared else charset or "utf-8"


def _python_name(declared: str) -> str | None:
    """Another name for an encoding that lxml does not know by the declared one.

    Old tools write "latin-1", which is a name in their language and in ours but
    not one of those that are registered.
    """
    try:
        etree.XMLParser(encoding=declared)
    except LookupError:
        try:
            return codecs.lookup(declared).name
        except LookupError:
            pass  # nobody knows it: the parser will say so
    return None


class _RootReached(Exception):
    """The prolog is over."""


class _Prolog:
    """Told of what a parser reads; stops it at the root, or at a DOCTYPE."""

    def doctype(self, name: str, public: str | None, system: str | None) -> None:
        raise MalformedXML(_NO_DOCTYPE)

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        raise _RootReached

    def close(self) -> None:
        pass


def _is_legible(document: bytes, encoding: str | None) -> bool:
    """Whether markup can be found in the bytes of a document, without a parser.

    It can where they can only be ASCII, or more than ASCII.
    """
    if encoding is None:
        declared = _DECLARES_ENCODING.match(document)
        encoding = declared[1].decode("ascii") if declared else ""
    return encoding.lower() in ASCII_AND_MORE


def _read_prolog(document: bytes, parser: etree.XMLParser) -> None:
    """Have a document read up to its root, and no further.

    The parser itself looks for the DOCTYPE: it knows about encodings, comments
    and the rest of what may stand before it.

    :param parser: one that tells a :class:`_Prolog`.
    """
    try:
        for start in range(0, len(document) or 1, _SLICE):
            parser.feed(document[start : start + _SLICE])
        parser.close()
    except _RootReached:
        pass


def _new_parser(charset: str | None, target: _Prolog | None = None) -> etree.XMLParser:
    """A parser for one document; parsers are not shared between threads."""
    try:
        return _hardened(charset, target)
    except (LookupError, ValueError):
        return _hardened("utf-8", target)  # a charset that nobody knows


def _hardened(charset: str | None, target: _Prolog | None) -> etree.XMLParser:
    return etree.XMLParser(
        encoding=charset,
        target=target,  # type: ignore[arg-type] # fewer methods do than its stubs ask for
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        dtd_validation=False,
        attribute_defaults=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
    )


def _first_complaint(parser: etree.XMLParser, error: etree.XMLSyntaxError, blank_lines: int) -> str:
    """The first error is the cause; those after it often follow from it."""
    for entry in (*parser.feed_error_log, *parser.error_log):
        # After the comma libxml2 gives advice to programmers.
        message = clean(entry.message).partition(", ")[0]
        return f"line {entry.line + blank_lines}: {message[:200]}"
    return clean(str(error))[:200]
