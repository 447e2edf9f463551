"""How the broker learned that a topic may have changed, while it waits to be fetched."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

FITS_OLDER_NODES = True

_COLUMNS = ("check_way", "check_origin")


def upgrade() -> None:
    """Add the columns.  Nothing is known of the checks that wait now."""
    for name in _COLUMNS:
        op.add_column("topic", sa.Column(name, sa.Text(), nullable=False, server_default=""))


def downgrade() -> None:
    """Drop the columns."""
    for name in _COLUMNS:
        op.drop_column("topic", name)
