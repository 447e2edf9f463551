"""The steps that migrate the tables of the authoring tool, run by Alembic."""
