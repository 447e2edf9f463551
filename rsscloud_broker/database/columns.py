"""What all tables of the database have in common: how their parts are named, and how values are
stored in their columns.

Times are whole microseconds since the epoch (UTC) in BIGINT columns, which are exact and the same
in SQLite and PostgreSQL.  They become seconds as floats when rows become model classes.

The inserts and locks here keep several nodes on one PostgreSQL out of each other's way.  On SQLite
one transaction writes at a time, so nothing has to wait there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Final, TypeVar

from attrs import AttrsInstance, fields_dict
from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    ForeignKey,
    Integer,
    MetaData,
    Row,
    Table,
    insert,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite

T = TypeVar("T", bound=AttrsInstance)

#: In a second: times are stored as whole numbers of them.
MICROSECONDS = 1_000_000


def to_micros(seconds: float) -> int:
    """Convert seconds since the epoch to whole microseconds, as they are stored."""
    return round(seconds * MICROSECONDS)


def to_seconds(micros: int) -> float:
    """Convert stored microseconds to seconds since the epoch."""
    return micros / MICROSECONDS


def to_seconds_or_none(micros: int | None) -> float | None:
    """Convert stored microseconds to seconds since the epoch; None, from a null, stays None."""
    return None if micros is None else to_seconds(micros)


def to_micros_or_none(seconds: float | None) -> int | None:
    """Convert seconds since the epoch to whole microseconds; None, for a null, stays None."""
    return None if seconds is None else to_micros(seconds)


def _is_time(name: str) -> bool:
    """Whether a column of this name has times."""
    return name in {"at", "since", "until"} or name.endswith(("_at", "_until"))


def record_of(kind: type[T], row: Row[*tuple[Any, ...]], **given: object) -> T:
    """The value that a row stores: its attributes have the names of columns; times are seconds.

    :param given: attributes that the row does not have, or has in another form.
    """
    stored: dict[str, Any] = {}
    for name, is_time in _attributes(kind).items():
        if name not in given:
            value = getattr(row, name)
            stored[name] = to_seconds_or_none(value) if is_time else value
    make: Any = kind
    made: T = make(**stored, **given)
    return made


@cache
def _attributes(kind: type[AttrsInstance]) -> Mapping[str, bool]:
    """The names of the attributes of a class, each with whether it has a time."""
    return {name: _is_time(name) for name in fields_dict(kind)}


def columns_of(record: AttrsInstance, table: Table, **given: object) -> dict[str, Any]:
    """The columns that store a value: those that have the names of its attributes, except an id
    that the database assigns.

    :param given: columns that it has no attributes for, or has in another form.
    """
    known = fields_dict(type(record)).keys() - given.keys()
    columns = [each for each in table.columns if each is not table.autoincrement_column]
    values = {each.name: getattr(record, each.name) for each in columns if each.name in known}
    return with_micros(values) | given


def with_micros(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by the names of their columns, with times as they are stored."""
    times = {name: to_micros_or_none(values[name]) for name in values if _is_time(name)}
    return {**values, **times}


#: Where the steps are of tables that are as in the first release.  If such tables change, they get
#: a directory of their own, with a copy of this first step.
FIRST_RELEASE: Final = "rsscloud_broker.database:migrations"


def new_metadata() -> MetaData:
    """A collection of tables whose keys and indexes have names that migrations can refer to."""
    return MetaData(
        naming_convention={
            "pk": "pk_%(table_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "uq": "uq_%(table_name)s_%(column_0_name)s",
            "ix": "ix_%(table_name)s_%(column_0_name)s",
        }
    )


def insert_on_sqlite(conn: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows into a table of SQLite, many with each statement.

    Python's driver releases the interpreter's lock at each row that it inserts alone.  Beside a
    busy reactor that costs more than the work itself.

    :param rows: one or more rows, all with the same columns in the same order.
    """
    columns = tuple(rows[0])
    values = [value for row in rows for value in row.values()]
    done = 0
    while done < len(rows):
        # Powers of two, since the driver caches each statement: there are nine, not hundreds.
        # At most 256 rows: SQLite allows 32,766 values in a statement.
        size = min(1 << (len(rows) - done).bit_length() - 1, 256)
        some = values[done * len(columns) : (done + size) * len(columns)]
        conn.exec_driver_sql(_insertion(table.name, columns, size), tuple(some))
        done += size


@lru_cache(maxsize=60)
def _insertion(table: str, columns: Sequence[str], rows: int) -> str:
    """The statement that inserts so many rows, with a question mark for each value."""
    row = f"({', '.join('?' * len(columns))})"
    names = ", ".join(columns)
    return f"INSERT INTO {table} ({names}) VALUES {', '.join([row] * rows)}"  # noqa: S608 # ours


#: The type of ids.  SQLite assigns ids by itself only for a column of type INTEGER.
Key = BigInteger().with_variant(Integer(), "sqlite")


def required(kind: type[Any], *names: str, **options: Any) -> list[Column[Any]]:
    """Make columns of one type, and with the same options, that are never null."""
    return [Column(name, kind, nullable=False, **options) for name in names]


def cascade(column: str) -> ForeignKey:
    """Makes a column refer to one of another table (``table.column``).

    The rows with that column are deleted together with the row that they refer to.
    """
    return ForeignKey(column, ondelete="CASCADE")


_ACCOUNTS = Table("account", MetaData(), Column("id", Key, primary_key=True))


def of_account() -> ForeignKey:
    """Makes a column of an application refer to an account.

    The rows with that column are deleted together with the account.
    """
    return ForeignKey(_ACCOUNTS.c.id, ondelete="CASCADE")


def insert_into(conn: Connection, table: Table) -> Any:
    """The INSERT of the database in use, which can say what happens if the row is there already."""
    dialect: Any = {"postgresql": postgresql, "sqlite": sqlite}[conn.dialect.name]
    return dialect.insert(table)


def insert_row(conn: Connection, table: Table, **values: Any) -> int:
    """Insert a row, and return its id."""
    made = conn.execute(insert(table).values(values)).inserted_primary_key
    assert made is not None  # a single insert always has one
    return int(made[0])


def insert_missing(
    conn: Connection, table: Table, rows: Sequence[Mapping[str, Any]], key: ColumnElement[Any]
) -> set[Any]:
    """Insert those rows that no other transaction has inserted.

    If another transaction is just inserting the same row, this waits for its end.

    :param rows: in the order in which all transactions insert them, so that none waits in a circle.
    :returns: the values of the column in the inserted rows.
    """
    missing = insert_into(conn, table).on_conflict_do_nothing().returning(key)
    return set(conn.scalars(missing, list(rows)))


def put_rows(conn: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows, each in place of one with the same primary key.

    :param rows: one or more, all with the same columns; the others of a row that is there stay.
    """
    keys = [column.name for column in table.primary_key]
    new = insert_into(conn, table)
    changed = {name: new.excluded[name] for name in rows[0] if name not in keys}
    conn.execute(new.on_conflict_do_update(index_elements=keys, set_=changed), list(rows))


def lock_rows(conn: Connection, column: ColumnElement[Any], keys: Collection[Any]) -> None:
    """Lock the rows with these keys until the transaction ends, in the order of the keys.

    All who lock several rows of one table lock them in this order, so that no two transactions
    wait for each other.  Rows may still refer to the locked ones.
    """
    if conn.dialect.name == sqlite.dialect.name or not keys:
        return
    rows = select(column).where(column.in_(keys)).order_by(column)
    conn.execute(rows.with_for_update(key_share=True)).all()
