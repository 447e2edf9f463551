"""Adds what WebSub needs: contents, options of subscriptions, intents, ended topics."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _flag(name: str) -> sa.Column[bool]:
    return sa.Column(name, sa.Boolean(), nullable=False, server_default=sa.false())


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=False, server_default="")


def upgrade() -> None:
    """Add the tables and columns.  Existing subscriptions want no content and have no options."""
    op.add_column("topic", _flag("check_pinged"))
    op.add_column("topic", _text("ended"))

    op.add_column("subscription", _text("terms"))
    op.add_column("subscription", _flag("wants_content"))
    wants_content = sa.column("wants_content", sa.Boolean())
    op.create_index(
        "ix_subscription_content",
        "subscription",
        ["topic_id"],
        sqlite_where=wants_content == sa.true(),
        postgresql_where=wants_content,
    )

    op.create_table(
        "content",
        sa.Column("id", _KEY, nullable=False),
        sa.Column("topic_id", _KEY, nullable=False),
        sa.Column("content_type", sa.Text(), nullable=False),
        sa.Column("link", sa.Text(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_content"),
        sa.ForeignKeyConstraint(
            ["topic_id"], ["topic.id"], name="fk_content_topic_id", ondelete="CASCADE"
        ),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_content_topic_id", "content", ["topic_id"])

    _extend_fanout()

    op.add_column("waiting", sa.Column("content_topic_id", _KEY))
    waited_for = sa.column("content_topic_id").is_not(None)
    op.create_index(
        "ix_waiting_content_topic_id",
        "waiting",
        ["content_topic_id"],
        sqlite_where=waited_for,
        postgresql_where=waited_for,
    )

    op.create_table(
        "intent",
        sa.Column("id", _KEY, nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("callback_url", sa.Text(), nullable=False),
        sa.Column("protocol", sa.Text(), nullable=False),
        sa.Column("procedure", sa.Text(), nullable=False),
        sa.Column("lease_seconds", sa.BigInteger(), nullable=False),
        sa.Column("challenge", sa.Boolean(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("terms", sa.Text(), nullable=False),
        sa.Column("ends", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_intent"),
        sa.UniqueConstraint(
            "topic", "callback_url", "protocol", "procedure", name="uq_intent_topic"
        ),
        sqlite_autoincrement=True,
    )


def _extend_fanout() -> None:
    """Add columns to the table of fan-outs.

    SQLite replaces the table for this.  The new table must go on counting its ids where the old
    one stopped.  No other table refers to this one, so the replacement deletes no other row.
    """
    connection = op.get_bind()
    last = None
    if connection.dialect.name == "sqlite":
        of_fanout = sa.text("SELECT seq FROM sqlite_sequence WHERE name = 'fanout'")
        last = connection.execute(of_fanout).scalar()
    with op.batch_alter_table("fanout", table_kwargs={"sqlite_autoincrement": True}) as batch:
        batch.add_column(sa.Column("content_id", _KEY))
        batch.add_column(_flag("pushed"))
        batch.create_foreign_key(
            "fk_fanout_content_id", "content", ["content_id"], ["id"], ondelete="SET NULL"
        )
    op.create_index("ix_fanout_content_id", "fanout", ["content_id"])
    if last is not None:
        op.execute("DELETE FROM sqlite_sequence WHERE name = 'fanout'")
        again = sa.text("INSERT INTO sqlite_sequence (name, seq) VALUES ('fanout', :last)")
        op.execute(again.bindparams(last=last))


def downgrade() -> None:
    """Drop these tables and columns, with what they contain."""
    op.drop_table("intent")
    op.drop_index("ix_waiting_content_topic_id", "waiting")
    op.drop_column("waiting", "content_topic_id")
    op.drop_index("ix_fanout_content_id", "fanout")
    with op.batch_alter_table("fanout", table_kwargs={"sqlite_autoincrement": True}) as batch:
        batch.drop_constraint("fk_fanout_content_id", type_="foreignkey")
        batch.drop_column("content_id")
        batch.drop_column("pushed")
    op.drop_table("content")
    op.drop_index("ix_subscription_content", "subscription")
    for table, names in (
        ("subscription", ("wants_content", "terms")),
        ("topic", ("ended", "check_pinged")),
    ):
        for name in names:
            op.drop_column(table, name)
