"""Entries as JSON have the names of Atom, and leave out what there is not."""

from __future__ import annotations

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.simplefeed.entries import (
    Category,
    Entry,
    EntryContent,
    EntryLink,
    Person,
    encode_json,
)
from tests.simplefeed.logs import NOON


def written(entry: Entry) -> Any:
    line = encode_json(entry, "http://a.example/3")
    assert b"\n" not in line
    return json.loads(line)


class JsonTests(SynchronousTestCase):
    def test_everything(self) -> None:
        entry = Entry(
            "Edit",
            NOON + 0.5,
            "urn:1",
            Person("jsmith"),
            (EntryLink("http://a.example/33", "self"),),
            EntryContent("text", "two\nlines"),
            (Category("a"),),
            "short",
        )
        self.assertEqual(
            written(entry),
            {
                "id": "urn:1",
                "title": "Edit",
                "updated": "2001-09-09T01:46:40.500000Z",
                "author": {"name": "jsmith"},
                "links": [{"href": "http://a.example/33", "rel": "self"}],
                "categories": [{"term": "a"}],
                "summary": "short",
                "content": {"type": "text", "text": "two\nlines"},
                "document": "http://a.example/3",
            },
        )

    def test_little(self) -> None:
        self.assertEqual(set(written(Entry("", NOON))), {"id", "updated", "document"})

    def test_contents(self) -> None:
        for content, expected in (
            (EntryContent("a/xml", "<a/>"), {"type": "a/xml", "xml": "<a/>"}),
            (EntryContent("image/png", data=b"\0"), {"type": "image/png", "base64": "AA=="}),
            (EntryContent("image/png", src="/1"), {"type": "image/png", "src": "/1"}),
        ):
            self.assertEqual(written(Entry("", NOON, content=content))["content"], expected)
