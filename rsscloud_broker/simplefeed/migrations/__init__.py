"""The steps that migrate the tables of logs, for Alembic."""
