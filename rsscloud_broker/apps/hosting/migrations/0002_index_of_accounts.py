"""An index of the accounts of files, so that those of one are found among very many."""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

FITS_OLDER_NODES = True


def upgrade() -> None:
    """Make the index."""
    op.create_index("ix_hosting_feed_account_id", "hosting_feed", ["account_id"])


def downgrade() -> None:
    """Remove the index."""
    op.drop_index("ix_hosting_feed_account_id", "hosting_feed")
