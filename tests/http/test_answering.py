"""What the broker logs while the store is unavailable."""

from __future__ import annotations

from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.errors import Unavailable
from rsscloud_broker.http import answering
from tests.front_doors.exchange import call
from tests.front_doors.fixture import House

PING = call("weblogUpdates.ping", "A", "http://site.example/").encode()


class UnavailableTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.patch(answering, "_unavailable_log", answering._UnavailableLog())

    def test_one_line_for_many_requests(self) -> None:
        house = House(self)
        self.successResultOf(house.store.stopService())
        with capturedLogs() as logs:
            for _ in range(50):
                answer = house.ask("POST", "/RPC2", PING, {"Content-Type": "text/xml"})
                self.assertEqual((answer.status, answer.headers["retry-after"]), (503, "30"))
        lines = [formatEvent(event) for event in logs]
        self.assertEqual(sum(line.startswith("Unavailable: ") for line in lines), 1, lines)

    def test_each_minute(self) -> None:
        unavailable_log = answering._UnavailableLog()
        with capturedLogs() as logs:
            for now in (1000.0, 1001.0, 1059.9, 1060.1, 2000.0):
                unavailable_log.add(Unavailable("no disk"), now)
        ends = [formatEvent(event).removeprefix("Unavailable: no disk") for event in logs]
        self.assertEqual(ends, ["", " (2 more requests since the last line)", ""])
