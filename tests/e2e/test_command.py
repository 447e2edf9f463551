"""The ``rsscloud-broker`` command, in processes of its own beside a running broker."""

from __future__ import annotations

import json

from tests.e2e.fixture import (
    Broker,
    EndToEndTestCase,
    run,
)
from tests.e2e.servers import RECEIVERS, HttpPostReceiver, Receiver


class CommandTestCase(EndToEndTestCase):
    def command(self, *arguments: object, stdin: str = "") -> str:
        """What a command prints that succeeds, and complains about nothing."""
        done = run("rsscloud-broker", *arguments, stdin=stdin)
        self.assertEqual(done.returncode, 0, done.stderr)
        # An export says what it leaves out.
        self.assertRegex(done.stderr, r"\A(Not exported are [^\n]*\n)?\Z")
        return done.stdout


class PingTests(CommandTestCase):
    def test_every_protocol(self) -> None:
        broker, origin = self.shared_broker(), self.origin()
        feed, receiver = origin.feed(), self.served(HttpPostReceiver())
        self.subscribed(broker, receiver, feed)
        for what in ([feed], ["--name", "A Site", "--url", "http://a.example/", "--rss", feed]):
            for protocol in ("rest", "xml-rpc", "soap"):
                with self.subTest(what=what[0], protocol=protocol):
                    origin.change(feed)
                    self.command("ping", *what, "--broker", broker.url, "--protocol", protocol)
                    self.assert_told(receiver, feed)


class DatabaseTests(CommandTestCase):
    """``export`` and ``import``, on the database of a broker."""

    def subscribed_broker(self, feed: str, *receivers: Receiver, configuration: str = "") -> Broker:
        broker = self.own_broker(configuration)
        broker.start()
        for receiver in receivers:
            self.subscribed(broker, receiver, feed)
        return broker

    def test_moving_to_another_broker(self) -> None:
        origin = self.origin()
        feed = origin.feed()
        receivers = [self.served(make()) for make in RECEIVERS]
        first, second = self.subscribed_broker(feed, *receivers), self.own_broker()
        exported = self.command("export", "--data", first.data)
        said = self.command("import", "--data", second.data, "-", stdin=exported)
        self.assertIn("topics: 1, subscriptions: 3", said)
        first.stop()
        second.start()
        self.assertIn('success="true"', second.ping(feed).text)  # which has not changed
        origin.change(feed)
        second.ping(feed)
        for receiver in receivers:
            self.assert_told(receiver, feed)
            self.assertEqual(receiver.called, 2)  # with the test call of the first broker

    def test_coming_from_rsscloud_server(self) -> None:
        origin = self.origin()
        feed = origin.feed()
        receivers = [self.served(make()) for make in RECEIVERS]
        late = self.served(HttpPostReceiver())
        broker = self.subscribed_broker(feed)
        file = self.directory() / "data.json"
        subscriptions = [
            {
                "url": f"http://127.0.0.1:{receiver.port}{receiver.path}",
                "protocol": receiver.protocol,
                "notifyProcedure": receiver.procedure or False,
                "ctUpdates": 3,
                "ctErrors": 1,
                "ctConsecutiveErrors": 0,
                "whenCreated": "2025-01-01T00:00:00.000Z",
                "whenLastUpdate": "2025-01-01T00:00:00.000Z",
                "whenLastError": "1970-01-01T00:00:00.000Z",
                "whenExpires": f"{year}-01-01T00:00:00.000Z",
            }
            for receiver, year in [*((one, 2999) for one in receivers), (late, 2025)]
        ]
        data = {"version": 2, "feeds": {feed: {"resource": {}, "subscriptions": subscriptions}}}
        file.write_text(json.dumps(data), encoding="utf-8")
        said = self.command("import", "--data", broker.data, file)
        self.assertIn("topics: 1, subscriptions: 3", said)
        self.assertIn("had expired: 1", said)
        broker.ping(feed)
        for receiver in receivers:
            self.assert_told(receiver, feed)
