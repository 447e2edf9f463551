"""Tests the tests: breaks the package in many ways, one at a time, and expects a test to fail.

``python -m tests.mutants [WORD...]`` takes the table in `tests.mutations`, or of it only the
mutations whose file or text has one of the words.  Each is applied to a temporary copy of the
package, whose tests then run with a time limit: a mutation that makes them hang is noticed as
well.  A mutation that no test notices has *survived*; all survivors are listed at the end.

The exit status is 0 if none survived, 1 if some did, and 2 if nothing could be found out: a text
is not found exactly once, or the tests fail without any mutation.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from threading import Event

from attrs import frozen

#: Mutations whose tests run at the same time.
AT_A_TIME = 2

#: Seconds in which the tests of a mutation must end; none of them takes a tenth of that.
LIMIT = 120.0

#: The directory of the package, the tests and the documentation.
TOP = Path(__file__).parent.parent

#: What is copied for each mutation, and what of the rest the tests look at, by links.
_COPIED, _LINKED = "rsscloud_broker", ("tests", "docs", "tap", "twisted", "pyproject.toml")


@frozen
class Mutation:
    """One way to break the package.

    :ivar file: the path of a module below ``rsscloud_broker``.
    :ivar text: is in that module exactly once.
    :ivar replacement: is put in its place.
    :ivar tests: names of modules below ``tests``, separated by blanks, one of which must fail.
    :ivar breaks: what would go wrong for users.
    """

    file: str
    text: str
    replacement: str
    tests: str
    breaks: str

    def __str__(self) -> str:
        (line, *_) = self.text.strip().splitlines()
        return f"{self.file}: {line.strip()}"

    def problem(self, top: Path) -> str:
        """Why this cannot be applied to the package in a directory; empty if it can."""
        path = top / _COPIED / self.file
        if not path.is_file():
            return f"{self}: there is no such file; correct the table in tests/mutations.py"
        found = path.read_text(encoding="utf-8").count(self.text)
        if found != 1:
            return (
                f"{self}: the text is there {found} times and must be there once; "
                "correct the table in tests/mutations.py"
            )
        return ""

    def apply(self, top: Path) -> None:
        """Change the package in a directory.

        :raises SyntaxError: the changed module is no Python.
        """
        path = top / _COPIED / self.file
        changed = path.read_text(encoding="utf-8").replace(self.text, self.replacement)
        compile(changed, path, "exec")
        path.write_text(changed, encoding="utf-8")


def survivors(
    mutations: Sequence[Mutation], say: Callable[[str], object], top: Path = TOP
) -> list[Mutation]:
    """The mutations that no test notices.

    :param say: is notified what comes of each.
    :param top: the directory of the package and its tests.
    """

    def survives(mutation: Mutation) -> bool:
        with _copy(top) as copy:
            mutation.apply(copy)
            passed = _pass(mutation.tests.split(), copy)
        say(f"{'SURVIVED' if passed else 'killed  '}  {mutation}")
        return passed

    with _pool() as pool:
        survived = list(pool.map(survives, mutations))
    return [one for one, lives in zip(mutations, survived, strict=True) if lives]


def failing(mutations: Sequence[Mutation], top: Path = TOP) -> list[str]:
    """The names of tests that fail, or hang, without any mutation: they can notice none."""
    names = sorted({name for mutation in mutations for name in mutation.tests.split()})
    with _copy(top) as copy, _pool() as pool:
        passed = list(pool.map(lambda name: _pass([name], copy), names))
    return [name for name, well in zip(names, passed, strict=True) if not well]


#: The tests that run now, and whether they are to end because this program ends.
_running: set[subprocess.Popen[bytes]] = set()
_ending = Event()


@contextmanager
def _pool() -> Iterator[ThreadPoolExecutor]:
    """Threads that run tests.  If this program is to end, their tests end at once."""
    _ending.clear()
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        try:
            yield pool
        except BaseException:
            _ending.set()
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(_running):
                _kill(process)
            raise


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def _copy(top: Path) -> Iterator[Path]:
    """A copy of the package, in a directory with links to what its tests need."""
    with TemporaryDirectory(prefix="mutant-") as name:
        copy = Path(name)
        copytree(top / _COPIED, copy / _COPIED)
        for linked in _LINKED:
            if (top / linked).exists():
                (copy / linked).symlink_to(top / linked)
        yield copy


def _pass(names: Sequence[str], directory: Path) -> bool:
    """Whether tests pass, in time, with the package in a directory."""
    trial = [sys.executable, "-m", "twisted.trial", "--exitfirst", "--reporter=text"]
    process = subprocess.Popen(
        [*trial, *(f"tests.{name}" for name in names)],
        cwd=directory,
        # The examples of hypothesis are the same each time: what is found once is found again.
        env=os.environ | {"PYTHONPATH": str(directory), "CI": "true", "TEST_TIMES": ""},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    _running.add(process)
    if _ending.is_set():  # it was started at that moment
        _kill(process)
    try:
        return process.wait(LIMIT) == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        _running.discard(process)
        if process.poll() is None:
            _kill(process)
            process.wait()


def main(mutations: Sequence[Mutation], words: Sequence[str], top: Path = TOP) -> int:
    """Run the mutations that have one of some words, or all; the exit status."""
    chosen = [
        one
        for one in mutations
        if not words or any(word in f"{one.file} {one.text}" for word in words)
    ]
    problems = [problem for one in chosen if (problem := one.problem(top))]
    problems += [f"tests.{name} fails without any mutation" for name in failing(chosen, top)]
    if problems:
        _say("\n".join(problems))
        return 2
    lived = survivors(chosen, _say, top)
    _say(f"{len(lived)} of {len(chosen)} mutations survived.")
    for one in lived:
        _say(f"\n{one}\n  {one.breaks}\n  no test notices it in {one.tests}")
    return 1 if lived else 0


def clean_up_on_sigterm() -> None:
    """Have SIGTERM end this program like an error: what it has begun is ended and removed."""

    def end(number: int, _: object) -> None:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, end)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    from tests.mutations import MUTATIONS

    clean_up_on_sigterm()
    sys.exit(main(MUTATIONS, sys.argv[1:]))
