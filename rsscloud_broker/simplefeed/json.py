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

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from attrs import fields

from rsscloud_broker.simplefeed.atom import timestamp
from rsscloud_broker.simplefeed.entries import Category, Content, Entry, Link

_encode: Final = msgspec.json.Encoder().encode


def encode(entry: Entry, document: str) -> bytes:
    """Write an entry as a JSON object, on one line without its end.

    :param document: the URL of the document that has the entry.
    """
    found: dict[str, Any] = {
        "id": entry.id,
        "title": entry.title,
        "updated": timestamp(entry.updated),
        "published": None if entry.published is None else timestamp(entry.published),
        "author": _present(entry.author) if entry.author else None,
        "links": _all_present(entry.links),
        "categories": _all_present(entry.categories),
        "summary": entry.summary,
        "content": _content(entry.content) if entry.content else None,
        "document": document,
    }
    return _encode({name: value for name, value in found.items() if value})


def _present(value: Any) -> dict[str, str]:
    names = (each.name for each in fields(type(value)))
    return {name: text for name in names if (text := getattr(value, name))}


def _all_present(values: Iterable[Link | Category]) -> list[dict[str, str]]:
    return [_present(each) for each in values]


def _content(content: Content) -> dict[str, str]:
    form = content.form
    return {"type": content.type, form: content.text if form == "xml" else getattr(content, form)}
