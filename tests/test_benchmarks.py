"""Tests that every row of the benchmarks runs with tiny numbers, and that its counts are right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from subprocess import DEVNULL

from sqlalchemy import text
from twisted.trial.unittest import SynchronousTestCase

from benchmarks.__main__ import ROWS
from benchmarks.broker import Broker
from benchmarks.notify import Audience, check_counts, expect
from benchmarks.pings import check
from benchmarks.processes import Deadline, Failed, Helper, Sample
from benchmarks.report import HEADINGS, MARKER, Line, Target, as_page, as_text, machine
from benchmarks.rows import Settings
from benchmarks.size_data import Sizes, fill
from benchmarks.sizes import Filled, costs, waits_for
from tests import nursery
from tests.processes import new_directory

TOP = Path(__file__).parent.parent

#: Seconds until a row of a benchmark gives up, and the test fails.
TIMEOUT = 60.0

#: How many lines each row makes, if more than one.
LINES = {
    **dict.fromkeys(("notify-large", "notify-websub", "notify-slow-host", "notify-names"), 2),
    **dict.fromkeys(("couriers-model", "cloud-pings", "not-modified", "one-topic", "rivers"), 2),
    **dict.fromkeys(("change-list", "feed", "black-holes", "black-hole-names", "planning"), 2),
    "events-documents": 3,
    "append": 2,
    "follow": 2,
}

#: Rows that are compared with nothing.
WITHOUT_FLOOR = {"takeover", "planning", "append", "follow", "start"}


def _start(
    arguments: Sequence[str], *, env: Mapping[str, str], cwd: Path, stdin: int
) -> nursery.Child:
    """Start a broker in less time."""
    assert stdin == DEVNULL
    return nursery.start(arguments, env=env, cwd=cwd)


class RowTests(SynchronousTestCase):
    """Each row runs with its floor, with real processes and its own checks of counts.

    Their tests, such as ``test_notify``, are added below.
    """

    def setUp(self) -> None:
        self.directory = new_directory(self)
        self.patch(Broker, "start", staticmethod(_start))

    def run_row(self, name: str) -> None:
        settings = Settings(self.directory, count=20, rounds=1, seconds=TIMEOUT)
        made = ROWS[name](settings)
        self.assertEqual(len(made), LINES.get(name, 1))
        for line in made:
            self.assertGreater(line.ours[0].value, 0)
            self.assertGreater(line.peak, 0)
        self.assertEqual(bool(made[-1].floor), name not in WITHOUT_FLOOR)


def _test_of(name: str) -> Callable[[RowTests], None]:
    return lambda self: self.run_row(name)


for each in ROWS:
    setattr(RowTests, f"test_{each.replace('-', '_')}", _test_of(each))


class CountTests(SynchronousTestCase):
    """Rows fail if the counts are wrong."""

    def test_missing_notifications(self) -> None:
        with Helper("receiver", Deadline.within(TIMEOUT)) as receiver:
            audience = Audience.of(receiver, 0, 3)
            expect(receiver, audience)
            error = self.assertRaises(Failed, check_counts, receiver, audience)
        self.assertIn("{'missing': 3}", str(error))

    def test_pings_that_were_not_thanked_for(self) -> None:
        check({"statuses": {"200": 2}, "as_expected": 2}, 2)
        for statuses, thanked in ({"200": 1, "503": 1}, 2), ({"200": 2}, 1):
            answer = {"statuses": statuses, "as_expected": thanked}
            self.assertRaises(Failed, check, answer, 2)

    def test_helper_that_does_not_answer(self) -> None:
        with Helper("receiver", Deadline.within(TIMEOUT)) as receiver:
            receiver._deadline = Deadline.within(0)
            error = self.assertRaises(Failed, receiver.ask, "counts")
        self.assertIn("--deadline", str(error))

    def test_helper_that_ends(self) -> None:
        with Helper("receiver", Deadline.within(TIMEOUT)) as receiver:
            receiver.kill()
            self.assertRaises(Failed, receiver.ask, "counts")


class ReportTests(SynchronousTestCase):
    line = Line(
        "work",
        "things/s",
        ours=[Sample(50, 3), Sample(90, 1), Sample(80, 2)],
        peak=99.6,
        floor=[Sample(1000, 0.5)],
        targets=[Target.at_least(0.08, 0.7), Target.at_most(99.6, 120, "MB")],
    )

    def test_cells(self) -> None:
        self.assertEqual(
            dict(zip(HEADINGS, self.line.cells(), strict=True)),
            {
                "work": "work",
                "unit": "things/s",
                "floor": "1,000",
                "ours": "80",
                "ratio": "0.08",
                "CPU, floor": "0.50 s",
                "CPU, ours": "2.00 s",
                "peak MB": "100",
                "target": ">= 0.7 x, <= 120 MB",
                "reached": "no: >= 0.7 x",
            },
        )

    def test_text(self) -> None:
        first, second = as_text([self.line]).splitlines()
        self.assertEqual(first.index("floor"), second.index("1,000"))

    def test_page(self) -> None:
        page = as_page([self.line], "A machine.")
        self.assertIn(f"{MARKER}\n\nA machine.\n", page)
        self.assertIn("   * - work\n     - unit\n", page)

    def test_machine(self) -> None:
        self.assertRegex(machine(Path()), r", \d+ cores, \d+ GB; .*; data on [\w?]+; CPython 3\.")


class PageTests(SynchronousTestCase):
    def test_describes_every_row(self) -> None:
        text = (TOP / "docs" / "benchmarks.rst").read_text(encoding="utf-8")
        for name in ROWS:
            self.assertIn(f"``{name}``", text)
        self.assertIn(f":start-after: {MARKER}", text)
        results = (TOP / "docs" / "benchmarks-results.rst").read_text(encoding="utf-8")
        self.assertIn(MARKER, results)

    def test_figures_of_the_readme(self) -> None:
        """They are those of the page, with one digit."""
        text = " ".join((TOP / "README.rst").read_text(encoding="utf-8").split())
        results = (TOP / "docs" / "benchmarks-results.rst").read_text(encoding="utf-8")
        for row, unit in (
            ("notify 10,000 callbacks, each on its own address", "notifications"),
            ("weblogUpdates.ping by XML-RPC, 50 connections", "pings"),
        ):
            cells = results.partition(f"* - {row}\n")[2].split("     - ")
            measured = int(cells[3].replace(",", ""))
            self.assertIn(f"some {float(f'{measured:.0e}'):,.0f} {unit} a second", text)


class SizesTests(SynchronousTestCase):
    """The benchmark of large databases works on small ones."""

    def test_costs_and_waits(self) -> None:
        directory = new_directory(self)
        filled = []
        for name in ("large", "small"):
            url, sizes = f"sqlite:///{directory}/{name}.sqlite", Sizes.at(0.001)
            fill(url, sizes)
            filled.append(Filled(url, sizes))
            self.addCleanup(filled[-1].dispose)
        lines = list(costs(filled[0], filled[1], 1))
        self.assertEqual(len(lines), 7)
        self.assertTrue(all(line.ours[0].value > 0 < line.floor[0].value for line in lines))
        deadline = Deadline.within(TIMEOUT)
        moved = waits_for(filled[0], "move", deadline)
        swept = waits_for(filled[0], "sweep", deadline)
        self.assertEqual((moved["done"], swept["done"]), (True, True))
        with filled[0].reading() as conn:
            left = conn.execute(text("SELECT count(*) FROM subscription")).scalar_one()
        sizes = filled[0].sizes
        self.assertLessEqual(left, sizes.subscriptions + 2 - sizes.expired)
        self.assertGreaterEqual(swept["longest"], swept["most"])
