"""The database of the broker: tables, the store with its writer thread, and migrations.

The core and the sinks use ``Store``; call ``migrate`` for its database first.  Commands that work
on the database beside a running broker use ``open_database``, and the functions here that take a
connection.

Each function that takes a connection runs in a transaction that the caller has begun, and may run
again after a rollback.  ``node`` is the node id of this process; None if it has none yet.
"""

from rsscloud_broker.database.disk_space import required_space
from rsscloud_broker.database.engine import open_database
from rsscloud_broker.storage.account_store import AccountStore
from rsscloud_broker.storage.backups import BackupError, restore_backup, save_backup
from rsscloud_broker.storage.copying import Copied, copy_database
from rsscloud_broker.storage.documents import InvalidImport
from rsscloud_broker.storage.examination import (
    DatabaseRevisions,
    FileHealth,
    ServerHealth,
    database_file,
    examine,
    file_health,
    libpq_arguments,
    server_health,
    shown,
    try_backup,
)
from rsscloud_broker.storage.exchange import ImportResult, import_in_parts
from rsscloud_broker.storage.exports import export_text, left_out, write_file
from rsscloud_broker.storage.nodes import node_states, present_time
from rsscloud_broker.storage.polls import topic_statuses
from rsscloud_broker.storage.pulse import Pulse
from rsscloud_broker.storage.store import Store
from rsscloud_broker.storage.sweeping import sweep_database
from rsscloud_broker.storage.topics import revive_topic
from rsscloud_broker.storage.upgrade import NO_APPS, UnfitDatabase, migrate
