"""Tests how plugins are found and selected, on drop-in paths made for each test."""

from __future__ import annotations

import importlib
import os
import sys
from itertools import count
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

import rsscloud_broker.plugins
from rsscloud_broker.config import ConfigError
from rsscloud_broker.interfaces import ISinkMaker
from rsscloud_broker.runtime import plugin_discovery
from tests.processes import new_directory

_numbers = count()

INIT = """
    from twisted.plugin import pluginPackagePaths

    __path__.extend(pluginPackagePaths(__name__))
    __all__ = []
"""

#: A module with a valid maker of each kind.
KIT = """
    from attrs import field, frozen
    from attrs.validators import ge
    from twisted.plugin import IPlugin
    from zope.interface import implementer
    from rsscloud_broker.interfaces import (
        IAppMaker, IFrontDoorMaker, INotifierMaker, ISinkMaker,
    )

    @frozen
    class Options:
        size: int = field(default=1, validator=ge(1))

    class Maker:
        help = "For tests."
        options = Options
        needs = ()

        def __init__(self, name):
            self.name = name

        def make(self, options, parts):
            raise NotImplementedError("makers are only looked at")

    @implementer(IAppMaker)
    class App(Maker):
        tables = None

    @implementer(ISinkMaker)
    class Sink(Maker):
        pass

    @implementer(IFrontDoorMaker)
    class FrontDoor(Maker):
        pass

    @implementer(INotifierMaker)
    class Notifier(Maker):
        pass
"""


class DiscoveryTestCase(SynchronousTestCase):
    """A test case with a drop-in path, and directories that add modules to it."""

    def setUp(self) -> None:
        number = next(_numbers)
        self.name = f"drop_in_{number}"
        self.kit = f"drop_in_kit_{number}"
        self.home = self.directory()
        self.write(self.home / f"{self.kit}.py", KIT)
        self.write(self.home / self.name / "__init__.py", INIT)
        self.addCleanup(self.forget)

    def directory(self) -> Path:
        """Add a new directory to Python's path."""
        path = new_directory(self)
        sys.path.append(str(path))
        self.addCleanup(sys.path.remove, str(path))
        return path

    def forget(self) -> None:
        for name in list(sys.modules):
            if name.partition(".")[0] in {self.name, self.kit}:
                del sys.modules[name]

    def write(self, path: Path, text: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text).replace("KIT", self.kit), encoding="utf-8")
        importlib.invalidate_caches()
        return path

    def drop(self, module: str, text: str, home: Path | None = None) -> Path:
        """Write a module into the package."""
        return self.write((home or self.home) / self.name / f"{module}.py", text)

    def package(self) -> ModuleType:
        return importlib.import_module(self.name)

    def discover(self) -> plugin_discovery.Makers:
        return plugin_discovery.discover(self.package())

    def refusal(self) -> str:
        return str(self.assertRaises(plugin_discovery.PluginError, self.discover))


class FoundTests(DiscoveryTestCase):
    def test_nothing(self) -> None:
        self.assertEqual(self.discover(), plugin_discovery.Makers())

    def test_kinds(self) -> None:
        self.drop(
            "ours",
            """
            from KIT import App, FrontDoor, Notifier, Sink
            door, notifier, first, second = FrontDoor("d"), Notifier("n"), Sink("s"), Sink("t")
            app = App("a")
            """,
        )
        makers = self.discover()
        self.assertEqual(set(makers.front_doors), {"d"})
        self.assertEqual(set(makers.notifiers), {"n"})
        self.assertEqual(set(makers.sinks), {"s", "t"})
        self.assertEqual(makers.sinks["s"].name, "s")
        self.assertEqual(
            str(makers), "front_doors: d; notifiers: n; sinks: s, t; checkers: none; apps: a"
        )

    def test_dropped_in_by_another_package(self) -> None:
        """A directory of the package's name, without ``__init__.py``, anywhere on Python's path."""
        self.drop("theirs", "from KIT import Sink\nsink = Sink('theirs')", self.directory())
        self.assertEqual(set(self.discover().sinks), {"theirs"})

    def test_same_name_in_different_kinds(self) -> None:
        self.drop("ours", "from KIT import Notifier, Sink\na, b = Sink('x'), Notifier('x')")
        makers = self.discover()
        self.assertEqual((set(makers.sinks), set(makers.notifiers)), ({"x"}, {"x"}))

    def test_one_object_under_several_names(self) -> None:
        self.drop("a", "from KIT import Sink\nsink = alias = Sink('x')")
        self.drop("b", f"from {self.name}.a import sink")
        self.assertEqual(set(self.discover().sinks), {"x"})

    def test_twice(self) -> None:
        """The second time the plugins come from the cache that Twisted writes."""
        self.drop("ours", "from KIT import Sink\nsink = Sink('x')")
        first = self.discover()
        self.assertTrue((self.home / self.name / "dropin.cache").exists())
        self.assertIs(self.discover().sinks["x"], first.sinks["x"])

    def test_drop_in_path_of_the_broker(self) -> None:
        paths = [os.path.realpath(path) for path in rsscloud_broker.plugins.__path__]
        dropped = [os.path.join(path, "rsscloud_broker", "plugins") for path in sys.path if path]
        self.assertTrue(set(paths) & {os.path.realpath(path) for path in dropped})
        self.assertEqual(paths[0], os.path.dirname(rsscloud_broker.plugins.__file__ or ""))


