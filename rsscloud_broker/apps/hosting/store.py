"""The store of the application: each method is one transaction on the database."""

from __future__ import annotations

from typing import cast

from twisted.internet.defer import Deferred

from rsscloud_broker.apps.hosting import rows
from rsscloud_broker.apps.hosting.saving import Save, Saved, save_all
from rsscloud_broker.database.methods import Batched, reading, writing
from rsscloud_broker.interfaces import IDatabase


class HostingStore:
    """Keeps files and their versions.

    ``save`` and ``remove`` are for files that are no topics.  ``Hosting`` saves and removes topics
    by ``IPublisher``, which stores the version and the change of the topic in one transaction.
    """

    def __init__(self, database: IDatabase) -> None:
        self._database = database

    def save(self, wanted: Save) -> Deferred[Saved]:
        """Store a new version of a file that is no topic, with others that are saved now."""
        return cast("Deferred[Saved]", self._database.write(Batched(save_all, wanted)))

    remove = writing(rows.remove)
    files = reading(rows.files)
    files_named = reading(rows.files_named)
    versions = reading(rows.versions)
    one_version = reading(rows.one_version)
    present = reading(rows.present)
    public_file = reading(rows.public_file)
    next_file_of = reading(rows.next_file_of)
    disown = writing(rows.disown)
