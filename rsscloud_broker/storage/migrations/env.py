"""What Alembic runs to migrate: on the connection that ``migrate`` opened."""

from alembic import context

from rsscloud_broker.storage.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
