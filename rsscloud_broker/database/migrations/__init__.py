"""The steps of tables that are as in the first release: see ``columns.FIRST_RELEASE``."""
