"""Feeds, who follows them, and items."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "river_feed",
        sa.Column("id", _KEY, nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("url", "title", "link")),
        sa.Column("is_found", sa.Boolean(), nullable=False),
        sa.Column("offers", sa.Text(), nullable=False),
        sa.Column("offer", sa.Integer(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("secret", sa.Text(), nullable=False),
        sa.Column("asked_at", sa.BigInteger()),
        sa.Column("verified_at", sa.BigInteger()),
        sa.Column("pushes_until", sa.BigInteger()),
        sa.Column("push_due_at", sa.BigInteger()),
        sa.Column("pinged_at", sa.BigInteger()),
        sa.Column("pushed", sa.Integer(), nullable=False),
        sa.Column("found_by_poll", sa.Integer(), nullable=False),
        sa.Column("missed", sa.Integer(), nullable=False),
        sa.Column("reads_until", sa.BigInteger()),
        sa.Column("read_due_at", sa.BigInteger(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("problem", sa.Text(), nullable=False),
        sa.Column("push_problem", sa.Text(), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_river_feed"),
        sa.UniqueConstraint("url", name="uq_river_feed_url"),
        sa.UniqueConstraint("key", name="uq_river_feed_key"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_river_feed_push_due_at", "river_feed", ["push_due_at"])
    op.create_index("ix_river_feed_read_due_at", "river_feed", ["read_due_at"])
    op.create_table(
        "river_follow",
        sa.Column("account_id", _KEY, nullable=False),
        sa.Column("feed_id", _KEY, nullable=False),
        sa.Column("added_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("account_id", "feed_id", name="pk_river_follow"),
        _reference("river_follow", "account_id", "account"),
        _reference("river_follow", "feed_id", "river_feed"),
    )
    op.create_index("ix_river_follow_feed_id", "river_follow", ["feed_id"])
    op.create_table(
        "river_reader",
        sa.Column("account_id", _KEY, nullable=False, autoincrement=False),
        sa.Column("seen", sa.BigInteger(), nullable=False),
        sa.Column("is_public", sa.Boolean(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("account_id", name="pk_river_reader"),
        _reference("river_reader", "account_id", "account"),
    )
    op.create_index("ix_river_reader_name", "river_reader", ["name"])
    op.create_table(
        "river_item",
        sa.Column("id", _KEY, nullable=False),
        sa.Column("feed_id", _KEY, nullable=False),
        sa.Column("guid", sa.Text(), nullable=False),
        sa.Column("guid_digest", sa.LargeBinary(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        *(
            sa.Column(name, sa.Text(), nullable=False)
            for name in ("title", "text_html", "link", "more")
        ),
        sa.Column("published_at", sa.BigInteger()),
        sa.Column("arrived_at", sa.BigInteger(), nullable=False),
        sa.Column("how", sa.Text(), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_river_item"),
        _reference("river_item", "feed_id", "river_feed"),
        sa.UniqueConstraint("feed_id", "guid_digest", name="uq_river_item_feed_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_river_item_feed_id_id", "river_item", ["feed_id", "id"])


def _reference(table: str, column: str, to: str) -> sa.ForeignKeyConstraint:
    name = f"fk_{table}_{column}"
    return sa.ForeignKeyConstraint([column], [f"{to}.id"], name=name, ondelete="CASCADE")
