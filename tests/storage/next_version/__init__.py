"""A made-up next version of the broker's tables, with one step more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from attrs import evolve

from rsscloud_broker.storage import examination, upgrade

#: The steps to the tables of this version, and the one to those of the next.
MIGRATIONS = f"{upgrade._OF_BROKER.migrations}\ntests.storage.next_version:migrations"

REVISION = f"{int(upgrade.LATEST_REVISION) + 1:04}"


@contextmanager
def installed() -> Iterator[None]:
    """Have ``migrate`` and ``examine`` be those of the next version, within a ``with``."""
    tables = evolve(upgrade._OF_BROKER, migrations=MIGRATIONS, latest=REVISION)
    with (
        patch.object(upgrade, "_OF_BROKER", tables),
        patch.object(examination, "LATEST_REVISION", REVISION),
    ):
        yield