class RefusedTests(DiscoveryTestCase):
    def test_faulty_modules(self) -> None:
        """All are told at once, each with its module and its file."""
        kit = "from KIT import IPlugin, ISinkMaker, Options, Sink, frozen, implementer\n"
        faulty: dict[str, tuple[str, str]] = {
            "missing": (
                "import no_such_module_anywhere",
                "cannot be imported: ModuleNotFoundError: No module named "
                "'no_such_module_anywhere'",
            ),
            "syntax": ("def", "cannot be imported: SyntaxError: "),
            "exits": ("import sys\nsys.exit('gone')", "cannot be imported: SystemExit: gone"),
            # A class without an instance is no plugin, which authors often forget.
            "bare": (kit, "holds no plugin"),
            "no_kind": (
                f"{kit}@implementer(IPlugin)\nclass Other:\n    pass\nother = Other()",
                "provides none of IFrontDoorMaker, INotifierMaker, ISinkMaker",
            ),
            "half": (
                f"{kit}@implementer(ISinkMaker)\nclass Half:\n    name, options = 'a', Options\n"
                "    def make(self):\n        pass\nhalf = Half()",
                "does not keep to ISinkMaker: ",
            ),
            "help": (f"{kit}a = Sink('a')\na.help = None", "its help is None; it must be a str"),
            "a_dict": (
                f"{kit}a = Sink('a')\na.options = dict",
                "its options are <class 'dict'>; they must be an attrs class",
            ),
            "instance": (
                f"{kit}a = Sink('a')\na.options = Options()",
                "its options are Options(size=1);",
            ),
            "none": (f"{kit}a = Sink('a')\na.options = None", "its options are None;"),
            "text": (
                f"{kit}a = Sink('a')\na.needs = 'clock'",
                "its needs are 'clock'; they must be a tuple of the names",
            ),
            "tuple": (f"{kit}a = Sink('a')\na.needs = (None,)", "its needs are (None,);"),
            "types": (
                f"from __future__ import annotations\n{kit}@frozen\nclass Strange:\n"
                "    path: NoSuchType\na = Sink('a')\na.options = Strange",
                "cannot be found out: NameError: name 'NoSuchType'",
            ),
        }
        for number, name in enumerate((None, 5, "", "a b", "a.b", "\u00e9")):
            text = f"{kit}a = Sink({name!r})"
            faulty[f"name{number}"] = (text, f"its name is {name!r}; it must be")
        self.drop("good", "from KIT import Sink\nsink = Sink('good')")
        files = {module: self.drop(module, text) for module, (text, _) in faulty.items()}
        message = self.refusal()
        lines = message.splitlines()
        for module, (_, said) in faulty.items():
            told = [line for line in lines if f"  {self.name}.{module}" in line and said in line]
            self.assertEqual(len(told), 1, (module, message))
            self.assertIn(f"({files[module]})", told[0])
        self.assertIn("found: front_doors: none; notifiers: none; sinks: good", message)
        # No traceback is logged; the error's sentence is enough.
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_duplicate_name(self) -> None:
        first = self.drop("a", "from KIT import Sink\nsink = Sink('x')")
        second = self.drop("b", "from KIT import Sink\nsink = Sink('x')")
        message = self.refusal()
        self.assertIn("has the name 'x', which is taken among the sinks by", message)
        self.assertIn(f"{self.name}.a.sink ({first})", message)
        self.assertIn(f"{self.name}.b.sink ({second})", message)

    def test_hidden_module(self) -> None:
        first = self.drop("same", "from KIT import Sink\nsink = Sink('x')")
        second = self.drop("same", "from KIT import Sink\nsink = Sink('y')", self.directory())
        self.assertIn(f"{self.name}.same ({second}) is hidden by {first}", self.refusal())

    def test_stale_cache(self) -> None:
        """An upgrade may install a module whose file is older than the cache."""
        file = self.drop("ours", "from KIT import Sink\nfirst = Sink('x')")
        self.discover()
        self.drop("ours", "from KIT import Sink\nfirst, second = Sink('x'), Sink('y')")
        os.utime(file, (1, 1))
        del sys.modules[f"{self.name}.ours"]
        self.assertIn(
            f"{self.name}.ours.second ({file}) is not in the cache of Twisted", self.refusal()
        )


