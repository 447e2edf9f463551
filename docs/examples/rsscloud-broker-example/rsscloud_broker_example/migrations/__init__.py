"""The steps that migrate the tables of the application, oldest first by their numbers."""
