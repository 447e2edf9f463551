"""What reacts to events: distribution to subscribers, change lists, archives."""