class SurveyTests(DiscoveryTestCase):
    def test_the_others_are_found(self) -> None:
        self.drop("good", "from KIT import Notifier, Sink\na, b = Sink('a'), Notifier('b')")
        self.drop("bad", "1 / 0")
        self.drop("worse", "from KIT import Sink\na, c = Sink(''), Sink('c')")
        makers, problems = plugin_discovery.survey(self.package())
        self.assertEqual((set(makers.sinks), set(makers.notifiers)), ({"a", "c"}, {"b"}))
        self.assertEqual(len(problems), 2)
        self.assertIn("bad", problems[0])
        self.assertIn("its name is ''", problems[1])


class ProvenanceTests(SynchronousTestCase):
    def test_a_module_beside_ours(self) -> None:
        """Packages install their modules into the directory in which the bundled one is."""
        path = Path(rsscloud_broker.plugins.__path__[0])
        for name in ("bundled", "theirs"):
            file = str(path / f"{name}.py")
            here = plugin_discovery.PluginLocation(
                f"rsscloud_broker.plugins.{name}", "a", file, "no_such_package"
            )
            is_ours = here.package == f"rsscloud-broker {rsscloud_broker.__version__}"
            self.assertEqual(is_ours, name == "bundled", here.package)


class SelectTests(DiscoveryTestCase):
    """Bundled plugins run unless they are disabled; others run only if they have a table."""

    def setUp(self) -> None:
        super().setUp()
        self.drop("bundled", "from KIT import Sink\na, b = Sink('archive'), Sink('change_list')")
        self.drop(
            "theirs",
            f"""
            from {self.name}.bundled import Sink, a
            theirs = Sink('theirs')
            """,
        )
        self.patch(plugin_discovery, "BUNDLED", f"{self.name}.bundled")
        self.makers: dict[str, ISinkMaker] = self.discover().sinks

    def select(self, **tables: dict[str, Any]) -> list[tuple[str, int]]:
        chosen = plugin_discovery.select(self.makers, tables, "sinks", "broker.toml")
        return [(maker.name, options.size) for maker, options in chosen]

    def refusal(self, **tables: Any) -> str:
        return str(self.assertRaises(ConfigError, self.select, **tables))

    def test_which_run(self) -> None:
        tables: tuple[tuple[dict[str, Any], list[tuple[str, int]]], ...] = (
            ({}, [("archive", 1), ("change_list", 1)]),
            ({"archive": {"enabled": False}}, [("change_list", 1)]),
            (
                {"archive": {"size": 5}, "change_list": {"enabled": True, "size": 6}},
                [("archive", 5), ("change_list", 6)],
            ),
            ({"theirs": {}}, [("archive", 1), ("change_list", 1), ("theirs", 1)]),
            ({"theirs": {"enabled": False, "size": 0}}, [("archive", 1), ("change_list", 1)]),
        )
        for given, run in tables:
            self.assertEqual(self.select(**given), run)

    def test_applications_run_only_if_the_table_says_so(self) -> None:
        """Whether they come with the broker or not."""

        def chosen(**tables: dict[str, Any]) -> list[str]:
            return [maker.name for maker, _ in plugin_discovery.select(self.makers, tables, "apps")]

        self.assertEqual(chosen(), [])
        self.assertEqual(chosen(archive={}, theirs={"size": 2}), [])
        enabled = {"enabled": True}
        self.assertEqual(chosen(archive=enabled, theirs=enabled), ["archive", "theirs"])
        self.assertEqual(chosen(theirs={"enabled": False}), [])

    def test_bundled_ones_are_known(self) -> None:
        self.assertEqual(plugin_discovery.bundled(self.makers), ["archive", "change_list"])

    def test_tables_are_left_as_they_are(self) -> None:
        table = {"enabled": True}
        self.select(archive=table)
        self.assertEqual(table, {"enabled": True})

    def test_refused(self) -> None:
        tables: tuple[tuple[dict[str, Any], str], ...] = (
            (
                {"archve": {}},
                "archve]: no such plugin was found; the nearest known is 'archive', of archive, "
                "change_list, theirs",
            ),
            ({"archive": {"size": 0}}, "archive] size: must be >= 1: 0"),
            (
                {"archive": {"enabled": "false"}},
                "archive] enabled: must be true or false, not 'false'",
            ),
            (
                {"archive": {"enable": False}},
                "archive] enable: unknown key; the nearest known is 'enabled', of enabled, size",
            ),
        )
        for table, said in tables:
            self.assertEqual(self.refusal(**table), f"broker.toml: [sinks.{said}")

    def test_unknown_where_none_was_found(self) -> None:
        error = self.assertRaises(ConfigError, plugin_discovery.select, {}, {"x": {}}, "notifiers")
        self.assertEqual(str(error), "[notifiers.x]: no such plugin was found; none is known here")

    def test_all_at_once(self) -> None:
        message = self.refusal(archive={"siz": 1, "size": "1"}, theirs={"size": -1}, nosuch={})
        self.assertEqual(
            [line.split(": ")[1] for line in message.splitlines()],
            [
                "[sinks.archive] siz",
                "[sinks.archive] size",
                "[sinks.nosuch]",
                "[sinks.theirs] size",
            ],
        )
