"""The items of the feed."""

from alembic import op
from sqlalchemy import BigInteger, Column, Text

from rsscloud_broker.database.columns import Key

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "test_feed_item",
        Column("id", Key, primary_key=True),
        Column("slot", BigInteger, nullable=False),
        Column("guid", Text, nullable=False),
        sqlite_autoincrement=True,
    )
