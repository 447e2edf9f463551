"""Rules of the house that import-linter cannot check: see docs/architecture.rst."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

import rsscloud_broker

PACKAGE = Path(rsscloud_broker.__file__).parent

#: What a room may not import from outside the house.
FORBIDDEN = {
    "core": ("twisted.web", "treq", "sqlalchemy", "lxml"),
    "bus": ("twisted.web", "treq", "sqlalchemy", "lxml"),
    "sinks": ("twisted.web", "treq", "sqlalchemy"),
    "notifiers": ("twisted.web", "twisted.internet", "treq", "sqlalchemy"),
    "front_doors": ("treq", "sqlalchemy"),
    "wire": (
        *("twisted", "treq", "sqlalchemy"),
        *("asyncio", "importlib", "io", "os", "pathlib", "pkgutil", "socket", "subprocess"),
    ),
}


def imports_of(path: Path) -> Iterator[str]:
    """The dotted name of everything that a module imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


class HouseTests(SynchronousTestCase):
    def test_imports_are_seen(self) -> None:
        self.assertIn("twisted.internet.reactor", set(imports_of(PACKAGE / "tap.py")))

    def test_only_tap_and_cli_import_the_reactor(self) -> None:
        importers = {
            path.name
            for path in PACKAGE.rglob("*.py")
            if "twisted.internet.reactor" in set(imports_of(path))
        }
        self.assertLessEqual(importers, {"tap.py", "cli.py"})

    def test_rooms_know_only_what_they_are_for(self) -> None:
        for room, forbidden in FORBIDDEN.items():
            for path in (PACKAGE / room).rglob("*.py"):
                for name in imports_of(path):
                    for prefix in forbidden:
                        self.assertFalse(
                            f"{name}.".startswith(f"{prefix}."),
                            f"{path.relative_to(PACKAGE)} imports {name}",
                        )

    def test_codecs_open_no_files(self) -> None:
        for path in (PACKAGE / "wire").rglob("*.py"):
            names = {
                node.id
                for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
                if isinstance(node, ast.Name)
            }
            self.assertNotIn("open", names, path.name)

    def test_modules_are_short(self) -> None:
        """All but the one of the interfaces, which is one so that it can be read as one."""
        long = {
            str(path.relative_to(PACKAGE)): lines
            for path in PACKAGE.rglob("*.py")
            if path.name != "interfaces.py"
            if (lines := len(path.read_text(encoding="utf-8").splitlines())) > 450
        }
        self.assertEqual(long, {})
