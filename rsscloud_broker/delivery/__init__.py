"""Tells subscribers: walks, attempts, limits, breakers, retries, and the notifiers."""
