"""The table of all pages, and a broker that has something to show on each of them.

Whoever adds a page to the broker adds a row to ``PAGES``: then the browser opens it in every test
of `tests.e2e.test_every_page` and `tests.e2e.test_xss`.  A test fails if a page of the broker
links to one that is not in the table.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from base64 import b64encode
from pathlib import Path
from urllib.parse import quote

from attrs import frozen

from tests.e2e.fixture import Broker, post_form, request, run_here, until
from tests.e2e.servers import DeafReceiver, HttpPostReceiver, Origin
from tests.e2e.websub_servers import HubReceiver

#: Who has an account at the busy broker, as an administrator.
ACCOUNT, PASSWORD = "dave", "correct horse"


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


PAGES = (
    PageOfBroker("front", "/"),
    PageOfBroker("docs", "/docs"),
    PageOfBroker("ping", "/pingSiteForm"),
    PageOfBroker("ping_accepted", "/pingSiteForm?name=A+site&url=http://site.example/"),
    PageOfBroker("ping_refused", "/pingSiteForm?name=A+site&url=nonsense", 400),
    PageOfBroker("rsscloud", "/rssCloud"),
    PageOfBroker("websub", "/websub"),
    PageOfBroker("topics", "/topic"),
    PageOfBroker("topic", "/topic?url={feed}"),
    PageOfBroker("changes", "/changes"),
    PageOfBroker("log", "/log"),
    PageOfBroker("log_of_topic", "/log?topic={feed}"),
    PageOfBroker("stats", "/stats"),
    PageOfBroker("stats_of_hour", "/stats?period=hour"),
    PageOfBroker("stats_of_month", "/stats?period=month"),
    PageOfBroker("doctor", "/doctor"),
    PageOfBroker("doctor_of_feed", "/doctor?url={feed}"),
    PageOfBroker("sign_in", "/signin"),
    PageOfBroker("account", "/account", is_private=True),
    PageOfBroker("feeds", "/feeds", is_private=True),
    PageOfBroker("feeds_versions", "/feeds?file=rss.xml", is_private=True),
    PageOfBroker("admin", "/admin", is_private=True),
    PageOfBroker("admin_subscriptions", "/admin/subscriptions", is_private=True),
    PageOfBroker("admin_topic", "/admin/topic", is_private=True),
    PageOfBroker("admin_hosts", "/admin/hosts", is_private=True),
    PageOfBroker("admin_blocks", "/admin/blocks", is_private=True),
    PageOfBroker("admin_announcements", "/admin/announcements", is_private=True),
    PageOfBroker("admin_changes", "/admin/changes", is_private=True),
    PageOfBroker("admin_log", "/admin/log", is_private=True),
    PageOfBroker("not_found", "/nothing", 404),
    PageOfBroker("not_a_page", "/RPC2", 405),
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
        broker = Broker(Path(directory))
        atexit.register(broker.end)
        run_here(
            *("account", "add", ACCOUNT, "--admin", "--password-stdin", "--data", broker.data),
            stdin=PASSWORD,
        ).check_returncode()
        broker.start()
        _shared.append(Busy(broker, _used(broker)))
    return _shared[0]


def _used(broker: Broker) -> str:
    """Use a broker in all ways that its pages tell of; the URL of a feed that has subscribers."""
    origin, receiver, deaf, refusing = Origin(), HttpPostReceiver(), DeafReceiver(), HubReceiver()
    for server in (origin, receiver, deaf, refusing):
        server.start()
    feed = origin.feed()
    broker.subscribe(receiver, feed)
    broker.subscribe(deaf, feed)  # which fails
    receiver.heard.clear()
    refusing.status = 500
    intent = {"hub.mode": "subscribe", "hub.topic": feed, "hub.callback": refusing.callback}
    post_form(f"{broker.url}/websub", intent)
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
    # It stores the statistics when it stops, and makes the change lists when it starts.  Its pages
    # have the statistics of whole minutes only.
    broker.stop()
    broker.start(ahead=120)
    return feed
