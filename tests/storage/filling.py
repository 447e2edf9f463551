"""Fills every table of a database, those of applications too."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

from sqlalchemy import Boolean, Column, Connection, Float, Integer, LargeBinary, Table, insert

from rsscloud_broker.composition.apps import installed_tables
from rsscloud_broker.interfaces import AppTables
from rsscloud_broker.runtime import plugin_discovery
from rsscloud_broker.storage.schema import metadata

#: Rows of each table.
COUNT = 3


def installed() -> dict[str, AppTables]:
    """The tables of all applications, and of what else has tables of its own, by their names."""
    makers = plugin_discovery.discover()
    return installed_tables(makers.apps.values(), makers.front_doors.values())


def tables(apps: Mapping[str, AppTables]) -> list[Table]:
    return [
        *metadata.sorted_tables,
        *chain(*(each.metadata.sorted_tables for each in apps.values())),
    ]


def value(column: Column[Any], number: int) -> object:
    """A value of the right type, another one in each row."""
    if column.foreign_keys:
        (key,) = column.foreign_keys
        # Rows of the same table refer to the row after them, which is written later.
        return number % COUNT + 1 if key.column.table is column.table else number
    if isinstance(column.type, Boolean):
        return number % 2 == 0
    if isinstance(column.type, Integer):
        return number
    if isinstance(column.type, Float):
        return number + 0.125
    if isinstance(column.type, LargeBinary):
        return bytes([0, 255, number])
    return f"Café ☕\t\\N\n{number}"


def fill(conn: Connection, apps: Mapping[str, AppTables]) -> None:
    """Put rows into every table.  Ids that rows had which are gone are never used again."""
    for table in tables(apps):
        for number in range(1, COUNT + 1):
            plain = [
                c for c in table.columns if not any(k.column.table is table for k in c.foreign_keys)
            ]
            conn.execute(insert(table).values({c.name: value(c, number) for c in plain}))
        own = [c for c in table.columns if any(k.column.table is table for k in c.foreign_keys)]
        for column in own:
            for number in range(1, COUNT + 1):
                there = table.c.id == number
                conn.execute(table.update().where(there).values({column: value(column, number)}))
