"""Writes entries as JSON, for programs that process them.

An object has the names of Atom::

    {"id": "urn:uuid:...", "title": "Edit", "updated": "2013-01-02T10:01:00.000000Z",
     "author": {"name": "jsmith"},
     "links": [{"href": "http://example.com/entry/33", "rel": "self"}],
     "categories": [{"term": "policies"}], "summary": "...",
     "content": {"type": "application/xml", "xml": "<title>HR policies</title>"},
     "document": "http://example.com/documents/2"}

What an entry does not have is left out; it may also have ``published``.  A content has one of
``text``, ``xml``, ``base64`` and ``src``.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from attrs import fields

from rsscloud_broker.simplefeed.entries import Category, Entry, EntryContent, EntryLink, Person
from rsscloud_broker.wire.times import exact_iso_time

_encode: Final = msgspec.json.Encoder().encode


def encode(entry: Entry, document: str) -> bytes:
    """Write an entry as a JSON object, on one line without its end.

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
    # As for other values, but quicker: nearly all entries have links, with a URL and a relation.
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
    match content.form:
        case "text":
            return {"type": content.type, "text": content.text}
        case "xml":
            return {"type": content.type, "xml": content.text}
        case "src":
            return {"type": content.type, "src": content.src}
    return {"type": content.type, "base64": content.base64}
