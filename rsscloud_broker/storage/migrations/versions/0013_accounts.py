"""Accounts, sessions and API tokens."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _owner(table: str) -> tuple[sa.Column, sa.ForeignKeyConstraint]:  # type: ignore[type-arg] # of any type
    return (
        sa.Column("account_id", _KEY, nullable=False),
        sa.ForeignKeyConstraint(
            ["account_id"], ["account.id"], name=f"fk_{table}_account_id", ondelete="CASCADE"
        ),
    )


def upgrade() -> None:
    """Make the tables.  There are no accounts yet."""
    op.create_table(
        "account",
        sa.Column("id", _KEY, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("password", sa.Text(), nullable=False),
        sa.Column("is_admin", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("signed_in_at", sa.BigInteger()),
        sa.PrimaryKeyConstraint("id", name="pk_account"),
        sa.UniqueConstraint("name", name="uq_account_name"),
        sqlite_autoincrement=True,
    )
    column, reference = _owner("session")
    op.create_table(
        "session",
        sa.Column("id", _KEY, nullable=False),
        column,
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("used_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("browser", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_session"),
        reference,
        sa.UniqueConstraint("digest", name="uq_session_digest"),
        sqlite_autoincrement=True,
    )
    column, reference = _owner("token")
    op.create_table(
        "token",
        sa.Column("id", _KEY, nullable=False),
        column,
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("scopes", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger()),
        sa.Column("used_at", sa.BigInteger()),
        sa.PrimaryKeyConstraint("id", name="pk_token"),
        reference,
        sa.UniqueConstraint("digest", name="uq_token_digest"),
        sqlite_autoincrement=True,
    )
    for table, columns in (
        ("session", ("account_id", "used_at", "expires_at")),
        ("token", ("account_id", "expires_at")),
    ):
        for name in columns:
            op.create_index(f"ix_{table}_{name}", table, [name])


def downgrade() -> None:
    """Drop the tables, and with them all accounts."""
    for table in ("token", "session", "account"):
        op.drop_table(table)
