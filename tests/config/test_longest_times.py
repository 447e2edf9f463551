"""Times in options that the database could not subtract from the present."""

from __future__ import annotations

from math import inf
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.apps.events.options import EventsOptions
from rsscloud_broker.apps.river.options import RiverOptions
from rsscloud_broker.config import ConfigError, build
from rsscloud_broker.front_doors.ping_sink import PingSinkOptions
from rsscloud_broker.sinks.archive import ArchiveOptions


class LongestTimesTests(SynchronousTestCase):
    def test_are_refused(self) -> None:
        """Each of these was accepted, and failed again and again when the broker used it."""
        topic = "https://blog.example/"
        too_long: list[tuple[Any, dict[str, Any], str]] = [
            (EventsOptions, {"days": inf}, "days"),
            (EventsOptions, {"pings_days": 1e12}, "pings_days"),
            (EventsOptions, {"keep": [{"topic": topic, "days": inf}]}, "days"),
            (RiverOptions, {"days": 10**9}, "days"),
            (ArchiveOptions, {"keep_hours": 10**10}, "keep_hours"),
            (PingSinkOptions, {"repeat_window": 10**15}, "repeat_window"),
        ]
        for options, table, key in too_long:
            with self.assertRaisesRegex(ConfigError, f"{key}.*must be <= "):
                build(options, table, "broker.toml")
