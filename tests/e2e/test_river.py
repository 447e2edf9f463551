"""The river of a running broker, with foreign hubs and clouds."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

from tests import apps
from tests.e2e.fixture import (
    WITH_COURIERS,
    Broker,
    EndToEndTestCase,
    post_form,
    request,
    until,
)
from tests.processes import Process


class Foreign:
    """A foreign site in a process of its own; see ``tests/apps/river/foreign.py``."""

    def __init__(self, case: EndToEndTestCase) -> None:
        program = Path(apps.__file__).parent / "river" / "foreign.py"
        self.process = Process(case, [sys.executable, str(program)])
        self.url = f"http://127.0.0.1:{self.process.wait_for('[0-9]+')[0]}"

    def post(self, name: str, title: str) -> None:
        post_form(f"{self.url}/post/{name}", {"title": title})

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads(request(f"{self.url}/told").body)
        return state


class RiverTestCase(EndToEndTestCase):
    """A broker with an account, whose token a program has."""

    def reader(self) -> Broker:
        broker = self.own_broker(WITH_COURIERS)
        broker.add_account("dave")
        self.token = {"Authorization": f"Bearer {broker.add_token('dave', 'river')}"}
        broker.start()
        return broker

    def river(self, broker: Broker) -> dict[str, Any]:
        answer = request(f"{broker.url}/river.json", headers=self.token)
        self.assertEqual(answer.status, 200, answer.text)
        river: dict[str, Any] = json.loads(answer.body)
        return river

    def follow(self, broker: Broker, *urls: str) -> None:
        outlines = "".join(f"<outline xmlUrl={quoteattr(url)}/>" for url in urls)
        opml = f'<opml version="2.0"><head/><body>{outlines}</body></opml>'.encode()
        answer = request(f"{broker.url}/river/opml", "POST", opml, self.token)
        self.assertEqual(json.loads(answer.body), {"added": len(urls), "failed": []})

    def feed(self, broker: Broker, url: str) -> dict[str, Any]:
        found: list[dict[str, Any]] = self.river(broker)["_river"]["feeds"]
        return next((feed for feed in found if feed["url"] == url), {})

    def wait_for_how(self, broker: Broker, url: str, how: str) -> None:
        until(lambda: self.feed(broker, url).get("how") == how, f"{url} to be {how}")

    def arrived(self, broker: Broker) -> dict[str, str]:
        """The titles of the items, with how they arrived."""
        items = self.river(broker)["items"]
        return {item["title"]: item["_river"]["how"] for item in items}


class ForeignTests(RiverTestCase):
    def test_foreign_hubs_and_clouds(self) -> None:
        foreign = Foreign(self)
        pushing = {"hub": "websub", "moved": "websub", "cloud": "rsscloud", "first": "rsscloud"}
        names = (*pushing, "silent", "forging", "lying")
        urls = {name: f"{foreign.url}/{name}.xml" for name in names}
        for name in (*names, "plain"):
            foreign.post(name, f"{name} 1")
        broker = self.reader()
        self.follow(broker, f"{foreign.url}/blog/", *urls.values())
        for name, how in {**pushing, "silent": "websub"}.items():
            self.wait_for_how(broker, urls[name], how)
        until(lambda: len(self.arrived(broker)) == 8, "the first items")
        self.assertEqual(self.feed(broker, f"{foreign.url}/plain.xml")["how"], "polled")

        for name in names:
            foreign.post(name, f"{name} 2")
        wanted = {f"{name} 2" for name in pushing}
        until(lambda: wanted <= self.arrived(broker).keys(), "what was pushed")
        arrived = self.arrived(broker)
        self.assertEqual({arrived[title] for title in wanted}, {"pushed"})
        told = {topic: status for topic, _, status in foreign.state()["told"]}
        self.assertEqual(told[urls["first"]], 200, "the cloud of 2003 wants true")
        self.assertFalse({"silent 2", "forging 2", "lying 2"} & arrived.keys())
        self.assertIn("1 of 1 new item was pushed", self.feed(broker, urls["hub"])["status"])
        self.assertIn("wrong signature", broker.log)

        # Somebody else makes the broker read it, as a rare poll would, twice.
        for number in (3, 4):
            foreign.post("silent", f"silent {number}")
            broker.ping(urls["silent"])
            title = f"silent {number}"
            until(lambda title=title: title in self.arrived(broker), "what was missed")  # type: ignore[misc]
        self.wait_for_how(broker, urls["silent"], "polled")
        self.assertIn("did not tell of new items", self.feed(broker, urls["silent"])["status"])
