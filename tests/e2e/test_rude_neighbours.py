"""Targets of the relay and followed brokers that answer garbage, never, slowly or endlessly."""

from __future__ import annotations

import gzip
from functools import partial
from typing import Final

from tests.e2e.fixture import Broker, EndToEndTestCase, request, until
from tests.e2e.rude import Page, RudeOrigin
from tests.e2e.test_relay import OldPingServer, ping

#: A gigabyte, in one answer of a megabyte.
BOMB: Final = gzip.compress(bytes(1 << 24), 9) * 64

#: The pages of a server that answers as none should, by what is wrong with them.
PAGES: Final = {
    "/garbage": Page(200, bytes(range(256)) * 20),
    "/bomb": Page(200, BOMB, {"content-encoding": "gzip"}),
    "/gigabytes": Page(200, b"<weblogUpdates>" * 1000, endless=True),
    "/slow": Page(200, b" ", endless=True, pause=0.5),
    "/never": Page(200, endless=True, pause=120.0),
}

#: How many megabytes the broker may ever need.  It needs 240 to 250 here; what it reads of a
#: neighbour without an end would take thousands.
MOST_MEGABYTES: Final = 300.0


def peak_megabytes(broker: Broker) -> float:
    """The largest resident memory of a broker since its start."""
    with open(f"/proc/{broker.pid}/status", encoding="ascii") as status:
        (line,) = (line for line in status if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024 / 1e6


class RudeNeighbourTests(EndToEndTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.rude = self.served(RudeOrigin())
        self.rude.pages = dict(PAGES)

    def is_logged(self, broker: Broker, said: str) -> bool:
        return said in broker.log

    def test_targets(self) -> None:
        polite = self.served(OldPingServer())
        targets = [f'{{ url = "http://127.0.0.1:{polite.port}/RPC2", rate = 100.0 }}']
        targets += [f'{{ url = "{self.rude.url(path)}", at_once = 5 }}' for path in PAGES]
        broker = self.own_broker(f"[sinks.relay]\ntargets = [{', '.join(targets)}]\n")
        broker.start()
        for number in range(5):
            ping(broker, f"blog{number}")
        until(lambda: len(polite.heard) == 5, "the polite target to be notified")
        for path in PAGES:
            url = self.rude.url(path)
            stopped = f"Stopped passing pings on to {url} after 5 failures in a row"
            until(partial(self.is_logged, broker, stopped), f"a line about {path}")
            self.assertEqual(broker.log.count(url), 1, "one line is enough")
        page = request(f"{broker.url}/log?kind=relay&outcome=failed").text
        self.assertIn("could not pass a ping for", page)
        self.assertLess(peak_megabytes(broker), MOST_MEGABYTES)

    def test_followed_lists_and_feeds(self) -> None:
        lists = ", ".join(f'{{ url = "{self.rude.url(path)}", every = 1 }}' for path in PAGES)
        feeds = ", ".join(f'{{ url = "{self.rude.url(path)}", every = 1 }}' for path in PAGES)
        broker = self.own_broker(f"[front_doors.follows]\nsources = [{lists}]\nfeeds = [{feeds}]\n")
        broker.start()
        for path in PAGES:
            url = self.rude.url(path)
            for said in (
                f"{url} cannot be followed: ",
                f"{url} cannot be followed as it should be: ",
            ):
                until(partial(self.is_logged, broker, said), f"a line about {path}")
                self.assertEqual(broker.log.count(said), 1, "one line is enough")
        self.assertEqual(request(f"{broker.url}/").status, 200)
        self.assertLess(peak_megabytes(broker), MOST_MEGABYTES)
