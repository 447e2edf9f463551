"""The lists of slow and of failed tests at the end of a run, of real runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

from twisted.trial.unittest import SynchronousTestCase

from tests import slowest
from tests.processes import BIN, TIMEOUT, new_directory

TOP = Path(slowest.__file__).parent.parent


class RunTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.times = Path(self.mktemp()).absolute()
        self.place = new_directory(self)
        code = """
            from pathlib import Path
            from time import sleep
            from twisted.trial.unittest import SynchronousTestCase as TestCase
            from tests.slowest import record

            record(Path({times!r}))

            class SomeTests(TestCase):
                def test_fast(self):
                    pass

                def test_slow(self):
                    sleep(0.05)

                def test_wrong(self):
                    self.addCleanup(self.fail, "a long log\\nof many lines")
                    self.fail("it is wrong")

                def test_worse(self):
                    self.fail("it is\\n worse")
        """
        (self.place / "some.py").write_text(dedent(code).format(times=str(self.times)))

    def test_every_test_of_every_process(self) -> None:
        env = os.environ | {"PYTHONPATH": f"{self.place}:{TOP}", "TEST_TIMES": ""}
        done = subprocess.run(
            [BIN / "trial", "--jobs", "2", "some"],
            check=False,
            cwd=self.place,
            env=env,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
        self.assertEqual(done.returncode, 1, "one of them fails")
        tests = {test.name: test for test in slowest.timed(self.times)}
        self.assertEqual(
            set(tests),
            {f"some.SomeTests.test_{name}" for name in ("fast", "slow", "worse", "wrong")},
        )
        slow = tests["some.SomeTests.test_slow"]
        self.assertGreaterEqual(slow.seconds, 0.05)
        self.assertLess(slow.busy, slow.seconds)
        self.assertEqual(
            sorted(slowest.failures(done.stdout).splitlines()),
            [
                "some.SomeTests.test_worse failed: twisted.trial.unittest.FailTest: it is worse",
                "some.SomeTests.test_wrong failed: twisted.trial.unittest.FailTest: "
                "a long log of many lines",
                "some.SomeTests.test_wrong failed: twisted.trial.unittest.FailTest: it is wrong",
            ],
        )

    def test_list(self) -> None:
        self.times.mkdir()
        lines = [f"{number}.5 {number}.25 test{number}\n" for number in range(30)]
        (self.times / "1").write_text("".join(lines) + "100.0 90.0 \n")
        (self.times / "2").write_text("0.0 0.0 other\n2.0 1.5 \n")
        code = "from tests.slowest import main; main()"
        output = self.times / "1"  # in which no test failed
        done = subprocess.run(
            [sys.executable, "-c", code, self.times.absolute(), output],
            check=True,
            cwd=TOP,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
        first, *listed = done.stdout.splitlines()
        self.assertEqual(first, "The slowest 20 of 31 tests, which took 102 s (91 s busy) in all:")
        self.assertEqual(len(listed), 20)
        self.assertEqual(
            listed[:2], [" 70.5 s ( 60.8 s busy)  test29", "  2.0 s (  1.5 s busy)  other"]
        )
