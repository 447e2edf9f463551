"""The front door of the test feed: ``/test/rss.xml``, and the page ``/test`` about it.

``web.feed_answers`` says how the feed is served.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Final
from urllib.parse import quote

from twisted.python.filepath import FilePath
from twisted.web.server import Request
from twisted.web.template import Tag, tags
from zope.interface import implementer

from rsscloud_broker.apps.test_feed.document import clock_of, in_words, title_of
from rsscloud_broker.apps.test_feed.feed import TestFeed
from rsscloud_broker.apps.test_feed.items import TestItem
from rsscloud_broker.http.answering import PLAIN, Answer, Answers, viewer_of
from rsscloud_broker.interfaces import AppParts, IFrontDoor, Route, RoutesOnly
from rsscloud_broker.web.assets import Asset
from rsscloud_broker.wire import links
from rsscloud_broker.wire.cloud import encode as encode_cloud
from rsscloud_broker.wire.times import iso_time

PAGE_PATH: Final = "/test"
FEED_PATH: Final = "/test/rss.xml"
SCRIPT_PATH: Final = "/test/test.js"

_PACKAGE: Final = "rsscloud_broker.apps.test_feed"
_SCRIPT: Final = FilePath(str(files(_PACKAGE).joinpath("test.js")))

_NOT_YET: Final = b"The test feed has no item yet. Please come again in some seconds.\n"


@implementer(IFrontDoor)
class TestFeedDoor(RoutesOnly):
    """The front door for the feed and the page about it."""

    name = "test_feed"

    def __init__(self, feed: TestFeed, parts: AppParts) -> None:
        self._feed = feed
        self._parts = parts
        hub = [(feed.about.hub, "hub")] if feed.about.hub else []
        self._link = links.encode([*hub, (feed.about.url, "self")])
        self._routes = [
            Route(FEED_PATH, "GET", Answers(self._answer_feed), for_everybody=True),
            Route(PAGE_PATH, "GET", Answers(self._show_page)),
            Route(SCRIPT_PATH, "GET", Asset(_SCRIPT, "text/javascript; charset=utf-8")),
        ]
        about = feed.about
        # What the template shows that never changes, by the names of its slots.
        self._texts: dict[str, Tag | str] = {
            "here": PAGE_PATH,
            "feed": about.url,
            "every": in_words(about.every),
            "has_cloud": "yes" if about.cloud else "",
            "cloud": encode_cloud(about.cloud) if about.cloud else "",
            "registration": about.cloud.url if about.cloud else "",
            "hub": about.hub,
            "topic": "",
        }
        if "topic_page" in parts.running:
            page = f"/topic?url={quote(about.url, safe='')}"
            self._texts["topic"] = tags.a("the page about this topic", href=page)

    def routes(self) -> Sequence[Route]:
        return self._routes

    async def _answer_feed(self, request: Request) -> Answer:
        """Answer with the feed, or 304 if the client has it; 503 until its first item is there."""
        await self._feed.refresh()
        document = self._feed.document
        if document is None:
            return Answer(_NOT_YET, PLAIN, 503, {"retry-after": "5"})
        now = self._parts.clock.wall_seconds()
        return document.answers(self._feed.modified_at, now, self._link).answer_to(request)

    async def _show_page(self, request: Request) -> Answer:
        """The page that says what a subscriber should see, and when."""
        viewer = await viewer_of(self._parts.callers, request)
        await self._feed.refresh()
        now = self._parts.clock.wall_seconds()
        at = self._feed.next_at(now)
        page = await self._parts.pages.render(
            "Test feed",
            f"{_PACKAGE}:page.html",
            viewer,
            **self._texts,
            next=tags.time(f"{clock_of(at)} UTC", datetime=iso_time(at)),
            title=title_of(TestItem(at, "")),
            # The clock of the browser may be wrong, so its script counts from here.
            countdown=tags.span(id="countdown", **{"data-left": f"{at - now:.1f}"}),
            items=[_list_item(each) for each in self._feed.items] or tags.li("There is none yet."),
        )
        return Answer(page, headers={"cache-control": "no-cache" if viewer is None else "no-store"})


def _list_item(item: TestItem) -> Tag:
    return tags.li(
        tags.span(tags.time(title_of(item), datetime=iso_time(item.slot))),
        tags.span(tags.code(item.guid), class_="where"),
    )
