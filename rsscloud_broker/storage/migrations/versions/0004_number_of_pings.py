"""The number of pings ever made is kept, and not only that of those pruned."""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Count those that there are once more."""
    op.execute(
        "INSERT INTO tally (name, value) SELECT 'pings', (SELECT count(*) FROM ping) + "
        "coalesce((SELECT value FROM tally WHERE name = 'pruned pings'), 0)"
    )
    op.execute("DELETE FROM tally WHERE name = 'pruned pings'")


def downgrade() -> None:
    """Keep the number of those that were pruned."""
    op.execute(
        "INSERT INTO tally (name, value) SELECT 'pruned pings', value - "
        "(SELECT count(*) FROM ping) FROM tally WHERE name = 'pings'"
    )
    op.execute("DELETE FROM tally WHERE name = 'pings'")
