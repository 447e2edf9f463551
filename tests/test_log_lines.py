"""The manual's tables of log lines are what the code says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

from docutils import nodes  # type: ignore[import-untyped] # it has no types
from docutils.core import publish_doctree  # type: ignore[import-untyped] # it has no types
from twisted.logger import LogLevel
from twisted.trial.unittest import SynchronousTestCase

import rsscloud_broker
from rsscloud_broker.runtime.log_ids import FORMATS, log_id

PACKAGE = Path(rsscloud_broker.__file__).parent
MANUAL = PACKAGE.parent / "docs" / "operating" / "troubleshooting.rst"

#: Methods of a ``Logger``, and the levels that they log at.
METHODS = {level.name: level.name for level in LogLevel.iterconstants()} | {"failure": "critical"}


def lines_of_the_code(path: Path) -> Iterator[tuple[str, str]]:
    """Level and format of each line that a module may log."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        logger = node.func.value
        name = logger.attr if isinstance(logger, ast.Attribute) else getattr(logger, "id", "")
        if name in {"log", "_log"} and node.func.attr in METHODS:
            text = node.args[0]
            if isinstance(text, ast.Name):  # a constant of the module
                written = getattr(module_at(path), text.id)
            else:
                # What is not written there cannot be compared.
                assert isinstance(text, ast.Constant), f"{path}:{node.lineno}"
                written = text.value
            assert isinstance(written, str), f"{path}:{node.lineno}"
            yield METHODS[node.func.attr], written


def module_at(path: Path) -> ModuleType:
    """The module in a file of the package."""
    return import_module(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts))


def as_in_the_manual(text: str) -> str:
    """A format whose fields are names in capitals: ``{swept.expired}`` is EXPIRED."""
    return re.sub(r"\{(?:\w+\.)*(\w+)(?::[^}]*)?\}", lambda field: field[1].upper(), text)


def lines_of_the_manual() -> Iterator[tuple[str, str, str]]:
    """Level, id and line, as they stand in the tables.  Lines of the level ``info`` have no id."""
    # Not Sphinx's but docutils' reading of it: that knows no roles, and need not.
    lenient = {"report_level": 5, "halt_level": 5}
    document = publish_doctree(MANUAL.read_text(encoding="utf-8"), settings_overrides=lenient)
    (section,) = [
        section
        for section in document.findall(nodes.section)
        if section.next_node(nodes.title).astext() == "Log lines"
    ]
    for table in section.findall(nodes.tbody):
        for row in table.findall(nodes.row):
            level, lines, meaning = row.children
            assert meaning.astext(), lines.astext()
            for line in lines.findall(nodes.literal):
                name, _, number = level.astext().partition(" ")
                yield name, number, " ".join(line.astext().split())


class LogLineTests(SynchronousTestCase):
    maxDiff = None

    def test_the_tables_say_what_the_code_says(self) -> None:
        said = {
            (level, log_id({"log_format": text}) or "", as_in_the_manual(text))
            for path in PACKAGE.rglob("*.py")
            for level, text in lines_of_the_code(path)
            if level != "debug"
        }
        written = list(lines_of_the_manual())
        self.assertGreater(len(said), 50)
        self.assertEqual(sorted(said - set(written)), [], "the manual lacks these lines")
        self.assertEqual(sorted(set(written) - said), [], "nothing in the code says these lines")
        self.assertEqual(len(written), len(set(written)), "a line stands there twice")

    def test_warnings_and_errors_have_ids(self) -> None:
        lines = [line for path in PACKAGE.rglob("*.py") for line in lines_of_the_code(path)]
        lacking = {
            line
            for line in lines
            if line[0] not in {"debug", "info"} and not log_id({"log_format": line[1]})
        }
        self.assertEqual(lacking, set(), "runtime/log_ids.py lacks these; see its docstring")
        texts = [text for formats in FORMATS.values() for text in formats]
        self.assertEqual(len(texts), len(set(texts)), "a line has two ids")
        self.assertEqual(set(texts) - {text for _, text in lines}, set(), "nothing says these")

    def test_fields(self) -> None:
        text = "{swept.expired} of {url}: {until:%H:%M} ([log] {n:.0f})"
        self.assertEqual(as_in_the_manual(text), "EXPIRED of URL: UNTIL ([log] N)")
