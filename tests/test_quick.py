"""Which tests are quick."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.quick import quick_modules


class QuickTests(SynchronousTestCase):
    def test_units_of_all_rooms(self) -> None:
        rooms = {name.split(".")[1] for name in quick_modules()}
        self.assertLessEqual(
            {
                "client",
                "core",
                "delivery",
                "front_doors",
                "http",
                "outbound",
                "policy",
                "sinks",
                "storage",
            }
            | {"util", "web", "wire"},
            rooms,
        )
        self.assertNotIn("e2e", rooms)

    def test_what_is_left_out(self) -> None:
        tests = Path(self.mktemp()) / "tests"
        for name, text in {
            "test_unit": "import os\n",
            "test_program": "from subprocess import run\n",
            "test_broker": "from tests.processes import Process\n",
            "test_alike": "import subprocesses\n",
            "e2e/test_all": "",
            "storage/test_store": "",
            "storage/test_pings": "",
            "helper": "",
        }.items():
            path = (tests / name).with_suffix(".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.assertEqual(
            quick_modules(tests),
            ["tests.storage.test_pings", "tests.test_alike", "tests.test_unit"],
        )
