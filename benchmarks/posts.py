"""An application that publishes a feed whenever somebody posts to it.

The benchmark of rivers puts it into the broker as a plugin of another package: it stands for the
applications with which people write.  ``POST /post`` publishes an item with the posted text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from xml.sax.saxutils import escape

from attrs import frozen
from twisted.plugin import IPlugin
from twisted.web.server import Request
from zope.interface import implementer

from rsscloud_broker import interfaces
from rsscloud_broker.http.answering import PLAIN, Answer, Answers
from rsscloud_broker.model import Content

#: The name of the application, and the path of its feed.
NAME, FEED = "benchmark_posts", "/posted/rss.xml"

#: How many items the feed has.
_ITEMS: Final = 20

_TEXT: Final = "A few words that somebody might write into a message. "


@implementer(interfaces.IFrontDoor)
class Posts(interfaces.RoutesOnly):
    """Publishes the feed."""

    name = NAME

    def __init__(self, parts: interfaces.AppParts) -> None:
        self._publisher = parts.publisher
        self._url = parts.public_url + FEED
        self._items: list[str] = []

    def routes(self) -> Sequence[interfaces.Route]:
        return [interfaces.Route("/post", "POST", Answers(self._post))]

    async def read(self, url: str) -> Content | None:
        """The feed."""
        return self._content() if url == self._url else None

    async def _post(self, request: Request) -> Answer:
        assert request.content is not None  # Twisted sets it
        title = escape(request.content.read().decode())
        item = f"<item><title>{title}</title><description>{_TEXT}</description></item>"
        self._items = [item, *self._items][:_ITEMS]
        await self._publisher.publish(self._url, self._content(), lambda conn: None, "")
        return Answer(b"Posted.\n", PLAIN)

    def _content(self) -> Content:
        channel = f"<title>Posts</title><link>{self._url}</link><description/>"
        document = f"<rss version='2.0'><channel>{channel}{''.join(self._items)}</channel></rss>"
        return Content(document.encode(), "application/rss+xml")


@frozen
class PostsOptions:
    """The application has no options."""


@implementer(IPlugin, interfaces.IAppMaker)
class PostsMaker:
    """Makes the application."""

    name = NAME
    help = "publishes what the benchmark posts"
    options = PostsOptions
    needs = ("public_url", "publisher")
    tables = None

    def make(self, options: PostsOptions, parts: interfaces.AppParts) -> interfaces.IApp:
        """See ``IAppMaker``."""
        posts = Posts(parts)
        served = interfaces.ServedTopics(parts.public_url + FEED, posts.read)
        return interfaces.App(NAME, front_doors=[posts], topics=[served])
