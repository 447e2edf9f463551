"""The table of all pages, and a broker that has something to show on each of them.

The browser opens each of ``PAGES`` in every test of `tests.e2e.test_every_page` and
`tests.e2e.test_xss`.  The pages that the navigation lists are in it by themselves; any other page
needs a row in ``_OTHERS``, and so does what a page shows for a query.  A test fails if a page of
the broker links to one that is not in the table.
"""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Final
from urllib.parse import quote

from attrs import frozen

from rsscloud_broker.web.navigation import FOR_MEMBERS, PLACES
from tests.e2e.browser import BrowserTestCase
from tests.e2e.fixture import Broker, request, until
from tests.e2e.servers import HttpPostReceiver, Origin
from tests.e2e.websub_servers import HubReceiver
from tests.e2e.writing import Writer

#: Who has an account at the busy broker, as an administrator.
ACCOUNT, PASSWORD = "dave", "correct horse"

#: A picture of one point.
_PICTURE = b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
)


@frozen
class PageOfBroker:
    """One page.

    :ivar name: what its tests and screenshots are called.
    :ivar path: its path with its query; ``{feed}`` stands for the URL of a feed that the broker
        knows, encoded for a query.
    :ivar status: of the answer.
    :ivar is_private: whether it is for somebody who has signed in.
    """

    name: str
    path: str
    status: int = 200
    is_private: bool = False

    def url(self, broker: Broker, feed: str) -> str:
        """Where the page is.

        :param feed: the URL of a feed.
        """
        return broker.url + self.path.format(feed=quote(feed, safe=""))


#: The pages that the navigation does not list, and further views of those that it lists.
_OTHERS = (
    PageOfBroker("front", "/"),
    PageOfBroker("ping_accepted", "/pingSiteForm?name=A+site&url=http://site.example/"),
    PageOfBroker("ping_refused", "/pingSiteForm?name=A+site&url=nonsense", 400),
    PageOfBroker("known_topic", "/topic?url={feed}"),
    PageOfBroker("search", "/search?q=127.0"),
    PageOfBroker("search_nothing", "/search?q=nothing.example/"),
    PageOfBroker("host", "/host?name=127.0.0.1"),
    PageOfBroker("events", "/events"),
    PageOfBroker("log_of_topic", "/log?topic={feed}"),
    PageOfBroker("stats_of_hour", "/stats?period=hour"),
    PageOfBroker("stats_of_month", "/stats?period=month"),
    PageOfBroker("doctor_of_feed", "/doctor?url={feed}"),
    PageOfBroker("sign_in_link", "/signin/once?key=used", 410),
    PageOfBroker("invitation", "/signin/invited?key=used", 410),
    PageOfBroker("account", "/account", is_private=True),
    PageOfBroker("feeds_versions", "/feeds?file=rss.xml", is_private=True),
    PageOfBroker("admin", "/admin", is_private=True),
    PageOfBroker("admin_subscriptions", "/admin/subscriptions", is_private=True),
    PageOfBroker("admin_subscription", "/admin/subscription?id=2", is_private=True),
    PageOfBroker("admin_topic", "/admin/topic", is_private=True),
    PageOfBroker("admin_hosts", "/admin/hosts", is_private=True),
    PageOfBroker("admin_blocks", "/admin/blocks", is_private=True),
    PageOfBroker("admin_accounts", "/admin/accounts", is_private=True),
    PageOfBroker("admin_account", "/admin/account?name=dave", is_private=True),
    PageOfBroker("admin_announcements", "/admin/announcements", is_private=True),
    PageOfBroker("admin_changes", "/admin/changes", is_private=True),
    PageOfBroker("admin_log", "/admin/log", is_private=True),
    PageOfBroker("api_docs", "/api/docs"),
    PageOfBroker("author", "/people/dave"),
    PageOfBroker("message", "/people/dave/1"),
    PageOfBroker("message_with_link", "/people/dave/2"),
    PageOfBroker("write_again", "/write?id=1", is_private=True),
    PageOfBroker("river_feeds", "/river/feeds", is_private=True),
    PageOfBroker("not_found", "/nothing", 404),
    PageOfBroker("not_a_page", "/RPC2", 405),
)

PAGES = (
    *(PageOfBroker(path[1:], path, is_private=path in FOR_MEMBERS) for path in PLACES),
    *_OTHERS,
)


@frozen
class Busy:
    """A broker that has been used.

    :ivar broker: it runs until the process of the tests ends.
    :ivar feed: the URL of a feed that it knows.
    """

    broker: Broker
    feed: str


