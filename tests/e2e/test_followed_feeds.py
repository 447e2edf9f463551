"""A broker in a process of its own that follows a feed of pings, also when its hub pushes."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

from rsscloud_broker.model import Ping
from rsscloud_broker.simplefeed import log
from rsscloud_broker.simplefeed.atom import FeedUrls, render
from rsscloud_broker.simplefeed.entries import EntryLink
from rsscloud_broker.simplefeed.pings import entry_of
from tests.e2e.fixture import Broker, EndToEndTestCase, post_form, until
from tests.e2e.rude import Page, RudeOrigin
from tests.e2e.test_relay import names_of, pings_of
from tests.simplefeed.logs import in_memory


class PingFeed:
    """A feed of pings, of ten entries in a document, that a server of files serves.

    :param hub: the URL of its hub; empty for none.
    """

    def __init__(self, test: EndToEndTestCase, hub: str = "") -> None:
        self._origin = test.served(RudeOrigin())
        self._engine = test.enterContext(in_memory())
        self._links = [EntryLink(hub, "hub")] if hub else []
        self._urls = FeedUrls(self._origin.url("/recent"), self._origin.url("/documents/"))
        self.url = self._urls.recent
        with self._engine.begin() as conn:
            log.open_log(conn, log.Description("pings", "Pings", per_document=10), time.time())
        self.append()

    def append(self, *names: str) -> None:
        """Append pings, and write the documents."""
        pings = [
            Ping(name, f"http://{name}.example/", time.time(), rss_url=f"http://{name}.example/f")
            for name in names
        ]
        with self._engine.begin() as conn:
            log.append(conn, "pings", [entry_of(ping) for ping in pings])
            last = log.read_document(conn, "pings")
            assert last is not None
            found = [log.read_document(conn, "pings", n + 1) for n in range(last.number)]
        for document in filter(None, found):
            self._serve(f"/documents/{document.number}", render(document, self._urls))
        self._serve("/recent", render(last, self._urls, recent=True, links=self._links))

    def _serve(self, path: str, body: bytes) -> None:
        headers = {"content-type": "application/atom+xml", "content-length": str(len(body))}
        self._origin.pages[path] = Page(200, body, headers)


def have_come(broker: Broker, count: int) -> bool:
    return len(names_of(broker)) == count


class FollowedFeedTests(EndToEndTestCase):
    def follower(self, feed: PingFeed, **options: str) -> Broker:
        """A broker that follows a feed."""
        broker = Broker(Path(self.mktemp()).resolve())
        self.addCleanup(broker.end)
        keys = "".join(f"{name} = {value}\n" for name, value in options.items())
        broker.configuration.write_text(
            f'public_url = "{broker.url}"\n[apps.test_feed]\nenabled = false\n'
            f'[[front_doors.follows.feeds]]\nurl = "{feed.url}"\n{keys}',
            encoding="utf-8",
        )
        broker.start()
        return broker

    def test_every_ping_comes_once_although_the_broker_was_killed(self) -> None:
        feed = PingFeed(self)
        feed.append(*(f"blog{number}" for number in range(5)))
        broker = self.follower(feed, every="1", begin='"oldest"')
        until(partial(have_come, broker, 5), "the first pings")
        broker.kill()
        feed.append(*(f"blog{number}" for number in range(5, 100)))
        broker.start()
        until(partial(have_come, broker, 100), "all pings")
        self.assertEqual(set(names_of(broker).values()), {1})
        rows = pings_of(broker)
        self.assertEqual([row["name"] for row in rows], [f"blog{number}" for number in range(100)])
        self.assertEqual(rows[7]["rss_url"], "http://blog7.example/f")
        self.assertEqual(rows[7]["origin"], feed.url.removesuffix("/recent"))

    def test_feed_is_read_as_soon_as_its_hub_says_so(self) -> None:
        hub = self.own_broker()
        hub.start()
        feed = PingFeed(self, f"{hub.url}/websub")
        broker = self.follower(feed, every="3600")
        until(lambda: f"{feed.url}: subscribed for" in broker.log, "the lease")
        feed.append("pushed")
        post_form(f"{hub.url}/websub", {"hub.mode": "publish", "hub.url": feed.url})
        until(partial(have_come, broker, 1), "the ping")
        self.assertEqual(list(names_of(broker)), ["pushed"])
