"""Stores how many pings there have ever been, instead of how many have been pruned."""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the number of the pings in the table to the number of the pruned ones."""
    op.execute(
        "INSERT INTO tally (name, value) SELECT 'pings', (SELECT count(*) FROM ping) + "
        "coalesce((SELECT value FROM tally WHERE name = 'pruned pings'), 0)"
    )
    op.execute("DELETE FROM tally WHERE name = 'pruned pings'")


def downgrade() -> None:
    """Compute the number of the pruned pings again."""
    op.execute(
        "INSERT INTO tally (name, value) SELECT 'pruned pings', value - "
        "(SELECT count(*) FROM ping) FROM tally WHERE name = 'pings'"
    )
    op.execute("DELETE FROM tally WHERE name = 'pings'")
