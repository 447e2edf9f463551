"""Adds what limits need: since when topics are idle, and the bytes of contents of each host."""

import sqlalchemy as sa
from alembic import op

from rsscloud_broker.model import host_of

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_topic = sa.table("topic", sa.column("id"), sa.column("url"))
_content = sa.table(
    "content", *map(sa.column, ("id", "topic_id", "content_type", "link", "body", "host", "size"))
)
_content_sum = sa.table("content_sum", sa.column("host"), sa.column("size"))


def upgrade() -> None:
    """Add tables and columns, and sum up the contents.  The next sweep marks idle topics."""
    op.add_column("topic", sa.Column("idle_at", sa.BigInteger()))
    is_idle = sa.column("idle_at").is_not(None)
    op.create_index(
        "ix_topic_idle_at", "topic", ["idle_at"], sqlite_where=is_idle, postgresql_where=is_idle
    )
    op.add_column("content", sa.Column("host", sa.Text(), nullable=False, server_default=""))
    op.add_column("content", sa.Column("size", sa.BigInteger(), nullable=False, server_default="0"))
    op.create_index("ix_content_host", "content", ["host", "id", "size"])
    op.add_column(
        "fanout", sa.Column("later", sa.Boolean(), nullable=False, server_default=sa.false())
    )
    op.add_column(
        "fanout", sa.Column("content_size", sa.BigInteger(), nullable=False, server_default="0")
    )
    op.create_table(
        "content_sum",
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("host", name="pk_content_sum"),
    )
    _sum_up()


def _sum_up() -> None:
    connection = op.get_bind()
    length = sa.func.length
    sizes = length(_content.c.body) + length(_content.c.content_type) + length(_content.c.link)
    kept = sa.select(_content.c.id, _topic.c.url, sizes).join(
        _topic, _topic.c.id == _content.c.topic_id
    )
    sums = {"": 0}
    for key, url, size in connection.execute(kept).all():
        host = host_of(url)[:255] or "?"
        op.execute(_content.update().where(_content.c.id == key).values(host=host, size=size))
        sums[host] = sums.get(host, 0) + size
        sums[""] += size
    op.execute(
        "UPDATE fanout SET content_size = "
        "(SELECT size FROM content WHERE content.id = fanout.content_id) "
        "WHERE content_id IS NOT NULL"
    )
    op.bulk_insert(_content_sum, [{"host": host, "size": size} for host, size in sums.items()])


def downgrade() -> None:
    """Drop these tables and columns."""
    op.drop_table("content_sum")
    op.drop_column("fanout", "content_size")
    op.drop_column("fanout", "later")
    op.drop_index("ix_content_host", "content")
    op.drop_column("content", "size")
    op.drop_column("content", "host")
    op.drop_index("ix_topic_idle_at", "topic")
    op.drop_column("topic", "idle_at")
