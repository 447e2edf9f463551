"""The sinks: they notify subscribers, and write change lists, archives and ResourceSync lists.

Each handles events from the bus, or works by the clock, and reads its work from the store.
"""
