"""Which tests belong to which run."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.runs import LONG, LONGER, RUNS, TESTS, quick_modules, runs


class RunsTests(SynchronousTestCase):
    def test_each_test_belongs_to_one_run(self) -> None:
        """No module is left out, and each name in the lists still leads to tests."""
        found = runs(["tests"], quick_modules())
        tests = [test for run in RUNS for test in found[run]]
        self.assertEqual(len(set(tests)), len(tests))
        modules = {
            ".".join(path.relative_to(TESTS.parent).with_suffix("").parts)
            for path in TESTS.rglob("test_*.py")
        }
        without = {
            name
            for name in modules | LONGER | LONG
            if name not in tests and not any(f"{name}." in test for test in tests)
        }
        self.assertEqual(without, set(), "no test belongs to these")

    def test_longer_usual_and_quick(self) -> None:
        found = runs(
            ["tests.test_benchmarks", "tests.test_slowest", "tests.util.test_urls"],
            ["tests.util.test_urls"],
        )
        self.assertEqual(
            [{name.split(".")[1] for name in found[run]} for run in ("longer", "usual", "quick")],
            [{"test_benchmarks"}, {"test_slowest"}, {"util"}],
        )

    def test_slowest_first(self) -> None:
        names = ["tests.test_benchmarks", "tests.e2e.test_kill", "tests.e2e.test_cluster_faults"]
        found = dict.fromkeys(name.rsplit(".", 2)[0] for name in runs(names, [])["longer"])
        self.assertEqual(list(found), names[::-1])

    def test_units_of_all_rooms(self) -> None:
        rooms = {name.split(".")[1] for name in quick_modules()}
        self.assertLessEqual(
            {"client", "core", "delivery", "front_doors", "http", "outbound", "policy", "sinks"}
            | {"storage", "util", "web", "wire"},
            rooms,
        )
        self.assertNotIn("e2e", rooms)

    def test_what_is_not_quick(self) -> None:
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

    def test_module_that_cannot_be_imported(self) -> None:
        """Trial is given its name, and says why."""
        found = runs(["tests.test_nowhere"], [])
        self.assertEqual(found["usual"], ["tests.test_nowhere"])
