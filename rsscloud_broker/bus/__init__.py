"""The event bus: a bounded queue for each sink."""
