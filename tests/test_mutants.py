"""``make mutants`` finds out what no test notices; here with a package of a few lines."""

from __future__ import annotations

import sys
from pathlib import Path
from signal import SIGTERM

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from tests import mutants
from tests.e2e.fixture import until
from tests.mutants import TOP, Mutation, main
from tests.mutations import MUTATIONS
from tests.processes import Process

ADDS = Mutation("sums.py", "a + b", "a - b", "test_sums", "Sums are wrong.")
HANGS = Mutation(
    "sums.py", "return a + b", "__import__('time').sleep(10**6)", "test_sums", "It hangs."
)
UNNOTICED = Mutation("sums.py", "a * b", "a / b", "test_sums", "Products are wrong.")

#: Runs a mutation that hangs.
HANGING = """
import sys
from pathlib import Path
from tests import mutants, test_mutants
mutants.clean_up_on_sigterm()
mutants.main([test_mutants.HANGS], [], Path(sys.argv[1]))
"""

SUMS = "def add(a, b):\n    return a + b\ndef times(a, b):\n    return a * b\n"

TEST = """
from unittest import TestCase
from rsscloud_broker.sums import add

class SumTests(TestCase):
    def test_add(self):
        self.assertEqual(add(2, 3), {sum})
"""


class TableTests(SynchronousTestCase):
    def test_every_text_is_found_once(self) -> None:
        self.assertEqual([problem for one in MUTATIONS if (problem := one.problem(TOP))], [])

    def test_every_mutation_is_python_and_changes_something(self) -> None:
        for one in MUTATIONS:
            text = (TOP / "rsscloud_broker" / one.file).read_text(encoding="utf-8")
            changed = text.replace(one.text, one.replacement)
            self.assertNotEqual(changed, text, str(one))
            compile(changed, one.file, "exec")

    def test_every_test_is_there(self) -> None:
        for one in MUTATIONS:
            for name in one.tests.split():
                path = TOP / "tests" / f"{name.replace('.', '/')}.py"
                self.assertTrue(path.is_file(), f"{one}: there is no tests.{name}")

    def test_no_mutation_is_there_twice(self) -> None:
        self.assertEqual(
            len({(one.file, one.replacement, one.text) for one in MUTATIONS}), len(MUTATIONS)
        )


class MainTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.top = Path(self.mktemp()).absolute()
        for name in ("rsscloud_broker", "tests"):
            (self.top / name).mkdir(parents=True)
            (self.top / name / "__init__.py").touch()
        (self.top / "rsscloud_broker" / "sums.py").write_text(SUMS)
        self.write_test(5)
        self.said: list[str] = []
        self.patch(mutants, "_say", self.said.append)

    def write_test(self, right: int) -> None:
        (self.top / "tests" / "test_sums.py").write_text(TEST.format(sum=right))

    def test_killed(self) -> None:
        """Of some, or of those that have a word."""
        for mutations, words in (([ADDS], []), ([ADDS, UNNOTICED], ["a + b"])):
            self.said.clear()
            self.assertEqual(main(mutations, words, self.top), 0)
            self.assertEqual(self.said, ["killed    sums.py: a + b", "0 of 1 mutations survived."])
        self.assertEqual((self.top / "rsscloud_broker" / "sums.py").read_text(), SUMS)

    def test_a_mutation_that_hangs_is_noticed(self) -> None:
        self.patch(mutants, "failing", lambda *_: [])  # that takes a while on a busy machine
        self.patch(mutants, "LIMIT", 1.0)
        self.assertEqual(main([HANGS], [], self.top), 0)

    def test_survivor(self) -> None:
        self.assertEqual(main([ADDS, UNNOTICED], [], self.top), 1)
        self.assertIn("1 of 2 mutations survived.", self.said)
        self.assertIn("Products are wrong.", self.said[-1])

    def test_a_text_that_is_not_there_once(self) -> None:
        for text, times in (("nothing", 0), ("return", 2)):
            self.assertEqual(main([evolve(ADDS, text=text)], [], self.top), 2)
            self.assertIn(f"the text is there {times} times and must be there once", self.said[-1])
        self.assertEqual(main([evolve(ADDS, file="no.py")], [], self.top), 2)
        self.assertIn("there is no such file", self.said[-1])

    def test_tests_that_fail_anyway(self) -> None:
        self.write_test(6)
        self.assertEqual(main([ADDS], [], self.top), 2)
        self.assertEqual(self.said, ["tests.test_sums fails without any mutation"])

    def test_sigterm_leaves_nothing_behind(self) -> None:
        copies = self.top / "copies"
        copies.mkdir()
        command = [sys.executable, "-c", HANGING, str(self.top)]
        process = Process(self, command, env={"TMPDIR": str(copies)}, cwd=TOP)

        def hangs() -> bool:
            found = copies.glob("mutant-*/rsscloud_broker/sums.py")
            return any("sleep" in module.read_text() for module in found)

        until(hangs, "the mutation")
        process.signal(SIGTERM)
        self.assertEqual(process.wait(), 128 + SIGTERM)
        self.assertEqual(list(copies.iterdir()), [])
