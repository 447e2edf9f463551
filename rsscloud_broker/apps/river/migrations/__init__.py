"""The steps that migrate the tables of the river; Alembic runs them."""
