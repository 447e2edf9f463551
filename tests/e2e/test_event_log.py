"""The event log of a broker in a process of its own, watched by a thousand browsers."""

from __future__ import annotations

import re
from urllib.parse import urlencode

from tests.e2e.fixture import EndToEndTestCase, request, until
from tests.e2e.servers import HttpPostReceiver
from tests.e2e.watchers import Watchers

WATCHERS = 1000
SUBSCRIPTIONS = 100

_CONFIGURATION = f"""
[http]
max_connections = {3 * WATCHERS}
max_connections_per_address = {10 * WATCHERS}
"""


class EventLogTests(EndToEndTestCase):
    def test_a_thousand_watch_while_subscribers_are_notified(self) -> None:
        broker = self.own_broker(_CONFIGURATION)
        broker.start()
        origin, receiver = self.origin(), self.served(HttpPostReceiver())
        topic = origin.feed()
        for number in range(SUBSCRIPTIONS):
            answer = broker.subscribe(receiver, topic, path=f"/notify/{number}")
            self.assertIn('success="true"', answer.text)
        receiver.heard.clear()
        watchers = Watchers(broker.port)
        self.addCleanup(watchers.close)
        of_topic = f"?{urlencode({'topic': topic})}"
        for number in range(WATCHERS):
            watchers.open(f"/log/events{of_topic if number % 2 else ''}")
        until(lambda: watchers.have(": the event log"), "all to be answered")

        origin.change(topic)
        broker.ping(topic)
        until(lambda: len(receiver.heard) >= SUBSCRIPTIONS, "all subscribers to be notified")
        for words in ("A ping for ", "it has changed", " were notified: "):
            until(lambda words=words: watchers.have(words), f"all to read {words!r}")  # type: ignore[misc] # bound now
        self.assertEqual(request(f"{broker.url}/log").status, 200)

        # A page that was loaded before shows the same, and one more client finds no room.
        page = request(f"{broker.url}/log{of_topic}").text
        counts = re.search(r" were notified: (\d+) accepted(?:, (\d+) waits?)?;", page)
        assert counts is not None, page
        self.assertEqual(sum(map(int, filter(None, counts.groups()))), SUBSCRIPTIONS)
        self.assertEqual(request(f"{broker.url}/log/events").status, 503)
