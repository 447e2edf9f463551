"""Who may do how much."""
