"""Brokers in processes of their own that pass pings on to each other, and follow each other."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from xmlrpc.client import ServerProxy

from tests.e2e.fixture import Broker, EndToEndTestCase, until

HOUR = 3600

#: Where each protocol of a relay is spoken.
PATHS = {"xml-rpc": "/RPC2", "soap": "/weblogUpdates", "get": "/pingSiteForm"}


def pings_of(broker: Broker) -> list[Mapping[str, object]]:
    """The pings in the database of a broker, in the order of their ids."""
    with closing(sqlite3.connect(f"file:{broker.data / 'broker.sqlite'}?mode=ro", uri=True)) as db:
        db.row_factory = sqlite3.Row
        return [dict(row) for row in db.execute("SELECT * FROM ping ORDER BY id")]


def names_of(broker: Broker) -> Counter[object]:
    """How often the database of a broker has each name."""
    return Counter(row["name"] for row in pings_of(broker))


def ping(broker: Broker, name: str) -> None:
    """Ping a broker, with a feed."""
    url = f"http://{name}.example/"
    with ServerProxy(f"{broker.url}/RPC2") as server:
        answer = server.weblogUpdates.extendedPing(name, url, "", f"{url}feed")
    assert isinstance(answer, dict)
    assert answer["flerror"] is False, answer


class Brokers(EndToEndTestCase):
    """Brokers know each other's URLs before they start."""

    def configure(self, broker: Broker, text: str) -> None:
        """Give a broker its public URL, and have it record every ping that it takes."""
        broker.configuration.write_text(
            f'public_url = "{broker.url}"\n'
            f"[front_doors.ping_sink]\nrepeat_window = 0\n[sinks.relay]\nwindow = 0\n{text}"
            "\n[apps.test_feed]\nenabled = false\n",  # it pings by itself
            encoding="utf-8",
        )


def relay_to(broker: Broker, protocol: str) -> str:
    """The table of a target."""
    return (
        f'[[sinks.relay.targets]]\nurl = "{broker.url}{PATHS[protocol]}"\n'
        f'protocol = "{protocol}"\nrate = 100\n'
    )


def follow(broker: Broker) -> str:
    """The table of a source."""
    return (
        f'[[front_doors.follows.sources]]\nurl = "{broker.url}/changes.xml"\nevery = 1\n'
        f'archives = "{broker.url}/"\n'
    )


class FollowedFeedsTests(Brokers):
    """Two brokers that follow each other's feeds of pings."""

    def test_each_ping_arrives_once_and_does_not_come_back(self) -> None:
        one, other = pair = self.own_broker(), self.own_broker()
        for broker, followed in (pair, pair[::-1]):
            url = f"{followed.url}/events/pings/recent"
            feeds = f'[[front_doors.follows.feeds]]\nurl = "{url}"\nevery = 2\n'
            self.configure(broker, feeds)
            broker.start()
        for broker in pair:
            until(partial(self.is_pushed, broker), "the hub to confirm")
        ping(one, "one")
        until(lambda: names_of(other)["one"], "the ping of the first")
        ping(other, "two")
        until(lambda: names_of(one)["two"], "the ping of the other")
        (passed,) = [row for row in pings_of(other) if row["name"] == "one"]
        self.assertEqual(passed["origin"], one.url)
        self.assertEqual(passed["rss_url"], "http://one.example/feed")
        ping(other, "three")  # when it has arrived, all before would have come back
        until(lambda: names_of(one)["three"], "the last ping")
        for broker in pair:
            self.assertEqual(names_of(broker), {"one": 1, "two": 1, "three": 1})

    def is_pushed(self, broker: Broker) -> bool:
        return ": subscribed for" in broker.log


def followed(broker: Broker) -> set[object]:
    """The lists that a broker has read."""
    with closing(sqlite3.connect(f"file:{broker.data / 'broker.sqlite'}?mode=ro", uri=True)) as db:
        query = "SELECT url FROM followed_list WHERE complete_until IS NOT NULL"
        return {url for (url,) in db.execute(query)}


class OutageTests(Brokers):
    """Brokers keep each other's lists, even if one was down for three hours."""

    def test_one_of_three_in_a_ring_comes_back_complete(self) -> None:
        """They follow each other and pass pings on; the third is down for three hours."""
        ring = first, second, third = [self.own_broker() for _ in range(3)]
        for number, (broker, protocol) in enumerate(zip(ring, PATHS, strict=True)):
            self.configure(
                broker,
                relay_to(ring[(number + 1) % 3], protocol)
                + follow(ring[number - 1])
                + "[sinks.change_list]\nhours = 1\n",
            )
        for broker in ring:
            broker.start()
        ping(first, "before")
        until(lambda: names_of(third)["before"], "the ping to pass two brokers")
        self.assertEqual(pings_of(third)[0]["origin"], f"{first.url} {second.url}")
        third.restart()  # so that it reads the list of the second once it is new
        second.restart()
        until(lambda: f"{second.url}/changes.xml" in followed(third), "the third to read the list")
        third.stop()
        expected = {"before": 1}
        for hours in (1, 2, 3):
            for broker in (first, second):
                broker.stop()
                broker.start(ahead=hours * HOUR - 60)
            ping(first, f"first{hours}")
            ping(second, f"second{hours}")
            expected |= {f"first{hours}": 1, f"second{hours}": 1}
            until(lambda: names_of(second)[f"first{hours}"], "the ping to pass one")  # noqa: B023 # called at once
        for ahead in (3 * HOUR + 600, 3 * HOUR + 660):
            for broker in (first, second):
                broker.stop()
                broker.start(ahead=ahead)
        third.start(ahead=3 * HOUR + 660)
        until(lambda: len(names_of(third)) == 7, "the third to complete its list")
        ping(third, "after")
        expected["after"] = 1
        until(lambda: names_of(second)["after"], "the last ping to come round")
        self.assertEqual(names_of(third), expected)
        for broker in ring:
            self.assertEqual(set(names_of(broker).values()), {1}, "none comes twice")
            self.assertEqual(names_of(broker) - Counter(expected), Counter())
