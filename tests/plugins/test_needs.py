"""Tests that the makers of the bundled plugins name what these use, no less and no more.

What a plugin uses is found in its sources: the attributes of ``parts`` in the module of its class,
and in those modules that this hands its parts on to.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attrs import fields
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.interfaces import (
    AppParts,
    CheckerParts,
    FrontDoorParts,
    NotifierParts,
    SinkParts,
)
from rsscloud_broker.runtime.plugin_discovery import bundled, discover

KINDS = {
    "front_doors": FrontDoorParts,
    "sinks": SinkParts,
    "checkers": CheckerParts,
    "apps": AppParts,
}


def module_of(make: Any) -> str:
    """The module in which a maker's ``make`` is defined, even if it is imported later."""
    later = inspect.getclosurevars(make).nonlocals if inspect.isfunction(make) else {}
    return str(later.get("module", make.__module__))


def imports(text: str) -> Iterator[str]:
    """The modules of the broker that a module imports, but for those that describe parts."""
    for node in ast.walk(ast.parse(text)):
        module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
        if module.startswith("rsscloud_broker.") and "interfaces" not in module:
            yield module
            yield from (f"{module}.{alias.name}" for alias in getattr(node, "names", ()))


def sources(module: str, parts: str, seen: dict[str, str]) -> dict[str, str]:
    """The sources of a module and of those that it imports, as far as they mention some parts.

    :param parts: the name of the class.
    """
    if module not in seen:
        try:
            spec = importlib.util.find_spec(module)
        except ModuleNotFoundError:  # it is a class of a module
            spec = None
        text = Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""
        if parts in text:
            seen[module] = text
            for each in imports(text):
                sources(each, parts, seen)
    return seen


class NeedsTests(SynchronousTestCase):
    def test_are_what_is_used(self) -> None:
        makers = discover()
        for kind, parts in KINDS.items():
            names = {each.name for each in fields(parts)}
            for name in bundled(makers.of_kind(kind)):
                maker = makers.of_kind(kind)[name]
                found = sources(module_of(maker.make), parts.__name__, {})
                self.assertTrue(found, name)
                used = re.findall(r"\b_?parts\.(\w+)", "\n".join(found.values()))
                self.assertEqual(set(maker.needs), names.intersection(used), (kind, name))

    def test_are_told_from_sources(self) -> None:
        """This test would notice what is used in a module that the parts are handed on to."""
        found = sources("rsscloud_broker.web.admin.door", "FrontDoorParts", {})
        self.assertIn("rsscloud_broker.web.admin.page", found)
        self.assertNotIn("rsscloud_broker.web.admin.api", found)


class ManualTests(SynchronousTestCase):
    def test_table_has_what_plugins_may_need(self) -> None:
        manual = Path(__file__).parents[2] / "docs" / "plugins.rst"
        rows = re.findall(
            r"^   \* - ``(\w+)``\n     - .*\n     - (.*)$", manual.read_text("utf-8"), re.MULTILINE
        )
        words = {
            "front door": FrontDoorParts,
            "notifier": NotifierParts,
            "sink": SinkParts,
            "checker": CheckerParts,
            "app": AppParts,
        }
        for word, parts in words.items():
            named = [name for name, kinds in rows if word in kinds.split(", ")]
            self.assertEqual(named, sorted(each.name for each in fields(parts)), word)
