"""Entries that were appended together share a row."""

from collections.abc import Iterator
from typing import Any

import msgspec
import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

#: How many rows are copied at once.
_PORTION = 1000


def upgrade() -> None:
    """Copy the entries into the new table, each into a row of its own."""
    old, new = _old(), _new()
    op.get_bind().execute(sa.schema.CreateTable(new))
    for some in _portions(old, old.c.number):
        rows = [
            {
                "log_id": row.log_id,
                "last": row.number,
                "first": row.number,
                "data": msgspec.msgpack.encode([msgspec.Raw(row.data)]),
            }
            for row in some
        ]
        op.get_bind().execute(sa.insert(new), rows)
    op.drop_table("simplefeed_entry")


def downgrade() -> None:
    """Copy each entry into a row of the old table."""
    old, new = _old(), _new()
    op.get_bind().execute(sa.schema.CreateTable(old))
    decode = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
    for some in _portions(new, new.c.last):
        rows = [
            {
                "log_id": row.log_id,
                "number": number,
                "updated_at": round(msgspec.msgpack.decode(data)["updated"] * 1_000_000),
                "data": bytes(data),
            }
            for row in some
            for number, data in enumerate(decode(row.data), row.first)
        ]
        op.get_bind().execute(sa.insert(old), rows)
    op.drop_table("simplefeed_entries")


def _old() -> sa.Table:
    return _table(
        "simplefeed_entry",
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("log_id", "number", name="pk_simplefeed_entry"),
    )


def _new() -> sa.Table:
    return _table(
        "simplefeed_entries",
        sa.Column("last", sa.BigInteger(), nullable=False),
        sa.Column("first", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("log_id", "last", name="pk_simplefeed_entries"),
    )


def _table(name: str, *columns: sa.schema.SchemaItem) -> sa.Table:
    metadata = sa.MetaData()
    sa.Table("simplefeed_log", metadata, sa.Column("id", _KEY, primary_key=True))
    return sa.Table(
        name,
        metadata,
        sa.Column("log_id", _KEY, nullable=False),
        *columns,
        sa.ForeignKeyConstraint(
            ["log_id"], ["simplefeed_log.id"], name=f"fk_{name}_log_id", ondelete="CASCADE"
        ),
        sqlite_with_rowid=False,
    )


def _portions(table: sa.Table, number: sa.Column[Any]) -> Iterator[list[sa.Row[Any]]]:
    """The rows of a table in their order, some at a time."""
    place = sa.tuple_(table.c.log_id, number)
    log_id, last = 0, 0
    rows = sa.select(table).order_by(table.c.log_id, number).limit(_PORTION)
    while some := op.get_bind().execute(rows.where(place > (log_id, last))).all():
        yield list(some)
        log_id, last = some[-1].log_id, some[-1]._mapping[number]
