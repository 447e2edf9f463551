"""The bytes of uploads are in the database, and names of removed accounts are remembered."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables.  Uploads until now have no bytes in the database, so they are not whole."""
    op.add_column(
        "writing_upload",
        sa.Column("is_whole", sa.Boolean(), nullable=False, server_default=sa.false()),
    )
    op.create_table(
        "writing_chunk",
        sa.Column("upload_id", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("upload_id", "number", name="pk_writing_chunk"),
    )
    op.create_table(
        "writing_former",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("base", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("next_id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_writing_former"),
    )
