"""Parses XML from strangers: hardened against attacks, and tolerant of common faults.

Every inbound document goes through :func:`parse`.  It fetches nothing and expands no entities.  It
refuses any document with a DOCTYPE, which is where entity bombs and external references are, as
soon as it meets the word, since parsing a DOCTYPE can take very long.  The result is a tree
of elements and text only: comments and processing instructions are removed, and CDATA is text.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from functools import lru_cache, partial

from lxml import etree

from rsscloud_broker.wire.text import clean

#: The deepest nesting of elements, unless the caller gives another limit.
MAX_DEPTH = 50
#: The largest number of attributes in an element: lxml takes quadratic time to list them.
MAX_ATTRIBUTES = 50
#: The largest number of elements, unless the caller gives another limit.
MAX_ELEMENTS = 10_000

#: The same for feeds: an entry may hold a whole page, which nests deeper and has more elements than
#: a call.
FEED_DEPTH = 200
FEED_ELEMENTS = 500_000

#: The prolog is parsed this many bytes at a time.
_SLICE = 4096

# Old templating systems send blank lines before the declaration, sometimes after a byte order
# mark.  The pattern does not match UTF-16, in which a NUL follows "<".
_BEGINNING = re.compile(rb"(\xef\xbb\xbf)?([ \t\r\n]*)(?=<(?!\0))")
_NO_DOCTYPE = "a DOCTYPE is not accepted here: send the document without it"
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, b"<\0?\0", b"\0<\0?")
# A declaration of UTF-16 that can be read byte by byte is wrong: .NET writes it into strings that
# are then sent as UTF-8.
_DECLARES_ENCODING = re.compile(
    rb"""<\?xml[^>]*?\sencoding\s*=\s*["'](?!utf-16)([A-Za-z][\w.:-]{0,40})""", flags=re.IGNORECASE
)


#: Encodings in which the bytes of ASCII always mean ASCII characters.
ASCII_AND_MORE = frozenset(
    {"utf-8", "utf8", "us-ascii", "ascii", "iso-8859-1", "iso-8859-15", "windows-1251"}
    | {"windows-1252", "iso8859-1"}
)


#: Python's names of the encodings that XML documents are written in.  Python knows others, some of
#: which take quadratic time (idna) or are no character sets at all (unicode_escape).
_CODECS = re.compile(
    "ascii|utf-(8|8-sig|16|16-le|16-be|32|32-le|32-be)|iso8859-[0-9]+|cp[0-9]+|koi8-[rtu]|kz1048"
    "|mac-[a-z0-9]+|ptcp154|tis-620|gb2312|gbk|gb18030|big5|big5hkscs|euc_(kr|jp|jis_2004|jisx0213)"
    "|johab|shift_(jis|jis_2004|jisx0213)|iso2022_(kr|jp(_1|_2|_2004|_3|_ext)?)|hp-roman8"
)

#: The namespace for prefixes that a document declares as empty, which XML does not allow: see
#: ``_with_namespaces``.
NO_NAMESPACE = "urn:no-namespace"
_DECLARED_AS_NONE = re.compile(rb"""(\sxmlns:[A-Za-z_][\w.-]{0,40}\s*=\s*)(?:""|'')""", re.ASCII)


