"""The verbs of the broker, change detection and leases.  Knows no HTTP and no SQL."""
