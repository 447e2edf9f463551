"""Links of strangers that are no URLs, wherever one may be: nothing raises because of one."""

from __future__ import annotations

import contextlib
from html import escape

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.apps.follows.lists import hub_named
from rsscloud_broker.apps.river.discovery import feeds_in_page
from rsscloud_broker.apps.river.reading import header_offers, read_document
from rsscloud_broker.client.feed_findings import judge
from rsscloud_broker.client.feed_requests import FeedAnswer, Fetches
from rsscloud_broker.client.web import ClientError, Web
from rsscloud_broker.client.websub import find_hub
from rsscloud_broker.errors import DocumentFault
from rsscloud_broker.testing import FakeOutbound, reply

URL = "http://blog.example/feed"
PAGE = (
    '<html><head><base href="{0}"><link rel="alternate" type="application/rss+xml" href="{1}">'
    '<link rel="hub" href="{0}"><link rel="self" href="{1}"></head>'
)
FEED = (
    '<rss xmlns:atom="http://www.w3.org/2005/Atom" version="2.0" xml:base="{0}"><channel>'
    '<title>A</title><link>{1}</link><atom:link rel="hub" href="{0}"/>'
    '<atom:link rel="self" href="{1}"/><cloud domain="{0}" port="80" path="{1}" protocol="soap"/>'
    '<item><link>{0}</link><enclosure url="{1}" length="1" type="x/y"/>'
    "<description>&lt;a href='{0}'&gt;x&lt;/a&gt;</description></item></channel></rss>"
)

LINKS = st.lists(
    st.sampled_from(
        (
            *("http:", "https:", "mailto:", "//", "/", "[", "]", "[::1", "[a:b]", "%", "%5B", "@"),
            *("#", "?", ":x", ":99999", "a.example", "a\u2100", "\0", "&#xD800;", "\ud800", " "),
        )
    ),
    min_size=1,
    max_size=5,
).map("".join)


class StrangeLinkTests(SynchronousTestCase):
    @given(LINKS, LINKS, st.booleans())
    def test_nothing_raises(self, one: str, two: str, quoted: bool) -> None:
        written = [escape(each) if quoted else each for each in (one, two)]
        page, feed = (
            text.format(*written).encode("utf-8", "surrogatepass") for text in (PAGE, FEED)
        )
        link = f"<{one}>; rel=hub, <{two}>; rel=self, <{one}>; rel=alternate"
        hub_named({"link": link}, URL)
        header_offers(link, URL)
        feeds_in_page(page, URL)
        with contextlib.suppress(DocumentFault):  # it is malformed
            read_document(feed, "application/rss+xml", URL)
        for body, kind in ((page, "text/html"), (feed, "application/rss+xml")):
            answer = FeedAnswer(URL, 200, {"link": link, "content-type": kind}, body)
            judge(Fetches((), answer, answer))
            for header in (link, ""):
                web = Web(FakeOutbound({URL: reply(200, body, content_type=kind, link=header)}))
                finding = Deferred.fromCoroutine(find_hub(web, URL))
                finding.addErrback(lambda failure: failure.trap(ClientError))
                self.successResultOf(finding)
