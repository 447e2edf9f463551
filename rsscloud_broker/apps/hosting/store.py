"""The store of the application: each method is one transaction on the database."""

from __future__ import annotations

from rsscloud_broker.apps.hosting import rows
from rsscloud_broker.database import reading, writing
from rsscloud_broker.interfaces import IDatabase


class HostingStore:
    """Keeps files and their versions.  Saves and removals of topics go through ``IPublisher``."""

    def __init__(self, database: IDatabase) -> None:
        self._database = database

    save = writing(rows.save)
    remove = writing(rows.remove)
    files = reading(rows.files)
    versions = reading(rows.versions)
    one_version = reading(rows.one_version)
    present = reading(rows.present)