class MalformedXML(Exception):
    """A document is not well-formed, or breaks a limit of :func:`parse`.

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
    """Parse a document and return its root element.

    The encoding is that of the byte order mark, or else of the document's declaration, or else
    ``charset`` if that is known, or else UTF-8.

    :param charset: the charset parameter of the HTTP Content-Type.
    :param max_depth: the deepest nesting of elements that is accepted; the root has depth 1.
    :param max_elements: the largest number of elements that is accepted.
    :raises MalformedXML: the document is not well-formed, has a DOCTYPE, or exceeds a limit on
        nesting, on elements, or on attributes in an element.
    """
    blank_lines = 0
    if beginning := _BEGINNING.match(document):
        blank_lines = beginning[2].count(b"\n")
        document = document[beginning.end() :]
    encoding = _encoding_of(document, charset, marked_utf_8=bool(beginning and beginning[1]))
    legible = _is_legible(document, encoding)
    try:
        # Most calls are legible and have no DOCTYPE: they are not parsed twice, to save time.
        if not legible or b"<!DOCTYPE" in document:
            parser = _new_parser(encoding, _Prolog())
            _read_prolog(document, parser)
        parser = _new_parser(encoding)
        try:
            root = etree.fromstring(document, parser)
        except etree.XMLSyntaxError:
            repaired = _with_namespaces(document)
            if repaired is None:
                raise
            parser = _new_parser(encoding)
            root = etree.fromstring(repaired, parser)
    except etree.XMLSyntaxError as error:
        raise MalformedXML(_first_complaint(parser, error, blank_lines)) from None
    if root.getroottree().docinfo.internalDTD is not None:
        raise MalformedXML(_NO_DOCTYPE)
    too_many = len(document) > 4 * max_elements and root.xpath(f"count(//*) > {max_elements}")
    if too_many:  # an element has at least four bytes, so short documents need no count
        raise MalformedXML(f"the document has more than {max_elements} elements")
    # Each element has a "<" and each attribute a "=".  If a document has few of them, the tree
    # need not be searched.  A search would release the interpreter's lock, and getting it back
    # takes much longer than the search.
    if not legible or document.count(b"<") > max_depth:
        _refuse_match(root, "/*" * (max_depth + 1), f"elements nest more than {max_depth} deep")
    if not legible or document.count(b"=") > MAX_ATTRIBUTES:
        _refuse_match(
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
    """The texts directly inside an element: before, between and after its children."""
    return [text for text in (element.text, *(child.tail for child in element)) if text]


def has_text(element: etree._Element) -> bool:
    """Whether an element directly contains text other than white space."""
    text = element.text
    if text and not text.isspace():
        return True
    for child in element:
        text = child.tail
        if text and not text.isspace():
            return True
    return False


def describe(element: etree._Element) -> str:
    """The line and the name of an element, with which a message can begin."""
    return f"line {element.sourceline}: {local_name(element)[:60]}"


def _with_namespaces(document: bytes) -> bytes | None:
    """A document with a namespace for each prefix that it declares as empty; None if it has none.

    PHP's SoapClient and Perl's SOAP::Lite declare a prefix as empty if they are given no
    namespace.  Namespaces in XML 1.0, section 2.2, forbids that.
    """
    declared, count = _DECLARED_AS_NONE.subn(rb'\1"%b"' % NO_NAMESPACE.encode(), document)
    return declared if count else None


def _refuse_match(root: etree._Element, path: str, reason: str) -> None:
    """Raise MalformedXML with this reason if a path (XPath) matches anything."""
    if _finder(path)(root):
        raise MalformedXML(reason)


@lru_cache(maxsize=16)
def _finder(path: str) -> etree.XPath:
    """A compiled XPath for the first match of a path; cached."""
    return etree.XPath(f"({path})[1]")


def _encoding_of(document: bytes, charset: str | None, *, marked_utf_8: bool) -> str | None:
    """The encoding by which the parser is to read a document; None if it finds that out itself.

    :param charset: the one of the Content-Type header, for a document that declares none.
    :param marked_utf_8: whether the document began with the byte order mark of UTF-8.
    """
    if marked_utf_8:
        return "utf-8"
    if document.startswith(_UTF_16):
        return None
    declared = _DECLARES_ENCODING.match(document)
    if declared is None:
        return (_python_name(charset) or charset) if charset else "utf-8"
    return _python_name(declared[1].decode("ascii"))


@lru_cache(maxsize=64)  # nearly all clients name one of a few
def _python_name(declared: str) -> str | None:
    """Python's name for an encoding that lxml does not know by its declared name, or None.

    Old tools declare "latin-1", for instance, which Python knows but which is not registered.
    """
    try:
        etree.XMLParser(encoding=declared)
    except (LookupError, ValueError):
        return codec_of(declared)  # if it is None, the parser will say that it is unknown
    return None


def codec_of(encoding: str) -> str | None:
    """Python's name of an encoding, if XML documents are written in it; else None.

    :param encoding: as a document or a Content-Type header names it.
    """
    try:
        name = codecs.lookup(encoding).name
    except (LookupError, ValueError):
        return None
    return name if _CODECS.fullmatch(name) else None


class _RootReached(Exception):
    """The parser has read the whole prolog."""


class _Prolog:
    """The target of a parser: it stops the parser at the root element, or at a DOCTYPE."""

    def doctype(self, name: str, public: str | None, system: str | None) -> None:
        raise MalformedXML(_NO_DOCTYPE)

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        raise _RootReached

    def close(self) -> None:
        pass


def _is_legible(document: bytes, encoding: str | None) -> bool:
    """Whether markup can be found in the bytes of a document without a parser.

    That is so if the encoding is one of ``ASCII_AND_MORE``.
    """
    if encoding is None:
        declared = _DECLARES_ENCODING.match(document)
        encoding = declared[1].decode("ascii") if declared else ""
    return encoding.lower() in ASCII_AND_MORE


def _read_prolog(document: bytes, parser: etree.XMLParser) -> None:
    """Parse a document up to its root element, to find a DOCTYPE.

    This is left to the parser, as it knows encodings, comments and all else that may come before
    a DOCTYPE.

    :param parser: a parser whose target is a :class:`_Prolog`.
    :raises MalformedXML: there is a DOCTYPE.
    """
    try:
        for start in range(0, len(document) or 1, _SLICE):
            parser.feed(document[start : start + _SLICE])
        parser.close()
    except _RootReached:
        pass


def _new_parser(charset: str | None, target: _Prolog | None = None) -> etree.XMLParser:
    """A parser for one document, as threads must not share parsers.

    It fetches nothing and expands nothing.  An unknown charset is taken for UTF-8.
    """
    make = partial(
        etree.XMLParser,
        target=target,  # type: ignore[arg-type] # the stubs require methods that lxml does not
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        dtd_validation=False,
        attribute_defaults=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
    )
    try:
        return make(encoding=charset)
    except (LookupError, ValueError):
        return make(encoding="utf-8")


def _first_complaint(parser: etree.XMLParser, error: etree.XMLSyntaxError, blank_lines: int) -> str:
    """The first error of a parser, with its line: later errors often follow from it."""
    for entry in (*parser.feed_error_log, *parser.error_log):
        # The text after the comma is libxml2's advice to programmers.
        message = clean(entry.message).partition(", ")[0]
        return f"line {entry.line + blank_lines}: {message[:200]}"
    return clean(str(error))[:200]
