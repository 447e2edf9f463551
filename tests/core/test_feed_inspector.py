"""Tests that feeds are parsed and summarised, within limits however many change at once."""

from __future__ import annotations

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.core.feed_inspector import FeedInspector
from rsscloud_broker.errors import DocumentTooCostly, ParsingUnavailable
from rsscloud_broker.model import Content
from rsscloud_broker.wire.feed_summary import MAX_SUMMARY, facts_of, summary


def a_feed(entries: int = 1, text: str = "x", title: str = "A title") -> Content:
    items = "".join(f"<item><guid>{number}{text}</guid></item>" for number in range(entries))
    return Content(
        f"<rss version='2.0'><channel><title>{title}</title>{items}</channel></rss>".encode()
    )


class InspectorTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.recorded: list[tuple[str, Any]] = []
        self.trouble: Exception | None = None
        self.inspector = FeedInspector(self, self.parse)  # type: ignore[arg-type] # a part of it

    async def parse(self, owner: str, function: Any, content: Content) -> Any:
        self.assertEqual(owner, "feeds.example")
        if self.trouble is not None:
            raise self.trouble
        return function(content)

    async def record_feed(self, url: str, feed: dict[str, Any]) -> None:
        self.recorded.append((url, feed))

    def inspected(self, feed: Content | None = None) -> Any:
        self.inspector.inspect("http://feeds.example/blog/1", feed or a_feed())
        return self.recorded.pop()[1] if self.recorded else None

    def test_summary_is_stored(self) -> None:
        self.assertEqual(self.inspected()["title"], "A title")

    def test_links_that_are_relative_to_the_feed(self) -> None:
        links = "".join(
            f"<link rel='{name}' href='{name}'/>" for name in ("alternate", "self", "hub")
        )
        feed = f"<feed xmlns='http://www.w3.org/2005/Atom'>{links}</feed>"
        said, place = self.inspected(Content(feed.encode())), "http://feeds.example/blog/"
        self.assertEqual(
            (said["link"], said["self_link"], list(said["hubs"])),
            (f"{place}alternate", f"{place}self", [f"{place}hub"]),
        )
        said = self.inspected()
        self.assertEqual((said["link"], said["self_link"], list(said["hubs"])), ("", "", []))

    def test_why_a_document_is_not_read_is_stored(self) -> None:
        self.trouble = DocumentTooCostly("it takes too long")
        self.assertEqual(self.inspected(), {"unreadable": "it takes too long"})

    def test_documents_that_find_no_place(self) -> None:
        """What is stored stays as it is."""
        self.trouble = ParsingUnavailable("too many documents wait")
        self.assertIsNone(self.inspected())


class SummaryTests(SynchronousTestCase):
    def test_entries_are_left_out_where_they_are_too_much(self) -> None:
        said = summary(facts_of(a_feed(3)))
        self.assertEqual((said["title"], len(said["entry_ids"])), ("A title", 3))
        said = summary(facts_of(a_feed(50, "ü" * 500)))
        self.assertEqual((said["title"], said["entry_ids"]), ("A title", []))
        self.assertLess(len(json.dumps(said)), MAX_SUMMARY)

    def test_what_says_too_much_of_itself(self) -> None:
        hubs = "".join(
            f"<atom:link rel='hub' href='http://h{n}.example/{'x' * 3000}'/>" for n in range(9)
        )
        content = Content(
            "<rss version='2.0' xmlns:atom='http://www.w3.org/2005/Atom'><channel>"
            f"<title>A title</title>{hubs}</channel></rss>".encode()
        )
        self.assertEqual(
            summary(facts_of(content)),
            {"unreadable": f"it says more than {MAX_SUMMARY} bytes of itself"},
        )
