"""The tables of the first release."""

from rsscloud_broker.database.baseline import make_tables as upgrade

__all__ = ["upgrade"]

revision = "0001"
down_revision = None
