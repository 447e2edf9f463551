"""The steps of migrations, oldest first by their numbers."""
