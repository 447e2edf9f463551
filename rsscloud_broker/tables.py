"""What all tables of the database have in common: how their parts are named, and how values are
stored in their columns.

Times are whole microseconds since the epoch (UTC) in BIGINT columns, which are exact and the same
in SQLite and PostgreSQL.  They become seconds as floats when rows become model classes.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Integer, MetaData, Table

MICROSECONDS = 1_000_000


def to_micros(seconds: float) -> int:
    """Convert seconds since the epoch to whole microseconds, as they are stored."""
    return round(seconds * MICROSECONDS)


def to_seconds(micros: int) -> float:
    """Convert stored microseconds to seconds since the epoch."""
    return micros / MICROSECONDS


def to_seconds_or_none(micros: int | None) -> float | None:
    """As ``to_seconds``, for a column that may be null."""
    return None if micros is None else to_seconds(micros)


def to_micros_or_none(seconds: float | None) -> int | None:
    """As ``to_micros``, for a column that may be null."""
    return None if seconds is None else to_micros(seconds)


def new_metadata() -> MetaData:
    """A collection of tables whose keys and indexes have names that migrations can refer to."""
    return MetaData(
        naming_convention={
            "pk": "pk_%(table_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "uq": "uq_%(table_name)s_%(column_0_name)s",
            "ix": "ix_%(table_name)s_%(column_0_name)s",
        }
    )


#: The type of ids.  SQLite assigns ids by itself only for a column of type INTEGER.
Key = BigInteger().with_variant(Integer(), "sqlite")

_ACCOUNTS = Table("account", MetaData(), Column("id", Key, primary_key=True))


def of_account() -> ForeignKey:
    """Makes a column of an application refer to an account.

    The rows with that column are deleted together with the account, whoever deletes it.
    """
    return ForeignKey(_ACCOUNTS.c.id, ondelete="CASCADE")
