"""What the command ``nodes`` shows of a node."""

from __future__ import annotations

import json

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.model.administration import NodeState
from rsscloud_broker.wire.node_states import to_json, to_text

ONE = NodeState(
    "one 4711",
    here=False,
    notifications=12,
    slices=0,
    version="1.2",
    started_at=0.0,
    silent_for=0.44,
    claims={"fan-outs": 2, "checks": 0},
    jobs=("archive", "relay"),
    pings=1234,
    notified=88_000,
    ping_rate=2.04,
    notification_rate=340.0,
)


class NodeStatesTests(SynchronousTestCase):
    def test_text(self) -> None:
        expected = [
            "one 4711",
            "  since         1970-01-01T00:00:00Z, version 1.2",
            "  heartbeat     0.4 seconds ago",
            "  clock         right",
            "  pings         2.0 a second, 1,234 since its start",
            "  notifications 340.0 a second, 88,000 since its start",
            "  works on      2 fan-outs, 12 notifications",
            "  jobs          archive, relay",
        ]
        self.assertEqual(to_text([ONE]).splitlines(), expected)

    def test_dead_node(self) -> None:
        self.assertIn("9 seconds ago: it is dead", to_text([evolve(ONE, silent_for=9.0)]))

    def test_clock(self) -> None:
        for ahead, said in ((600.4, "600 seconds ahead of that"), (-9.0, "9 seconds behind that")):
            self.assertIn(f"clock         {said}", to_text([evolve(ONE, clock_ahead=ahead)]))
        self.assertIn("that of the database", to_text([evolve(ONE, silent_for=None)]))

    def test_node_without_work(self) -> None:
        text = to_text([evolve(ONE, claims={}, notifications=0, jobs=())])
        self.assertIn("works on      nothing", text)
        self.assertIn("jobs          none", text)

    def test_names_are_clean(self) -> None:
        self.assertNotIn("\x1b", to_text([evolve(ONE, name="a\x1b[1m b")]))

    def test_json(self) -> None:
        (found,) = json.loads(json.dumps(to_json([ONE, ONE])))[:1]
        self.assertEqual(found["started_at"], "1970-01-01T00:00:00Z")
        expected = {"fan-outs": 2, "checks": 0, "slices": 0, "notifications": 12}
        self.assertEqual(found["claims"], expected)
        self.assertEqual((found["notifications"], found["notification_rate"]), (88_000, 340.0))
