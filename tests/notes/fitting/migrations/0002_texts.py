"""Notes have texts."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

FITS_OLDER_NODES = True


def upgrade() -> None:
    """Add the column."""
    with op.batch_alter_table("notes_note") as table:
        table.add_column(sa.Column("text", sa.Text(), nullable=False, server_default=""))
