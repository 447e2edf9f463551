"""What strangers know of each topic: nothing, if only private followers have it."""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

FITS_OLDER_NODES = True


def upgrade() -> None:
    """Add the column.  Topics that have only the river's subscriptions are known to nobody else."""
    op.add_column("topic", sa.Column("public_digest", sa.LargeBinary()))
    op.execute(
        "UPDATE topic SET public_digest = digest WHERE digest IS NOT NULL AND (EXISTS "
        "(SELECT 1 FROM subscription WHERE topic_id = topic.id AND protocol <> 'river') OR NOT "
        "EXISTS (SELECT 1 FROM subscription WHERE topic_id = topic.id))"
    )


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("topic", "public_digest")
