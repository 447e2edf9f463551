"""What others rely on, as text: see docs/operating/versions.rst.

``python -m tests.public`` records it in ``tests/fixtures/public``, a file for each kind, with a
line for each thing.  `tests.test_public` compares the files with what is there now, so that nothing
public changes by accident.
"""

from __future__ import annotations

import ast
import inspect
import re
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, get_args, get_type_hints

import attrs
import click
from sqlalchemy import MetaData, Table
from sqlalchemy.dialects import postgresql
from zope.interface.interface import InterfaceClass

from rsscloud_broker import events, interfaces, model
from rsscloud_broker.commands import main as command
from rsscloud_broker.config import Config
from rsscloud_broker.runtime.plugin_discovery import KINDS, discover
from rsscloud_broker.storage.schema import metadata
from rsscloud_broker.web.admin.openapi import document
from tests.e2e.every_route import every_route, whole_server

RECORDS: Final = Path(__file__).parent / "fixtures" / "public"


def configuration() -> Iterator[str]:
    """The keys of the configuration, with their types and defaults."""
    yield from _keys(Config, "")
    makers = discover()
    for kind in KINDS:
        for name, maker in makers.of_kind(kind).items():
            yield from _keys(maker.options, f"[{kind}.{name}]")


def _keys(cls: type[Any], table: str) -> Iterator[str]:
    hints = get_type_hints(cls)
    for key in attrs.fields(cls):
        if not key.init:
            continue
        hint = hints[key.name]
        name = f"{table} {key.alias}".strip()
        if attrs.has(hint):
            yield from _keys(hint, f"[{key.alias}]")
            continue
        default = key.default
        if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
            default = default.factory()
        shown = "needed" if default is attrs.NOTHING else repr(default)
        yield f"{name}: {_type(hint)} = {shown}"
        for inside in get_args(hint):
            if attrs.has(inside):
                yield from _keys(inside, f"{name}[]")


def _type(hint: Any) -> str:
    if isinstance(hint, type) and not isinstance(hint, types.GenericAlias):
        return hint.__name__
    return re.sub(r"\b[a-z_]\w*\.(?=\w)", "", str(hint))  # without the names of modules


def plugins() -> Iterator[str]:
    """The interfaces of plugins, and the events and values that these are given."""
    for name, interface in vars(interfaces).items():
        if isinstance(interface, InterfaceClass):
            yield from _interface(name, interface)
    for module in (events, interfaces, model):
        for name, cls in vars(module).items():
            if isinstance(cls, type) and attrs.has(cls):
                fields = ", ".join(f"{each.name}: {each.type}" for each in attrs.fields(cls))
                yield f"{name}({fields})"


def _interface(name: str, interface: InterfaceClass) -> Iterator[str]:
    tree = ast.parse(inspect.getsource(inspect.getmodule(interface)))  # type: ignore[arg-type]
    (node,) = (each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == name)
    yield f"{name}({', '.join(map(ast.unparse, node.bases))})"
    for each in node.body:
        if isinstance(each, ast.FunctionDef):
            returns = f" -> {ast.unparse(each.returns)}" if each.returns else ""
            yield f"{name}.{each.name}({ast.unparse(each.args)}){returns}"
        elif isinstance(each, ast.Assign):
            yield from (f"{name}.{ast.unparse(target)}" for target in each.targets)


def urls() -> Iterator[str]:
    """The paths, with the methods that they take."""
    for route in every_route("*"):
        yield f"{route.path} {route.method} {' '.join(sorted(route.requires))}".rstrip()


def api() -> Iterator[str]:
    """The operations of the administration API, and the fields of what they take and answer."""
    described = document("")
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            names = [each["name"] for each in operation.get("parameters", ())]
            statuses = " ".join(sorted(operation["responses"]))
            yield f"{path} {method.upper()} ({', '.join(names)}): {statuses}"
    for name, schema in described["components"]["schemas"].items():
        needed = schema.get("required", ())
        for field, kind in schema.get("properties", {}).items():
            mark = "" if field in needed else "?"
            what = {key: kind[key] for key in kind if key not in {"description", "title"}}
            yield f"{name}.{field}{mark}: {what}"


def metrics() -> Iterator[str]:
    """The metrics, with their kinds and labels."""
    with whole_server() as server:
        list(server.doors)
        for family in server.counters.registry.collect():
            if not family.name.startswith("rsscloud_"):
                continue  # not the broker's own
            labels = {name for sample in family.samples for name in sample.labels}
            yield " ".join([family.name, family.type, *sorted(labels)])


def commands() -> Iterator[str]:
    """The commands, with what they take."""
    yield from _commands(command, ("rsscloud-broker",))


def _commands(of: click.Command, names: tuple[str, ...]) -> Iterator[str]:
    context = click.Context(of)
    taken = [each.opts[0] if each.opts else str(each.name) for each in of.params]
    yield " ".join([*names, *taken])
    if isinstance(of, click.Group):
        for name in of.list_commands(context):
            if (one := of.get_command(context, name)) is not None:
                yield from _commands(one, (*names, name))


def database() -> Iterator[str]:
    """The tables of the database, with their columns and types."""
    yield from _tables(metadata)
    for maker in discover().of_kind("apps").values():
        if maker.tables is not None:
            yield from _tables(maker.tables.metadata)


def _tables(of: MetaData) -> Iterator[str]:
    dialect = postgresql.dialect()
    for table in of.tables.values():
        for column in table.columns:
            rules = ["null"] if column.nullable else []
            rules += ["key"] if column.primary_key else []
            rules += [f"of {key.target_fullname}" for key in column.foreign_keys]
            kind = column.type.compile(dialect)
            yield " ".join([f"{table.name}.{column.name}: {kind}", *rules])
        yield from sorted(_indexes(table))


def _indexes(table: Table) -> Iterator[str]:
    for index in table.indexes:
        columns = ", ".join(map(str, index.expressions))
        yield f"{table.name} index {index.name} ({columns}){' unique' if index.unique else ''}"


KINDS_OF_RECORDS: Final[Mapping[str, Callable[[], Iterator[str]]]] = {
    each.__name__: each for each in (api, commands, configuration, database, metrics, plugins, urls)
}


def found(kind: str) -> str:
    """What there is of a kind now, as its file should have it."""
    return "".join(f"{line}\n" for line in sorted(set(KINDS_OF_RECORDS[kind]())))


def recorded(kind: str) -> Path:
    """The file of a kind."""
    return RECORDS / f"{kind}.txt"


if __name__ == "__main__":
    RECORDS.mkdir(exist_ok=True)
    for each in KINDS_OF_RECORDS:
        recorded(each).write_text(found(each), encoding="utf-8")
