"""Feeds that libraries take minutes for, followed by somebody, pinged by anybody.

The broker neither ends nor stands still; who follows them sees why they cannot be read; all others
go on.
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.e2e.fixture import Broker, until
from tests.e2e.servers import HttpPostReceiver
from tests.e2e.test_river import RiverTestCase
from tests.hostile_documents import FEEDS

#: Feeds that took minutes or gigabytes before there were parsers.
NAMES = (
    *("author of dots", "undeclared prefixes", "attributes of many", "base", "bases"),
    *("html: formatting in each paragraph", "html: unclosed div", "bomb of entities"),
    *("items in items", "deep json", "declared as idna", "500 times html: unclosed b"),
)


def processor_time(broker: Broker) -> float:
    """Seconds that the broker's own process has worked, without those of its children."""
    fields = Path(f"/proc/{broker.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class HostileDocumentsTests(RiverTestCase):
    def test_nobody_else_notices(self) -> None:
        broker = self.reader()
        origin, receiver = self.origin(), self.served(HttpPostReceiver())
        good = origin.feed("/good.xml")
        self.subscribed(broker, receiver, good)
        urls = []
        for number, name in enumerate(NAMES):
            origin.pages[f"/{number}.xml"] = FEEDS[name]()
            urls.append(origin.url(f"/{number}.xml"))
        pid, before = broker.pid, processor_time(broker)
        self.follow(broker, *urls)
        for url in urls:
            broker.ping(url)
            origin.change(good)
            broker.ping(good)
            self.assert_told(receiver, good)
        for url in urls:
            until(lambda url=url: self.is_settled(broker, url), f"{url} to be read")  # type: ignore[misc]
        self.assertEqual(broker.pid, pid)
        # One of these documents alone took longer than this.
        self.assertLess(processor_time(broker) - before, 8.0)
        # Others are read, from the same host too.
        late = origin.feed("/late.xml")
        self.follow(broker, late)
        until(lambda: self.is_settled(broker, late), "another feed to be read")
        self.assertNotIn("cannot be read", self.feed(broker, late)["status"])

    def is_settled(self, broker: Broker, url: str) -> bool:
        """Whether a feed was read, or the river says why not."""
        status = self.feed(broker, url).get("status", "")
        return bool(status) and "for the first time" not in status