_shared: list[Busy] = []


def busy_broker() -> Busy:
    """A broker for all tests of this process that only look at its pages."""
    if not _shared:
        directory = tempfile.mkdtemp(prefix="rsscloud-broker-")
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        broker = Broker(Path(directory), "[apps.test_feed]\n")
        atexit.register(broker.end)
        broker.add_account(ACCOUNT, PASSWORD, "--admin")
        token = broker.add_token(ACCOUNT, "river")
        broker.start()
        _read(broker, token)
        _shared.append(Busy(broker, _used(broker)))
    return _shared[0]


class BusyTestCase(BrowserTestCase):
    """With a broker that has been used, which tests only look at."""

    def setUp(self) -> None:
        super().setUp()
        self.busy = busy_broker()
        self.with_log(self.busy.broker)


#: Items of a feed with all that the river shows, but for pictures, which would come from elsewhere.
_ITEMS: Final = f"""
<item><title>A table</title><link>http://site.example/1</link><description>
&lt;h2&gt;Night trains&lt;/h2&gt;&lt;ul&gt;&lt;li&gt;one&lt;/li&gt;&lt;/ul&gt;
&lt;table&gt;&lt;tr&gt;&lt;th&gt;From&lt;/th&gt;&lt;td&gt;Wien&lt;/td&gt;&lt;/tr&gt;&lt;/table&gt;
</description><enclosure url="http://files.example/song.mp3" length="1000" type="audio/mpeg"/>
</item>
<item><description>{"A long text. " * 200}</description><guid>2</guid></item>
<item xmlns:rssCloud="http://rsscloud.co/"><title>{"W" * 200}</title><guid>3</guid>
<rssCloud:item><title>Below</title></rssCloud:item></item>
"""


def _read(broker: Broker, token: str) -> None:
    """Put some items into the river of the account at a broker."""
    origin = Origin()
    origin.start()
    feed = origin.feed("/items.xml", _ITEMS)
    opml = f'<opml version="2.0"><body><outline xmlUrl="{feed}"/></body></opml>'
    headers = {"authorization": f"Bearer {token}", "content-type": "text/x-opml"}
    answer = request(f"{broker.url}/river/opml", "POST", opml.encode(), headers)
    assert answer.status == 200, answer.text

    def read() -> bool:
        river = request(f"{broker.url}/river.json", headers=headers)
        return len(json.loads(river.body)["items"]) == 3

    until(read, "the items in the river")


def _used(broker: Broker) -> str:
    """Use a broker in all ways that its pages tell of; the URL of a feed that has subscribers."""
    origin, receiver, refusing = Origin(), HttpPostReceiver(), HubReceiver()
    deaf = HttpPostReceiver()
    deaf.status = 500
    for server in (origin, receiver, deaf, refusing):
        server.start()
    feed = origin.feed()
    broker.subscribe(receiver, feed)
    broker.subscribe(deaf, feed)  # which fails
    receiver.heard.clear()
    refusing.status = 500
    broker.subscribe_to_hub(refusing.callback, feed)
    until(lambda: refusing.asked, "the intent to be verified")
    broker.ping(feed)
    origin.change(feed)
    broker.ping(feed)
    until(lambda: receiver.heard and refusing.delivered, "the subscribers to be notified")
    said = b64encode(f"{ACCOUNT}:{PASSWORD}".encode()).decode()
    for text in ("1", "2"):
        body = f"<rss version='2.0'><channel><title>{text}</title></channel></rss>".encode()
        headers = {"Authorization": f"Basic {said}"}
        request(f"{broker.url}/feeds/{ACCOUNT}/rss.xml", "PUT", body, headers)
    for name, url in (
        ("A site", "http://site.example/" + "a" * 220),
        ("W" * 1000, "http://other.example/"),
        ("Ночной поезд", "http://xn--e1afmkfd.example/"),
    ):
        request(f"{broker.url}/pingSiteForm?name={quote(name)}&url={quote(url)}")
    writer = Writer(broker, ACCOUNT, PASSWORD)
    writer.sign_in()
    picture = ("a picture.png", _PICTURE)
    more = {"title": "W" * 100, "categories": "boats, " + "c" * 60}
    writer.post("See http://site.example/" + "a" * 60, picture, outline="one\n  two", **more)
    writer.post("Ночной поезд", link="http://other.example/" + "a" * 220)
    writer.post("Not yet", do="draft")
    # It stores the statistics when it stops, and makes the change lists when it starts.  Its pages
    # have the statistics of whole minutes only.
    broker.stop()
    broker.start(ahead=120)
    return feed
