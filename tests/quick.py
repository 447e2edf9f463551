"""Names the test modules that ``make quick`` runs: those of units, which start no other program.

``python -m tests.quick`` prints them in one line.  A module is left out if it imports what starts
programs or talks to them, or if it is among those that take long.  So a new module is among the
quick ones unless it is one of those.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

#: The directory of the tests.
TESTS = Path(__file__).parent

#: What starts programs, or is a program of its own.
PROGRAMS = (
    "benchmarks",
    "multiprocessing",
    "subprocess",
    "tests.commands.cases",
    "tests.curl",
    "tests.e2e",
    "tests.mutants",
    "tests.postgresql",
    "tests.processes",
    "twisted.internet.utils",
)

#: What takes long: what every store must do, in any order of operations; and the play of thousands
#: of subscribers, of slow hosts and of callers that flood the broker.
LONG = frozenset(
    {
        "tests.core.test_fairness",
        "tests.delivery.test_backlogs",
        "tests.delivery.test_faults",
        "tests.delivery.test_speed",
        "tests.storage.test_exchange",
        "tests.storage.test_store",
        "tests.storage.test_store_machine",
    }
)


def imports_of(path: Path) -> Iterator[str]:
    """The dotted name of everything that a module imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def needs_programs(path: Path) -> bool:
    """Whether the tests of a module start programs."""
    return any(f"{name}.".startswith(f"{one}.") for name in imports_of(path) for one in PROGRAMS)


def quick_modules(tests: Path = TESTS) -> list[str]:
    """The names of the quick modules in a directory of tests."""
    names = {
        ".".join(path.relative_to(tests.parent).with_suffix("").parts): path
        for path in tests.rglob("test_*.py")
        if not path.is_relative_to(tests / "e2e")
    }
    return sorted(
        name for name, path in names.items() if name not in LONG and not needs_programs(path)
    )


if __name__ == "__main__":
    sys.stdout.write(f"{' '.join(quick_modules())}\n")
