"""The second version of the application."""
