"""The interface of the database, for those who have tables of their own in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from zope.interface import Interface


class IDatabase(Interface):
    """Runs operations on the database, outside the reactor's thread.

    An operation is a function that takes an SQLAlchemy ``Connection``.  It runs in a transaction,
    and runs again if the database lost its work, so it must do nothing else than read and write
    there.  ``rsscloud_broker.database.methods`` turns such functions into methods.

    Both methods raise what the operation raises, and then nothing of it is stored; and
    ``Unavailable`` if the database cannot be used now.
    """

    def read(operation: Callable[[Any], Any]) -> Awaitable[Any]:
        """Run an operation that only reads, and return its result."""

    def write(operation: Callable[[Any], Any]) -> Awaitable[Any]:
        """Run an operation that writes.  When this returns its result, the changes are on disk."""
