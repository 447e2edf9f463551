"""Writes the documents of a log as Atom (RFC 4287), linked as an archive (RFC 5005, section 4).

The same entries can be in three documents::

    recent     self, via, prev-archive                       what everybody polls
    current    self, current, prev-archive                   the same at its permanent URL
    archived   self, current, prev-archive, next-archive     never changes

A document is archived when the next one gets its first entry.  So the document that its
``next-archive`` names exists when the link is written, and the link is written once:
the URL of a document depends on its number alone.  The first document has no ``prev-archive``.

No document has ``fh:complete``: that would say that entries of other documents are no more (RFC
5005, section 2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from attrs import frozen
from lxml import etree

from rsscloud_broker.simplefeed.entries import Category, Entry, EntryContent, EntryLink, Person
from rsscloud_broker.simplefeed.log import LogDocument
from rsscloud_broker.wire.feed_document import write_xml
from rsscloud_broker.wire.times import exact_iso_time

ATOM: Final = "http://www.w3.org/2005/Atom"
HISTORY: Final = "http://purl.org/syndication/history/1.0"
MEDIA_TYPE: Final = "application/atom+xml"

_NAMESPACES: Final[Any] = {None: ATOM}  # the stubs of lxml demand a prefix
_GENERATOR: Final = "rsscloud-broker"


@frozen
class FeedUrls:
    """The URLs of the documents of a log.

    :ivar recent: the URL of the recent document.
    :ivar documents: what comes before the number of a document in its permanent URL.
    """

    recent: str
    documents: str

    def of(self, number: int) -> str:
        """The permanent URL of a document."""
        return f"{self.documents}{number}"


def render(
    document: LogDocument, urls: FeedUrls, *, recent: bool = False, links: Sequence[EntryLink] = ()
) -> bytes:
    """Write a document of a log.

    :param document: a document whose entries are in the database.
    :param recent: whether to write it as the recent document.  Then it must be the current one.
    :param links: further links of the feed, such as one with the relation ``hub``.
    """
    feed = etree.Element(_in_atom("feed"), nsmap=_NAMESPACES)
    _add_text(feed, "id", document.log.feed_id)
    _add_text(feed, "title", document.log.title)
    _add_text(feed, "updated", exact_iso_time(document.updated))
    _add_person(feed, Person(document.log.author))
    _add_text(feed, "generator", _GENERATOR)
    own = urls.of(document.number)
    relations = [("self", urls.recent if recent else own)]
    relations.append(("via", own) if recent else ("current", urls.recent))
    if document.number > 1:
        relations.append(("prev-archive", urls.of(document.number - 1)))
    if document.archived:
        relations.append(("next-archive", urls.of(document.number + 1)))
        feed.append(etree.Element(f"{{{HISTORY}}}archive", nsmap={"fh": HISTORY}))
    for link in (*(EntryLink(url, relation, MEDIA_TYPE) for relation, url in relations), *links):
        _add_link(feed, link)
    for entry in document.entries:
        feed.append(entry_element(entry))
    return write_xml(feed, pretty=False)


def entry_element(entry: Entry) -> etree._Element:
    """An entry as an element."""
    element = etree.Element(_in_atom("entry"), nsmap=_NAMESPACES)
    _add_text(element, "id", entry.id)
    _add_text(element, "title", entry.title)
    _add_text(element, "updated", exact_iso_time(entry.updated))
    if entry.published is not None:
        _add_text(element, "published", exact_iso_time(entry.published))
    if entry.author is not None:
        _add_person(element, entry.author)
    for link in entry.links:
        _add_link(element, link)
    for category in entry.categories:
        _add_category(element, category)
    if entry.summary:
        _add_text(element, "summary", entry.summary)
    elif entry.content is not None and entry.content.form in {"src", "base64"}:
        # An entry whose content is not text must have a summary (RFC 4287, section 4.1.2).
        _add_text(element, "summary", entry.title)
    if entry.content is not None:
        _add_content(element, entry.content)
    elif not any(link.rel == "alternate" for link in entry.links):
        # An entry must have a content, or a link to a page (RFC 4287, section 4.1.2).
        _add_content(element, EntryContent(text=entry.title))
    return element


def _in_atom(name: str) -> str:
    return f"{{{ATOM}}}{name}"


def _add_text(parent: etree._Element, name: str, text: str) -> etree._Element:
    element = etree.SubElement(parent, _in_atom(name))
    element.text = text
    return element


def _add_person(parent: etree._Element, person: Person) -> None:
    author = etree.SubElement(parent, _in_atom("author"))
    for name in ("name", "uri", "email"):
        if value := getattr(person, name):
            _add_text(author, name, value)


def _add_link(parent: etree._Element, link: EntryLink) -> None:
    element = etree.SubElement(parent, _in_atom("link"), rel=link.rel, href=link.href)
    for name in ("type", "title"):
        if value := getattr(link, name):
            element.set(name, value)


def _add_category(parent: etree._Element, category: Category) -> None:
    element = etree.SubElement(parent, _in_atom("category"), term=category.term)
    for name in ("scheme", "label"):
        if value := getattr(category, name):
            element.set(name, value)


def _add_content(parent: etree._Element, content: EntryContent) -> None:
    """Add a content in the form in which Atom carries it."""
    element = etree.SubElement(parent, _in_atom("content"), type=content.type)
    match content.form:
        case "src":
            element.set("src", content.src)
        case "xml":
            # There may be several elements, and text between them.
            wrapped = etree.fromstring(f"<_>{content.text}</_>")
            element.text = wrapped.text
            element.extend(wrapped)
        case "text":
            element.text = content.text
        case _:
            element.text = content.base64
