"""Tables and columns have the names that the code and the manual use."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

#: The table, the old name and the new name of each column that is renamed.
_COLUMNS = (
    ("subscription", "marked", "dropping"),
    ("subscription", "terms", "options"),
    ("intent", "terms", "options"),
    ("intent", "ends", "unsubscribe"),
)


def upgrade() -> None:
    """Rename the columns, and copy the three tables to tables with the new names."""
    for table, old, new in _COLUMNS:
        op.execute(f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}")
    _rename_pushed("handed in", "pushed")
    _copy_notifications("waiting", "pending_notification")
    _copy_hosts("host", "host_state")
    _copy_counters("tally", "counter")


def downgrade() -> None:
    """Give everything its old name again."""
    _copy_counters("counter", "tally")
    _copy_hosts("host_state", "host")
    _copy_notifications("pending_notification", "waiting")
    _rename_pushed("pushed", "handed in")
    for table, old, new in _COLUMNS:
        op.execute(f"ALTER TABLE {table} RENAME COLUMN {new} TO {old}")


def _rename_pushed(old: str, new: str) -> None:
    """Rename what stands in place of a host for contents that publishers pushed."""
    for table in ("content", "content_sum"):
        rename = sa.text(f"UPDATE {table} SET host = :new WHERE host = :old")  # noqa: S608
        op.execute(rename.bindparams(new=new, old=old))


# SQLite cannot rename indexes and constraints, so each table is made anew.  Nothing refers to
# any of the three.


def _copy_notifications(old: str, new: str) -> None:
    op.create_table(
        new,
        sa.Column("subscription_id", _KEY, autoincrement=False, nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.Column("content_topic_id", _KEY),
        sa.Column("node_id", _KEY),
        sa.Column("tried_at", sa.BigInteger()),
        sa.Column("failing_since", sa.BigInteger()),
        sa.Column("not_before", sa.BigInteger()),
        sa.Column("content_id", _KEY),
        sa.PrimaryKeyConstraint("subscription_id", name=f"pk_{new}"),
        sa.ForeignKeyConstraint(
            ["subscription_id"],
            ["subscription.id"],
            name=f"fk_{new}_subscription_id",
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["node_id"], ["node.id"], name=f"fk_{new}_node_id", ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(
            ["content_id"], ["content.id"], name=f"fk_{new}_content_id", ondelete="SET NULL"
        ),
    )
    _move_rows(
        old,
        new,
        "subscription_id, attempts, due_at, content_topic_id, node_id, tried_at, failing_since, "
        "not_before, content_id",
    )
    for column in ("due_at", "node_id", "content_id"):
        op.create_index(f"ix_{new}_{column}", new, [column])
    waited_for = sa.column("content_topic_id").is_not(None)
    op.create_index(
        f"ix_{new}_content_topic_id",
        new,
        ["content_topic_id"],
        sqlite_where=waited_for,
        postgresql_where=waited_for,
    )


def _copy_hosts(old: str, new: str) -> None:
    op.create_table(
        new,
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("retry_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=f"pk_{new}"),
    )
    _move_rows(old, new, "name, failures, retry_at")


def _copy_counters(old: str, new: str) -> None:
    op.create_table(
        new,
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=f"pk_{new}"),
    )
    _move_rows(old, new, "name, value")


def _move_rows(old: str, new: str, columns: str) -> None:
    op.execute(f"INSERT INTO {new} ({columns}) SELECT {columns} FROM {old}")  # noqa: S608
    op.drop_table(old)
