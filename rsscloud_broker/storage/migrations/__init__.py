"""Brings a database to the tables of ``storage/schema.py``.

Each module in ``versions`` is one step, written by hand: a new one names the step before it as its
``down_revision``.  ``0001_baseline`` stands for the tables of version 1.0.0.  No database runs it,
since a new one gets the tables of the schema at once; the tests of later steps begin with it.  It
makes the tables of the schema, which are still those of 1.0.0.  Who writes the first step after it
first writes the tables of 1.0.0 into the baseline, which never changes again.  A test compares
where the steps lead with the schema.

Write the steps with Alembic's operations, so that they run on every database; use
``op.batch_alter_table`` to change a table, as SQLite can do little else.

A step says ``FITS_OLDER_NODES = True`` if nodes of the version before it can work on while it runs
and afterwards: it only adds tables, indexes, or columns that may be null or have a default, and
older nodes need not fill them.  It must be quick, since it locks what it changes.  A version whose
steps all say so can be started while older nodes work; any other one asks the operator to stop them
first.
"""
