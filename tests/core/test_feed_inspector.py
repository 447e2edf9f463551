"""Tests that feeds are parsed and summarised, within limits however many change at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.core.feed_inspector import FeedInspector
from rsscloud_broker.feed_parsing import MAX_BYTES, MAX_WAITING
from rsscloud_broker.model import Content, FetchResult
from rsscloud_broker.wire.feed_summary import MAX_SUMMARY, facts_of, summary


def a_feed(entries: int = 1, text: str = "x", title: str = "A title") -> Content:
    items = "".join(f"<item><guid>{number}{text}</guid></item>" for number in range(entries))
    return Content(
        f"<rss version='2.0'><channel><title>{title}</title>{items}</channel></rss>".encode()
    )


def found(content: Content) -> FetchResult:
    return FetchResult("http://feeds.example/", content.digest, len(content.body), 0.0, content)


class WaitingTests(SynchronousTestCase):
    """One feed is being parsed, and the others wait."""

    def setUp(self) -> None:
        self.begun: list[tuple[Content, Deferred[Any]]] = []
        self.recorded: list[str] = []
        self.reading = FeedInspector(self, self.in_thread)  # type: ignore[arg-type] # a part of it

    def in_thread(self, function: Callable[[Content], Any], content: Content) -> Deferred[Any]:
        self.begun.append((content, Deferred()))
        return self.begun[-1][1]

    async def record_feed(self, url: str, feed: dict[str, Any]) -> None:
        self.recorded.append(url)

    def finish(self) -> None:
        for _, done in self.begun:  # it grows
            done.callback({})

    def take(self, count: int, content: Content) -> None:
        for number in range(count):
            self.reading.inspect(f"http://feeds.example/{number}", found(content), changed=True)

    def test_those_that_wait_longest_are_left_out(self) -> None:
        self.take(MAX_WAITING + 10, Content(b"x"))
        self.finish()
        numbers = [int(url.rpartition("/")[2]) for url in self.recorded]
        self.assertEqual(numbers, [0, *range(10, MAX_WAITING + 10)])

    def test_bytes_that_wait_are_bounded(self) -> None:
        content = Content(b"x" * (MAX_BYTES // 4))
        self.take(10, content)
        self.assertEqual(self.reading._parser._size, MAX_BYTES)
        self.finish()
        self.assertEqual(len(self.recorded), 1 + 4)
        self.assertEqual(self.reading._parser._size, 0)

    def test_what_is_replaced_is_not_counted(self) -> None:
        self.take(2, Content(b"x"))
        for size in (MAX_BYTES, MAX_BYTES - 1, MAX_BYTES):
            self.reading.inspect(
                "http://feeds.example/1", found(Content(b"x" * size)), changed=True
            )
        self.finish()
        self.assertEqual(len(self.recorded), 2)

    def test_content_that_is_too_large_keeps_out_no_later_one(self) -> None:
        self.take(1, Content(b"x" * (MAX_BYTES + 1)))
        self.take(1, Content(b"x"))
        self.finish()
        self.assertEqual(len(self.recorded), 1)


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
