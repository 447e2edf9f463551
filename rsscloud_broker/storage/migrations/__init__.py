"""Brings a database to the tables of ``storage/schema.py``.

Each module in ``versions`` is one step, written by hand: a new one names the
step before it as its ``down_revision``.  A test compares where the steps lead
with the schema.  Write them with Alembic's operations, so that they run on
every database; use ``op.batch_alter_table`` to change a table, as SQLite can
do little else.
"""
