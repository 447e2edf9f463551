"""Links that sign a browser in once."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "sign_in_link",
        sa.Column(
            "account_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False
        ),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("account_id", name="pk_sign_in_link"),
        sa.ForeignKeyConstraint(
            ["account_id"],
            ["account.id"],
            name="fk_sign_in_link_account_id",
            ondelete="CASCADE",
        ),
        sa.UniqueConstraint("digest", name="uq_sign_in_link_digest"),
    )
    op.create_index("ix_sign_in_link_expires_at", "sign_in_link", ["expires_at"])


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("sign_in_link")
