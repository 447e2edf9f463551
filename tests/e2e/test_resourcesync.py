"""ResourceSync in processes: a source, a destination that follows it, and the library resync."""

from __future__ import annotations

import hmac
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

from attrs import frozen

from tests.e2e.fixture import Answer, Broker, EndToEndTestCase, post_form, run, until
from tests.e2e.servers import Handler, Server, http_server

TOKEN = "correct-horse-battery"
SECRET = "sesame"
PAYLOAD = (
    Path(__file__).parent.parent / "wire" / "fixtures" / "resourcesync" / "new_resource_list.xml"
)
CONFIGURATION = """
[[front_doors.resourcesync.publishers]]
topic = "{topic}"
token = "{token}"
"""


@frozen
class Delivery:
    """What a destination was sent."""

    headers: dict[str, str]
    body: bytes


class Destination(Server):
    """Confirms what it is asked, and keeps what it is sent."""

    def __init__(self) -> None:
        super().__init__(http_server(_DestinationHandler, self))
        self.confirmed: list[str] = []
        self.deliveries: list[Delivery] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/callback"

    def subscribe(self, broker: Broker, topic: str) -> None:
        fields = {"mode": "subscribe", "topic": topic, "callback": self.url, "secret": SECRET}
        answer = post_form(
            f"{broker.url}/websub", {f"hub.{name}": value for name, value in fields.items()}
        )
        assert answer.status == 202, answer.text

        def stored() -> bool:
            with closing(sqlite3.connect(broker.data / "broker.sqlite")) as database:
                return bool(database.execute("SELECT count(*) FROM subscription").fetchone()[0])

        until(stored, f"the subscription to {topic} to be kept")
        assert self.confirmed == [topic]


class _DestinationHandler(Handler):
    owner: ClassVar[Destination]

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        self.owner.confirmed.extend(query["hub.topic"])
        self.answer(200, query["hub.challenge"][0].encode())

    def do_POST(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.owner.deliveries.append(Delivery(headers, self.body()))
        self.answer(204)


def publish(broker: Broker, topic: str) -> Answer:
    """As anybody may: say that a topic has changed."""
    return post_form(f"{broker.url}/websub", {"hub.mode": "publish", "hub.url": topic})


class HubTests(EndToEndTestCase):
    def notify(self, broker: Broker, topic: str, token: str) -> str:
        done = run(
            *("rsscloud-broker", "resourcesync", "notify", PAYLOAD),
            *("--topic", topic, "--hub", f"http://localhost:{broker.port}/websub"),
            env={"RSSCLOUD_BROKER_TOKEN": token},
        )
        return done.stdout or done.stderr

    def test_a_notification_reaches_its_destinations(self) -> None:
        """The channel answers with 404 to everybody who asks there."""
        topic = self.origin().url("/dataset1/framework/")
        broker = self.own_broker(CONFIGURATION.format(topic=topic, token=TOKEN))
        broker.start()
        destination = self.served(Destination())
        destination.subscribe(broker, topic)
        self.assertEqual(self.notify(broker, topic, TOKEN), "The notification was accepted.\n")
        until(lambda: destination.deliveries, "a delivery")
        delivery = destination.deliveries[0]
        self.assertEqual(delivery.body, PAYLOAD.read_bytes())
        self.assertEqual(delivery.headers["content-type"], "application/xml")
        for link in (
            f'<{topic}>; rel="self"',
            f'<http://localhost:{broker.port}/websub>; rel="hub"',
            '<http://example.com/dataset1/capabilitylist.xml>; rel="resourcesync"',
        ):
            self.assertIn(link, delivery.headers["link"])
        digest = hmac.new(SECRET.encode(), delivery.body, "sha256").hexdigest()
        self.assertEqual(delivery.headers["x-hub-signature"], f"sha256={digest}")

        self.assertIn("HTTP status 401", self.notify(broker, topic, TOKEN[::-1]))
        self.assertIn("HTTP status 403", self.notify(broker, "http://example.com/", TOKEN))


class SourceTests(EndToEndTestCase):
    archive = b'<?xml version="1.0"?>\n<weblogUpdates>%d</weblogUpdates>\n'

    def put(self, broker: Broker, hour: int) -> Path:
        path = Path("2026", "01", "02", f"{hour:02}.xml")
        file = broker.data / "public" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(self.archive % hour)
        return path

    def test_resync_copies_the_archives(self) -> None:
        """As the page of ResourceSync says it does."""
        broker = self.own_broker()
        copied = self.directory() / "archives"
        paths = [self.put(broker, hour) for hour in (1, 24)]
        source = f"http://localhost:{broker.port}/"
        broker.start()

        channel = broker.data / "public" / "resourcesync" / "notification.xml"
        until(channel.exists, "the documents to be made")
        done = run(
            *("resync-sync", "--baseline", "--hash", "sha-256", source, copied),
            cwd=self.directory(),
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        for path in paths:
            self.assertEqual(
                copied.joinpath(path).read_bytes(),
                broker.data.joinpath("public", path).read_bytes(),
            )

    def test_the_channel_can_be_subscribed_to(self) -> None:
        broker = self.own_broker()
        broker.start()
        channel = f"http://localhost:{broker.port}/resourcesync/notification.xml"
        destination = self.served(Destination())
        destination.subscribe(broker, channel)
        broker.stop()
        self.put(broker, 1)
        broker.start()
        until(lambda: destination.deliveries, "a delivery")
        delivery = destination.deliveries[-1]
        self.assertIn(b'capability="framework-notification"', delivery.body)
        self.assertIn(f'<{channel}>; rel="self"', delivery.headers["link"])
        self.assertIn('/resourcesync/capabilitylist.xml>; rel="resourcesync"', str(delivery))
        self.assertIn("its publisher pushes its content", publish(broker, channel).text)
