"""The values of a Simplefeed: an entry, its content, and the persons, links and categories in it.

They are frozen: an entry, once appended to a log, never changes.  Texts are cleaned when a value
is made, so that each entry can be written as XML.
"""

from __future__ import annotations

import re
from base64 import b64encode
from functools import lru_cache
from typing import Any, Final
from uuid import uuid4

import msgspec
from attrs import field, fields, frozen
from lxml import etree

from rsscloud_broker.wire import xml
from rsscloud_broker.wire.text import charset_of, clean, legal
from rsscloud_broker.wire.times import exact_iso_time

#: What a content becomes that cannot be written by the rules of its own media type.
BYTES: Final = "application/octet-stream"

#: How deep the elements of a content may nest: in a document, three more are around it.
_DEPTH: Final = xml.FEED_DEPTH - 3

_XML_TYPE: Final = re.compile(
    r"[^;]*(?:[+/]xml|/xml-dtd|/xml-external-parsed-entity)\s*(?:;.*)?", re.IGNORECASE | re.DOTALL
)


def new_id() -> str:
    """A new id for an entry or a feed: ``urn:uuid:`` and a random UUID (RFC 9562)."""
    return f"urn:uuid:{uuid4()}"


@frozen
class Person:
    """Who wrote an entry (RFC 4287, section 3.2)."""

    name: str = field(converter=clean)
    uri: str = field(default="", converter=clean)
    email: str = field(default="", converter=clean)


@frozen
class EntryLink:
    """A link of an entry or a feed (RFC 4287, section 4.2.7).

    :ivar rel: the relation, such as ``alternate`` or ``related``.
    :ivar type: the media type that is expected there; empty if unknown.
    """

    href: str = field(converter=clean)
    rel: str = field(default="alternate", converter=clean)
    type: str = field(default="", converter=clean)
    title: str = field(default="", converter=clean)


@frozen
class Category:
    """A category of an entry (RFC 4287, section 4.2.2)."""

    term: str = field(converter=clean)
    scheme: str = field(default="", converter=clean)
    label: str = field(default="", converter=clean)


@frozen
class EntryContent:
    """The content of an entry, in one of the forms of RFC 4287, section 4.1.3.3.

    Make it with ``content_of`` from bytes as they were read, or with ``text``.

    :ivar type: ``text``, ``html``, ``xhtml`` or a media type.
    :ivar text: a text, or elements as XML that can stand in any document.  Empty if the content is
        bytes or elsewhere.
    :ivar data: bytes, which Atom carries as base64.
    :ivar src: the URL of a content that is not in the entry; empty if it is in the entry.
    """

    type: str = field(default="text", converter=clean)
    text: str = field(default="", converter=legal)
    data: bytes = field(default=b"", repr=False)
    src: str = field(default="", converter=clean)

    @property
    def form(self) -> str:
        """How Atom carries the content: ``text``, ``xml``, ``base64`` or ``src``.

        Some feeds of others have plain text where their media type demands elements or base64.
        """
        if self.src:
            return "src"
        demanded = form_of(self.type)
        if demanded == "xml" and not self.text.lstrip().startswith("<"):
            return "text"
        return "text" if demanded == "base64" and self.text else demanded

    @property
    def base64(self) -> str:
        """The bytes in base64."""
        return b64encode(self.data).decode("ascii")


@lru_cache(maxsize=256)  # few types are used again and again
def form_of(kind: str) -> str:
    """How Atom carries contents of a type: ``text``, ``xml`` or ``base64``."""
    kind = kind.lower()
    if kind == "xhtml" or _XML_TYPE.fullmatch(kind):
        return "xml"
    return "text" if kind in {"text", "html"} or kind.startswith("text/") else "base64"


def content_of(body: bytes, media_type: str) -> EntryContent:
    """Make the content of an entry from bytes, such as the body that a server has sent.

    XML becomes elements, a text becomes characters, and all else stays bytes.  What cannot
    be written in that way (XML that is not well-formed or has a DOCTYPE, a text with bytes
    that its charset does not have, or with control characters) stays exactly the same bytes,
    with the media type application/octet-stream; so does XML with very many namespaces.
    ``interfaces.Parsing`` is for bodies of strangers.

    :param media_type: the value of the Content-Type header; its charset is used.
    """
    charset = charset_of(media_type)
    kind = clean(media_type) or BYTES
    bare = kind.partition(";")[0].strip()
    form = form_of(bare) if "/" in bare else "base64"
    if form == "xml":
        return _content_of_xml(body, bare, charset)
    if form == "text":
        return _content_of_text(body, bare, charset)
    return EntryContent(type=kind if "/" in bare else BYTES, data=body)


