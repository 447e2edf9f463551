"""The rivers of a broker in a process of its own, watched by a thousand browsers."""

from __future__ import annotations

import json
import re
import socket
import time

from rsscloud_broker.accounts.secrets import digest_of, new_secret
from rsscloud_broker.storage import open_database
from rsscloud_broker.storage.accounts import add_session, stored_password
from tests.e2e.fixture import Broker, EndToEndTestCase, request, run_here, until
from tests.e2e.servers import FEED
from tests.e2e.watchers import Watchers
from tests.postgresql import borrowed_database

STREAMS = 1000

_CONFIGURATION = f"""
[http]
max_connections = {3 * STREAMS}
max_connections_per_address = {10 * STREAMS}
[apps.river]
enabled = true
"""


def ids(received: bytes) -> list[int]:
    """The items that have come to a client."""
    data = re.findall(rb"^data: (\{.*\})\r?$", received, re.MULTILINE)
    return [json.loads(each)["id"] for each in data]


class StreamsTests(EndToEndTestCase):
    def prepared(self, database: str = "") -> Broker:
        """A running broker with two accounts, which follow one feed each.

        :param database: the URL of its database; empty for its own file.
        """
        line = f'database = "{database}"\n' if database else ""
        broker = self.own_broker(line + _CONFIGURATION)
        self.database = database or broker.database
        self.feeds: dict[str, str] = {}
        self.cookies: dict[str, str] = {}
        self.source = self.origin()
        where = ("--config", broker.configuration, "--data", broker.data)
        tokens = {}
        for name in ("dave", "anna"):
            added = ("account", "add", name, "--password-stdin", *where)
            run_here(*added, stdin="correct horse").check_returncode()
            made = run_here("account", "token", "add", name, "--scope", "river", *where)
            tokens[name] = made.stdout.strip()
        broker.start()
        for name, token in tokens.items():
            self.feeds[name] = self.source.feed(f"/{name}.xml")
            self.put(name, 1)
            opml = f'<opml version="2.0"><body><outline xmlUrl="{self.feeds[name]}"/></body></opml>'
            headers = {"authorization": f"Bearer {token}", "content-type": "text/x-opml"}
            request(f"{broker.url}/river/opml", "POST", opml.encode(), headers)
            self.wait_for_item(broker, headers)
            self.cookies[name] = self.session(name)
        return broker

    def wait_for_item(self, broker: Broker, headers: dict[str, str]) -> None:
        """Wait until the first item is in the river of an account."""

        def items() -> list[object]:
            answer = request(f"{broker.url}/river.json", headers=headers)
            found: list[object] = json.loads(answer.body)["items"]
            return found

        until(items, "the first item")

    def session(self, name: str) -> str:
        """The cookie of a new session."""
        secret, now = new_secret(), time.time()
        with open_database(self.database) as connection:
            stored = stored_password(connection, name)
            assert stored is not None
            digest = digest_of(secret)
            key = stored.account.id
            add_session(connection, key, stored.hash, digest, now, now + 9999, "", "", b"", 10)
        return f"rsscloud-session={secret}"

    def put(self, name: str, *keys: int) -> None:
        """Put items into the feed of an account."""
        items = "".join(
            f"<item><title>{name} {key}</title><guid>{key}</guid></item>" for key in keys
        )
        self.source.pages[f"/{name}.xml"] = FEED % items.encode()

    def publish(self, broker: Broker, name: str, *keys: int) -> None:
        self.put(name, *keys)
        broker.ping(self.feeds[name])

    def streams(self, broker: Broker) -> Watchers:
        streams = Watchers(broker.port)
        self.addCleanup(streams.close)
        return streams

    def open(self, streams: Watchers, name: str, last: int = 0) -> socket.socket:
        """Begin to watch the river of an account."""
        headers = {"Cookie": self.cookies[name]} | ({"Last-Event-ID": str(last)} if last else {})
        return streams.open("/river/events", headers)

    def test_a_thousand_watch(self) -> None:
        broker = self.prepared()
        streams = self.streams(broker)
        dave, anna = (
            [self.open(streams, name) for _ in range(STREAMS // 2)] for name in ("dave", "anna")
        )
        until(lambda: streams.have(": the river"), "all to be answered")
        self.publish(broker, "dave", 1, 2)
        until(lambda: streams.have("dave 2", dave), "the item in all rivers that follow its feed")
        self.publish(broker, "anna", 1, 2)
        until(lambda: streams.have("anna 2", anna), "the item in the other rivers")
        for client in dave:
            self.assertEqual(len(ids(streams.received[client])), 1)
            self.assertNotIn(b"anna", streams.received[client])
        for client in anna:
            self.assertEqual(len(ids(streams.received[client])), 1)
            self.assertNotIn(b"dave", streams.received[client])
        self.assertEqual(request(f"{broker.url}/").status, 200)
        more = request(f"{broker.url}/river/events", headers={"Cookie": self.cookies["dave"]})
        self.assertEqual(more.status, 503)

    def test_who_was_away_goes_on(self) -> None:
        """Nothing is lost over a broken connection."""
        broker = self.prepared(self.enterContext(borrowed_database()))
        streams = self.streams(broker)
        client = self.open(streams, "dave")
        until(lambda: streams.have(": the river"), "the stream")
        self.publish(broker, "dave", 1, 2)
        until(lambda: streams.have("dave 2"), "the first item")
        (last,) = ids(streams.received[client])
        broker.kill()
        broker.start()
        self.publish(broker, "dave", 1, 2, 3, 4)
        again = self.streams(broker)
        client = self.open(again, "dave", last)
        until(lambda: again.have("dave 3") and again.have("dave 4"), "the rest")
        self.publish(broker, "dave", 1, 2, 3, 4, 5)
        until(lambda: again.have("dave 5"), "the next item")
        found = ids(again.received[client])
        self.assertEqual((len(found), sorted(set(found))), (3, found))
