"""Feeds and messages that the broker stores: clients of others save them, and subscribers hear."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any
from xmlrpc.client import Fault, ServerProxy

import feedparser

from tests.e2e.fixture import TIMEOUT, Broker, EndToEndTestCase, post_form, request, until
from tests.e2e.programs import program
from tests.e2e.servers import RECEIVERS
from tests.e2e.websub_servers import HubReceiver

PASSWORD = "correct horse"

JPEG = b"\xff\xd8\xff\xe0 a picture" + bytes(2000)

#: The feeds are public at the address that the broker knows.
ACCESS_LOG = '[log]\naccess = "access.log"\n'


def a_feed(text: str = "1") -> str:
    """A feed with a letter that is not of ASCII."""
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<rss version="2.0"><channel>'
        f"<title>Ünïcode {text}</title></channel></rss>\n"
    )


def save(broker: Broker, feed: str) -> str:
    """Save a feed by XML-RPC; its public URL."""
    with ServerProxy(f"{broker.url}/RPC2", use_builtin_types=True) as proxy:
        return str(proxy.rssCloud.saveRss("dave", PASSWORD, feed))


def curl(broker: Broker, *options: object) -> tuple[str, str]:
    """What curl says of a request to the feed: the status, and the body of the answer."""
    command = [program("curl"), "-s", "--noproxy", "*", "--user", f"dave:{PASSWORD}"]
    url = f"{broker.url}/feeds/dave/rss.xml"
    done = subprocess.run(
        [*command, "--write-out", "\n%{http_code}", *map(str, options), url],
        check=True,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    body, _, status = done.stdout.rpartition("\n")
    return status, body.strip()


class SubscribersTests(EndToEndTestCase):
    def test_all_are_told_with_the_content_and_nothing_is_fetched(self) -> None:
        broker = self.running_broker(ACCESS_LOG, account=("dave", PASSWORD))
        feed = save(broker, a_feed())
        self.assertEqual(feed, f"http://localhost:{broker.port}/feeds/dave/rss.xml")
        receivers = [self.served(make()) for make in RECEIVERS]
        for receiver in receivers:
            self.subscribed(broker, receiver, feed)
        hub = self.served(HubReceiver())
        answer = request(f"{broker.url}/feeds/dave/rss.xml")
        (hub_url,) = re.findall(r'<([^>]*)>; rel="hub"', answer.headers["link"])
        (topic,) = re.findall(r'<([^>]*)>; rel="self"', answer.headers["link"])
        intent = {"hub.mode": "subscribe", "hub.topic": topic, "hub.callback": hub.callback}
        self.assertEqual(post_form(hub_url, intent).status, 202)
        until(lambda: hub.asked, "the hub to ask")

        save(broker, a_feed("2"))
        for receiver in receivers:
            self.assert_told(receiver, feed)
        self.assert_told(hub, feed)
        (delivery,) = hub.delivered
        self.assertEqual(delivery.body, a_feed("2").encode())
        self.assertEqual(delivery.headers["content-type"], "application/rss+xml; charset=utf-8")
        save(broker, a_feed("2"))  # unchanged: nobody is notified
        save(broker, a_feed("3"))
        self.assert_told(hub, feed)
        self.assertEqual(hub.bodies, [a_feed("2").encode(), a_feed("3").encode()])
        self.assertEqual(request(f"{broker.url}/feeds/dave/rss.xml").text, a_feed("3"))
        broker.stop()
        log = Path(broker.directory, "access.log").read_text(encoding="utf-8")
        self.assertEqual(log.count("GET /feeds/dave/rss.xml"), 2, "this test has read it twice")


class ClientsTests(EndToEndTestCase):
    def test_xml_rpc_and_curl(self) -> None:
        broker = self.running_broker(account=("dave", PASSWORD))
        feed = save(broker, a_feed())
        with ServerProxy(f"{broker.url}/RPC2", use_builtin_types=True) as proxy:
            error = self.assertRaises(Fault, proxy.rssCloud.saveRss, "dave", "wrong", a_feed())
            self.assertIn("the name or the password is wrong", error.faultString)
            in_utf_16 = a_feed("x").replace("utf-8", "utf-16").encode("utf-16")
            self.assertEqual(proxy.rssCloud.saveRss("dave", PASSWORD, in_utf_16), feed)
            self.assertEqual(request(f"{broker.url}/feeds/dave/rss.xml").body, in_utf_16)
        file = broker.directory / "rss.xml"
        file.write_text(a_feed("curl"), encoding="utf-8")
        self.assertEqual(curl(broker, "--upload-file", file), ("204", ""))
        self.assertEqual(request(f"{broker.url}/feeds/dave/rss.xml").text, a_feed("curl"))
        file.write_text("<html/>", encoding="utf-8")
        status, said = curl(broker, "--upload-file", file)
        self.assertEqual(status, "422")
        self.assertIn("its root element is html", said)
        self.assertEqual(curl(broker, "--request", "DELETE"), ("204", ""))
        self.assertEqual(request(f"{broker.url}/feeds/dave/rss.xml").status, 410)
        # What is stored outlives the process.
        save(broker, a_feed("again"))
        broker.restart()
        self.assertEqual(request(f"{broker.url}/feeds/dave/rss.xml").text, a_feed("again"))
        self.assertNotIn(PASSWORD, broker.log)


class PostingTests(EndToEndTestCase):
    """Programs of other people write messages, by XML-RPC."""

    def setUp(self) -> None:
        super().setUp()
        self.broker = self.running_broker(account=("dave", PASSWORD))

    def feed(self, broker: Broker) -> Any:
        return feedparser.parse(request(f"{broker.url}/people/dave/rss.xml").body)

    def test_python(self) -> None:
        proxy = ServerProxy(f"{self.broker.url}/RPC2", use_builtin_types=True)
        self.addCleanup(proxy("close"))
        server: Any = proxy
        who = ("dave", PASSWORD)
        (blog,) = server.blogger.getUsersBlogs("key", *who)
        file = {"name": "x.jpg", "type": "image/jpeg", "bits": JPEG}
        stored = server.metaWeblog.newMediaObject(blog["blogid"], *who, file)
        self.assertEqual(request(stored["url"]).body, JPEG)
        entry = {
            "title": "Grüße",
            "description": f'<p>From <b>Python</b></p><img src="{stored["url"]}" />',
            "categories": ["one"],
        }
        number = server.metaWeblog.newPost(blog["blogid"], *who, entry, True)
        (item,) = self.feed(self.broker).entries
        self.assertEqual((item.title, item.summary), ("Grüße", "From Python"))
        self.assertEqual(item.enclosures[0].href, stored["url"])
        self.broker.restart()
        got = server.metaWeblog.getPost(number, *who)
        self.assertEqual((got["title"], got["categories"]), ("Grüße", ["one"]))
        self.assertIs(server.blogger.deletePost("key", number, *who, True), True)
        self.assertEqual(self.feed(self.broker).entries, [])