def _content_of_xml(body: bytes, kind: str, charset: str | None) -> EntryContent:
    """The content of XML: its elements; its bytes if a feed cannot contain them as elements."""
    try:
        root = xml.parse(body, charset, max_depth=_DEPTH, max_elements=xml.FEED_ELEMENTS)
    except xml.MalformedXML:
        return EntryContent(type=BYTES, data=body)
    text = standing_alone(root)
    # Each document of a feed that it is in is made with it, in quadratic time: 30,000 namespaces
    # stop all threads for 0.4 seconds.
    if text.count("xmlns") > 1000:
        return EntryContent(type=BYTES, data=body)
    return EntryContent(type=kind, text=text)


def _content_of_text(body: bytes, kind: str, charset: str | None) -> EntryContent:
    """The content of a text: its characters; its bytes if a feed would change the characters."""
    try:
        text = body.decode(xml.codec_of(charset or "utf-8") or "")
    except (LookupError, ValueError):
        return EntryContent(type=BYTES, data=body)
    if legal(text) != text or "\r" in text:  # XML parsers turn \r into \n (section 2.11)
        return EntryContent(type=BYTES, data=body)
    return EntryContent(type=kind, text=text)


def standing_alone(element: etree._Element) -> str:
    """An element as XML that means the same inside any other element.

    An element without a namespace gets ``xmlns=""``, or it would have that of the outer element.
    """
    text = etree.tostring(element, encoding="unicode", with_tail=False)
    if element.nsmap.get(None) is not None:
        return text
    name = re.match(r"<[^\s/>]+", text)
    if name is None or re.match(r"<[^>]*?\sxmlns=", text):
        return text
    return f'{name[0]} xmlns=""{text[name.end() :]}'


@frozen
class Entry:
    """An entry of a log.

    :ivar title: one line.
    :ivar updated: when it happened, in seconds since the epoch.
    :ivar id: an IRI that no other entry has.
    :ivar author: who wrote it; None for the author of the log.
    :ivar published: when it began to exist, in seconds since the epoch, if that is another time;
        None if it is not said.
    """

    title: str = field(converter=clean)
    updated: float
    id: str = field(factory=new_id)
    author: Person | None = None
    links: tuple[EntryLink, ...] = ()
    content: EntryContent | None = None
    categories: tuple[Category, ...] = ()
    summary: str = field(default="", converter=clean)
    published: float | None = None


_encode: Final = msgspec.json.Encoder().encode


def encode_json(entry: Entry, document: str) -> bytes:
    """Write an entry as a JSON object, on one line without its end.

    An object has the names of Atom::

        {"id": "urn:uuid:...", "title": "Edit", "updated": "2013-01-02T10:01:00.000000Z",
         "author": {"name": "jsmith"},
         "links": [{"href": "http://example.com/entry/33", "rel": "self"}],
         "categories": [{"term": "policies"}], "summary": "...",
         "content": {"type": "application/xml", "xml": "<title>HR policies</title>"},
         "document": "http://example.com/documents/2"}

    What an entry does not have is left out; it may also have ``published``.  A content has one of
    ``text``, ``xml``, ``base64`` and ``src``.

    :param document: the URL of the document that has the entry.
    """
    found: dict[str, Any] = {
        "id": entry.id,
        "title": entry.title,
        "updated": exact_iso_time(entry.updated),
        "published": None if entry.published is None else exact_iso_time(entry.published),
        "author": _without_empty(entry.author) if entry.author else None,
        "links": [_link(each) for each in entry.links],
        "categories": [_without_empty(each) for each in entry.categories],
        "summary": entry.summary,
        "content": _content(entry.content) if entry.content else None,
        "document": document,
    }
    return _encode({name: value for name, value in found.items() if value})


def _link(link: EntryLink) -> dict[str, str]:
    """A link as JSON has it.  It is made quickly, since nearly all entries have links."""
    found = {"href": link.href, "rel": link.rel}
    if link.type:
        found["type"] = link.type
    if link.title:
        found["title"] = link.title
    return found


def _without_empty(value: Person | Category) -> dict[str, str]:
    """A person or a category as JSON has it, without what is empty."""
    names = (each.name for each in fields(type(value)))
    return {name: text for name in names if (text := getattr(value, name))}


def _content(content: EntryContent) -> dict[str, str]:
    """A content as JSON has it: by the name of its form."""
    form = content.form
    match form:
        case "src":
            value = content.src
        case "base64":
            value = content.base64
        case _:  # "text" or "xml"
            value = content.text
    return {"type": content.type, form: value}
