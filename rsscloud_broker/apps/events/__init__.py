"""The front door ``events``: feeds of everything that changed, complete and in order."""
