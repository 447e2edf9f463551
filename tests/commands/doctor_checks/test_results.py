"""How results are written."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.commands.doctor_checks.results import (
    Result,
    as_json,
    as_text,
    has_failed,
    of_feed,
)
from rsscloud_broker.interfaces import FeedReport, Finding
from rsscloud_broker.interfaces.views import Kind

GOOD, BAD = Result("ok", "disk", "1 MB is free"), Result("fail", "data", "a\nb", "chmod")


class ResultsTests(SynchronousTestCase):
    def test_text(self) -> None:
        """Each result is one line, whatever strangers have written."""
        text = as_text([GOOD, BAD])
        self.assertEqual(text, "ok    disk: 1 MB is free\nfail  data: a b; chmod")

    def test_json(self) -> None:
        self.assertEqual(
            as_json([GOOD, BAD]),
            {
                "ok": False,
                "results": [
                    {"level": "ok", "name": "disk", "found": "1 MB is free", "advice": ""},
                    {"level": "fail", "name": "data", "found": "a b", "advice": "chmod"},
                ],
            },
        )

    def test_failures(self) -> None:
        self.assertTrue(has_failed([GOOD, BAD]))
        self.assertFalse(has_failed([GOOD, Result("warn", "clock", "late")]))

    def test_of_a_feed(self) -> None:
        kinds: tuple[Kind, ...] = ("good", "wrong", "missing")
        report = FeedReport("u", tuple(Finding(kind, kind, "t") for kind in kinds))
        levels = [(result.level, result.name) for result in of_feed(report)]
        self.assertEqual(levels, [("fail", "wrong"), ("warn", "missing"), ("ok", "good")])
