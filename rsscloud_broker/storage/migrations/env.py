"""What Alembic runs to migrate: on the connection that ``migrate`` opened.

It runs for the tables of the broker, and for those of each application.
"""

from alembic import context

from rsscloud_broker.storage.schema import metadata

given = context.config.attributes
context.configure(
    connection=given["connection"],
    target_metadata=given.get("target_metadata", metadata),
    version_table=given.get("version_table", "alembic_version"),
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
