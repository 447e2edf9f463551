"""Copies a whole database into an empty one, for the command ``import --from``.

Either database may be SQLite or PostgreSQL.  The copy has the same rows with the same ids, and the
ids that rows have had before are not used again.  Only the nodes are left out, and with them their
claims: no broker works on the copy yet.

The rows are read and written as a stream, so that few are in memory at a time, and written in one
transaction.  If anything fails, the target has no row.  Meanwhile no broker can start on either
database: it waits, or fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any

from attrs import frozen
from sqlalchemy import (
    Column,
    Connection,
    Row,
    Select,
    Table,
    bindparam,
    func,
    inspect,
    make_url,
    null,
    select,
    update,
)
from sqlalchemy.exc import SQLAlchemyError

from rsscloud_broker.database import postgresql, sqlite
from rsscloud_broker.database.columns import insert_on_sqlite
from rsscloud_broker.database.engine import open_database, wait_for_others
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.interfaces import AppTables
from rsscloud_broker.storage import nodes
from rsscloud_broker.storage.examination import database_file, shown
from rsscloud_broker.storage.exports import has_rows, others_with_rows
from rsscloud_broker.storage.schema import metadata, node
from rsscloud_broker.storage.upgrade import (
    UnfitDatabase,
    check_kept,
    check_known,
    has_tables_of,
    migrate,
    revisions_of,
)
from rsscloud_broker.wire.text import clean

#: Rows that are in memory at a time.
_ROWS = 1000


@frozen
class Copied:
    """The result of a copy.

    :ivar rows: how many rows were copied, by table; only tables with rows.
    :ivar left_out: the tables with rows that no part of this installation knows.
    """

    rows: Mapping[str, int]
    left_out: Sequence[str]


def copy_database(source: str, target: str, apps: Mapping[str, AppTables]) -> Copied:
    """Copy all rows of a broker's database into an empty database, which need not have tables yet.

    A source of an older version is migrated first, as a start of the broker would do.

    :param source: an SQLAlchemy URL of the database to copy.
    :param target: that of the database to copy into.
    :param apps: the tables of the applications that are installed, by their names.
    :raises UnfitDatabase: one of the databases may not be used for this; nothing was copied.
    :raises Unavailable: one of the databases cannot be used; nothing was copied.
    """
    _check_files(source, target)
    with _errors_name(source), open_database(source, writes=False) as reading:
        _check_source(reading)
        present = {name: each for name, each in apps.items() if has_tables_of(reading, name, each)}
    with _errors_name(target):
        _check_target(target, present)
    with _errors_name(source):
        migrate(source, present)
    with _errors_name(target):
        migrate(target, present)
    tables = [*metadata.sorted_tables, *chain(*map(_tables_of, present.values()))]
    with open_database(source) as reading, _errors_name(target), open_database(target) as writing:
        wait_for_others(writing)
        _check_unused(writing)
        _check_empty(writing, tables)
        with _errors_name(source):
            _lock_source(reading)
        rows = {
            each.name: _copy_rows(reading, writing, each) for each in tables if each is not node
        }
        for each in tables:
            _continue_ids(reading, writing, each)
        left_out = others_with_rows(reading, [node.name, *(each.name for each in tables)])
    return Copied({name: count for name, count in rows.items() if count}, left_out)


@contextmanager
def _errors_name(url: str) -> Iterator[None]:
    """Raise each error of this context with the URL of the database before its text."""
    try:
        yield
    except (UnfitDatabase, Unavailable) as error:
        raise type(error)(f"{shown(url)}: {error}") from error
    except SQLAlchemyError as error:
        raise Unavailable(f"{shown(url)}: {clean(str(error))}") from error


def _tables_of(app: AppTables) -> list[Table]:
    found: list[Table] = app.metadata.sorted_tables
    return found


# --- what may be copied, and into what


def _check_files(source: str, target: str) -> None:
    """Check the files of SQLite databases, before any is opened: to open a missing one makes it.

    :raises UnfitDatabase: there is no source, a database is in memory, both are the same, or one is
        in use.
    """
    for url in (source, target):
        check_kept(url)
    file, other = database_file(source), database_file(target)
    if file is not None and not file.is_file():
        raise UnfitDatabase(f"{file} does not exist; name the file of the database to copy")
    same_file = file and other and other.exists() and file.samefile(other)
    if same_file or make_url(source) == make_url(target):
        raise UnfitDatabase(
            f"{shown(source)} is the database to copy into, too: 'database' in the configuration "
            "must name another one"
        )
    for each in (file, other):
        if each is not None and each.is_file() and sqlite.in_use(each):
            raise UnfitDatabase(f"another process uses {each}: stop the broker that works on it")


def _check_source(connection: Connection) -> None:
    """:raises UnfitDatabase: it has no tables or unknown ones, or brokers work on it."""
    revisions = revisions_of(connection)
    check_known(revisions)
    if not revisions:
        raise UnfitDatabase("it has no tables of a broker, so there is nothing to copy")
    _check_unused(connection)


def _check_target(url: str, apps: Mapping[str, AppTables]) -> None:
    """:raises UnfitDatabase: a target that exists already is not empty, or brokers work on it."""
    file = database_file(url)
    if file is not None and not file.exists():
        return
    tables = chain(metadata.tables.values(), *map(_tables_of, apps.values()))
    with open_database(url, writes=False) as connection:
        if revisions_of(connection):
            _check_unused(connection)
            present = set(inspect(connection).get_table_names())
            _check_empty(connection, [each for each in tables if each.name in present])


def _check_unused(connection: Connection) -> None:
    """:raises UnfitDatabase: brokers work on a database."""
    if living := nodes.living(connection):
        raise UnfitDatabase(f"brokers work on it: {', '.join(living)}; stop them, and try again")


def _check_empty(connection: Connection, tables: Iterable[Table]) -> None:
    """:raises UnfitDatabase: one of some tables has a row; rows of nodes do not count."""
    names = (each.name for each in tables if each is not node)
    if full := [name for name in names if has_rows(connection, name)]:
        raise UnfitDatabase(
            f"it is not empty: there are rows in {', '.join(full)}. Name a new database in the "
            "configuration, on which no broker has worked yet; nothing was copied"
        )


def _lock_source(connection: Connection) -> None:
    """Keep brokers from starting on the source until the transaction ends.

    On SQLite every transaction that writes does so by itself.

    :raises UnfitDatabase: somebody else does so already, or a broker has started meanwhile.
    """
    if sqlite.serves(connection):
        return
    if not postgresql.try_lock(connection):
        raise UnfitDatabase(
            "another process makes, migrates or copies its tables right now; "
            "try again when that has ended"
        )
    _check_unused(connection)


# --- copying


def _copy_rows(source: Connection, target: Connection, table: Table) -> int:
    """Copy the rows of a table, and return how many there are.

    A row may refer to a later row of its table.  So such references are written when all rows are
    there.
    """
    own = [column for column in table.columns if _refers_to(column, table)]
    # Null in the copy: references that come later, and claims, since no node is copied.
    blank = {*own, *(each for each in table.columns if _is_claim(each))}
    columns = [null().label(each.name) if each in blank else each for each in table.columns]
    rows = _stream(source, select(*columns))
    if sqlite.serves(target):
        count = _insert_on_sqlite(target, table, rows)
    else:
        count = postgresql.copy_in(target, table, map(_without_nul, rows))
    for column in own:
        _copy_references(source, target, column)
    if not sqlite.serves(target):
        postgresql.analyze(target, table)
    return count


def _is_claim(column: Column[Any]) -> bool:
    """Whether a column has the node that has claimed a row: without that, nobody frees it."""
    return column in nodes.ALL_CLAIMS or _refers_to(column, node)


def _refers_to(column: Column[Any], table: Table) -> bool:
    return any(key.column.table is table for key in column.foreign_keys)


def _stream(source: Connection, query: Select[Any]) -> Iterator[Row[Any]]:
    """The rows of a query, of which few are in memory at a time."""
    return iter(source.execute(query.execution_options(yield_per=_ROWS)))


def _insert_on_sqlite(target: Connection, table: Table, rows: Iterator[Row[Any]]) -> int:
    """Insert rows into a table of SQLite, and return how many they were."""
    count = 0
    while some := [dict(row._mapping) for row in islice(rows, _ROWS)]:
        insert_on_sqlite(target, table, some)
        count += len(some)
    return count


def _without_nul(row: Row[Any]) -> tuple[Any, ...]:
    """A row as PostgreSQL can store it: its texts cannot have the character NUL."""
    return tuple(
        value.replace("\0", "\N{REPLACEMENT CHARACTER}") if isinstance(value, str) else value
        for value in row
    )


def _copy_references(source: Connection, target: Connection, column: Column[Any]) -> None:
    """Write a column with references to rows of its own table, all of which are copied by now."""
    (key,) = column.table.primary_key.columns
    rows = _stream(source, select(key.label("row"), column.label("to")).where(column.is_not(None)))
    change = update(column.table).where(key == bindparam("row")).values({column: bindparam("to")})
    while some := [dict(row._mapping) for row in islice(rows, _ROWS)]:
        target.execute(change, some)


def _continue_ids(source: Connection, target: Connection, table: Table) -> None:
    """Have the target give new rows of a table ids that no row has had in the source."""
    column = table.autoincrement_column
    if column is None:
        return
    largest = source.execute(select(func.max(column))).scalar_one() or 0
    before = (sqlite if sqlite.serves(source) else postgresql).last_id(source, table)
    last = max(largest, before)
    if last:
        (sqlite if sqlite.serves(target) else postgresql).set_last_id(target, table, last)
