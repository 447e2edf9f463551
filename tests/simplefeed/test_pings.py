"""Pings as entries: all that a ping says survives the way through a feed."""

from __future__ import annotations

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.model import Ping
from rsscloud_broker.simplefeed.documents import parse
from rsscloud_broker.simplefeed.entries import Category, Entry, EntryLink
from rsscloud_broker.simplefeed.pings import NotAPing, entry_of, ping_of
from tests.simplefeed.logs import NOON, URLS, Feed, in_memory

SOURCE = "http://there.example"

WHOLE = Ping(
    "A & B",
    "http://a.example/",
    NOON + 0.25,
    changes_url="http://a.example/today",
    rss_url="http://a.example/rss",
    tags=("one", "two"),
    origin="http://first.example http://second.example:8080",
)


class PingTests(SynchronousTestCase):
    def through_a_feed(self, *pings: Ping) -> list[Entry]:
        """Append pings to a log, and read its document."""
        with in_memory() as engine:
            feed = Feed(engine)
            feed.append_entries([entry_of(each) for each in pings])
            entries, _ = parse(feed.recent(), URLS.recent, {}).entries(newest_first=True)
        return entries

    def test_pings_survive(self) -> None:
        for ping in (WHOLE, Ping("A", "http://a.example/", NOON)):
            (entry,) = self.through_a_feed(ping)
            expected = evolve(ping, origin=f"{ping.origin} {SOURCE}".strip())
            self.assertEqual(ping_of(entry, SOURCE), expected)

    def test_time_of_a_late_ping_survives(self) -> None:
        late = evolve(WHOLE, received_at=NOON - 3600)
        _, entry = self.through_a_feed(WHOLE, late)
        self.assertEqual(entry.updated, WHOLE.received_at)
        self.assertEqual(ping_of(entry, SOURCE).received_at, NOON - 3600)

    def test_entry_of_another_feed_is_a_ping_of_its_page(self) -> None:
        links = (EntryLink("http://b.example/f.atom", "related"), EntryLink("http://b.example/1"))
        categories = (Category("changed", "http://b.example/ways"),)
        entry = Entry("", NOON, links=links, categories=categories)
        found = ping_of(entry, SOURCE)
        self.assertEqual((found.name, found.url), ("http://b.example/1",) * 2)
        self.assertEqual((found.rss_url, found.tags, found.received_at), ("", (), NOON))

    def test_what_is_no_ping(self) -> None:
        page = EntryLink("http://a.example/")
        for links, reason in (
            ((), "no link to a page"),
            ((EntryLink(""),), "no link to a page"),
            ((EntryLink("javascript:alert(1)"),), "http://"),
            ((page, EntryLink("ftp://a.example/", "related", title="feed")), "http://"),
            ((page, *[EntryLink(f"http://b{n}.example", "via") for n in range(20)]), "go round"),
            ((page, EntryLink("varnish", "via")), "not the URL of a broker"),
        ):
            error = self.assertRaises(NotAPing, ping_of, Entry("A", NOON, links=links), SOURCE)
            self.assertIn(reason, str(error))
