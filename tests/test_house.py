"""Rules of the house that import-linter cannot check: see docs/architecture.rst."""

from __future__ import annotations

import ast
import inspect
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

from twisted.trial.unittest import SynchronousTestCase, TestCase

import rsscloud_broker
import tests
from tests.runs import imports_of

PACKAGE = Path(rsscloud_broker.__file__).parent

#: Where the whole broker is put together.
SERVER = PACKAGE / "composition" / "server.py"

#: What a room may not import from outside the house.
FORBIDDEN = {
    "accounts": ("twisted.web", "treq", "sqlalchemy", "lxml"),
    "core": ("twisted.web", "treq", "sqlalchemy", "lxml"),
    "policy": ("twisted.web", "treq", "sqlalchemy", "lxml"),
    "sinks": ("twisted.web", "treq", "sqlalchemy"),
    "delivery": ("twisted.web", "treq", "sqlalchemy"),
    "delivery/notifiers": ("twisted.web", "twisted.internet", "treq", "sqlalchemy"),
    "front_doors": ("treq", "sqlalchemy"),
    "http": ("treq", "sqlalchemy"),
    "simplefeed": ("twisted.web", "treq"),
    "wire": (
        *("twisted", "treq", "sqlalchemy"),
        *("asyncio", "importlib", "io", "os", "pathlib", "pkgutil", "socket", "subprocess"),
    ),
}

#: What lies at the root of the package: the way in, and what every room knows.
ROOT = {
    *("__init__.py", "tap.py", "errors.py", "events.py", "counters.py"),
    *("example.toml", "py.typed"),
}

#: The packages and modules that applications and plugins may use: the interfaces, the values that
#: they exchange, and what makes those.  Only their tests use ``testing``.
PUBLIC = {
    *("interfaces", "model", "wire", "web", "http", "client", "accounts", "simplefeed", "apps"),
    *("counters", "errors", "events", "config", "util", "database", "testing"),
    "__version__",
}


class HouseTests(SynchronousTestCase):
    def test_the_root_is_small(self) -> None:
        files = {path.name for path in PACKAGE.iterdir() if path.is_file()}
        self.assertEqual(files, ROOT)

    def test_imports_are_seen(self) -> None:
        self.assertIn("twisted.internet.reactor", set(imports_of(PACKAGE / "tap.py")))

    def test_only_the_roots_of_processes_import_the_reactor(self) -> None:
        importers = {
            path.relative_to(PACKAGE).parts[0]
            for path in PACKAGE.rglob("*.py")
            if "twisted.internet.reactor" in set(imports_of(path))
        }
        self.assertLessEqual(importers, {"tap.py", "commands", "composition"})

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

    def test_applications_and_plugins_import_nothing_else(self) -> None:
        """The linter has a list of what is forbidden.  This is one of what is allowed."""
        example = PACKAGE.parent / "docs" / "examples" / "rsscloud-broker-example"
        modules = [*(PACKAGE / "apps").rglob("*.py"), *example.glob("rsscloud_broker_example/*.py")]
        for path in modules:
            self.assertEqual(private_imports(path), [], path)
        self.assertIn("rsscloud_broker.core", private_imports(SERVER))

    def test_no_two_classes_share_a_name(self) -> None:
        """Not even in different packages: a name says what is meant wherever it stands."""
        places: dict[str, list[str]] = {}
        for path in sorted(PACKAGE.rglob("*.py")):
            # What the API describes is called there as it is called in the model.
            if path.relative_to(PACKAGE) != Path("web/admin/shapes.py"):
                for node in ast.parse(path.read_text(encoding="utf-8")).body:
                    if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                        places.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
        self.assertEqual({name: them for name, them in places.items() if len(them) > 1}, {})

    def test_modules_are_short(self) -> None:
        long = {
            str(path.relative_to(PACKAGE)): lines
            for path in PACKAGE.rglob("*.py")
            if (lines := len(path.read_text(encoding="utf-8").splitlines())) > 450
        }
        self.assertEqual(long, {})


def private_imports(path: Path) -> list[str]:
    """What a module imports of the broker that is not for applications and plugins."""
    allowed = PUBLIC - {"testing"}
    return [
        name
        for name in imports_of(path)
        if name.split(".")[0] == PACKAGE.name and not {*name.split(".")[1:2]} & allowed
    ]


class TestsTests(SynchronousTestCase):
    def test_nobody_waits_in_vain_for_a_result(self) -> None:
        """A SynchronousTestCase would not run a test that is a coroutine, and call it good."""
        for module in iter_modules_below(tests):
            for name, kind in inspect.getmembers(import_module(module), inspect.isclass):
                if issubclass(kind, SynchronousTestCase) and not issubclass(kind, TestCase):
                    for method, _ in inspect.getmembers(kind, inspect.iscoroutinefunction):
                        self.assertFalse(method.startswith("test"), f"{module}.{name}.{method}")


def iter_modules_below(package: ModuleType) -> Iterator[str]:
    """The names of all modules of tests in a package."""
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if found.name.rpartition(".")[2].startswith("test_"):
            yield found.name
