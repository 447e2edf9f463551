"""The status of a topic as JSON and as text."""

from __future__ import annotations

import json

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.model import Topic, TopicStatus, Validators
from rsscloud_broker.wire.topic_status import to_json, to_text

URL = "http://feeds.example/rss.xml"
NOON = 1_790_683_200.0
VALIDATORS = Validators('"abc"', "Tue, 29 Sep 2026 12:00:00 GMT")
ACCOUNT = TopicStatus(
    Topic(URL, b"\x01" * 32, 512, NOON, NOON - 60, validators=VALIDATORS, subscribers=3),
    asked_at=NOON + 1,
    result="304, not modified",
    pinged_at=NOON - 3600,
    fresh_seconds=60.0,
    next_poll_at=NOON + 3600,
    poll_reason="polled every 60 minutes",
    poll_interval=3600.0,
    planned_at=NOON + 1,
    feed={
        "format": "rss 2.0",
        "title": "A feed",
        "link": "http://site.example/",
        "self_link": "",
        "hubs": ["http://hub.example/"],
        "entry_ids": ["1", "2", "3", "4"],
        "hints": {"ttl_minutes": 60, "skip_hours": [0, 1], "update_seconds": None},
        "problems": ["ttl of -5 is ignored"],
    },
    moved_from=("http://old.example/rss.xml",),
)


class StatusTests(SynchronousTestCase):
    def test_json(self) -> None:
        said = json.loads(json.dumps(to_json(ACCOUNT)))
        self.assertEqual(said["url"], URL)
        self.assertEqual(said["asked_at"], "2026-09-29T12:00:01Z")
        self.assertEqual(said["sha256"], "01" * 32)
        self.assertEqual((said["etag"], said["ended"]), ('"abc"', None))
        self.assertEqual(said["feed"]["hints"]["ttl_minutes"], 60)

    def test_text(self) -> None:
        text = to_text(ACCOUNT)
        for line in (
            f"topic         {URL}",
            "moved from    http://old.example/rss.xml",
            "last asked    2026-09-29T12:00:01Z  304, not modified",
            "next poll     2026-09-29T13:00:00Z  polled every 60 minutes",
            "entries       1, 2, 3 and 1 more",
            "hints         ttl_minutes 60, skip_hours [0, 1]",
            "problem       ttl of -5 is ignored",
        ):
            self.assertIn(line, text.splitlines())
        self.assertNotIn("failures", text)

    def test_next_to_nothing(self) -> None:
        said = json.loads(json.dumps(to_json(TopicStatus(Topic(URL)))))
        self.assertEqual((said["asked_at"], said["sha256"], said["feed"]), (None, None, {}))
        lines = to_text(TopicStatus(Topic(URL))).splitlines()
        self.assertIn("last asked    never", lines)
        self.assertIn("next poll     none: not planned", lines)

    def test_ended_and_failing(self) -> None:
        topic = evolve(ACCOUNT.topic, ended="it is gone")
        text = to_text(evolve(ACCOUNT, topic=topic, failures=3, next_poll_at=None))
        self.assertIn("ended         it is gone", text.splitlines())
        self.assertIn("failures      3 in a row", text.splitlines())
        self.assertNotIn("next poll", text)

    def test_no_feed(self) -> None:
        text = to_text(evolve(ACCOUNT, feed={"unreadable": "it is no feed\x1b[31m"}))
        self.assertIn("feed          cannot be read as one: it is no feed", text)
        self.assertNotIn("\x1b", text)
