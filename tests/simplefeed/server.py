"""Serves a log, to which it appends at random: ``python -m tests.simplefeed.server PORT COUNT``.

Documents are archived while they are read.  Once ``COUNT`` entries are appended, nothing changes.
It says which port it listens on; port 0 stands for any.
"""

from __future__ import annotations

import random
import sys

from twisted.internet.task import LoopingCall
from twisted.web.resource import Resource
from twisted.web.server import Request, Site

from rsscloud_broker.simplefeed.atom import FeedUrls
from tests.commands.cases import running
from tests.simplefeed.logs import Feed, in_memory


class Documents(Resource):
    """The documents of a feed, with ETags.

    :param count: how many entries to append.
    """

    isLeaf = True

    def __init__(self, feed: Feed, urls: FeedUrls, count: int) -> None:
        super().__init__()
        self._feed = feed
        self._base = urls.recent.removesuffix("/recent")
        self._left = count

    def grow(self) -> None:
        """Append some entries."""
        some = min(self._left, random.randrange(5))
        self._feed.append(some)
        self._left -= some

    def render_GET(self, request: Request) -> bytes:
        self.grow()
        body = self._feed.get(self._base + request.path.decode("ascii"))
        if body is None:
            request.setResponseCode(404)
            return b""
        request.setHeader("Content-Type", "application/atom+xml")
        request.setHeader("Cache-Control", "max-age=1")
        if request.setETag(f'"{hash(body)}"'.encode()):
            return b""
        return body


def main(port: int, count: int) -> None:
    """Serve until somebody ends the process."""
    site = Site(Resource())
    bound = running.listenTCP(port, site, interface="127.0.0.1").getHost().port
    base = f"http://127.0.0.1:{bound}"
    urls = FeedUrls(f"{base}/recent", f"{base}/documents/")
    with in_memory() as engine:
        documents = Documents(Feed(engine, 10, urls), urls, count)
        site.resource = documents
        LoopingCall(documents.grow).start(0.1)
        sys.stdout.write(f"listening on {bound}\n")
        sys.stdout.flush()
        running.run()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
