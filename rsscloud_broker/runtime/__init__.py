"""The running process: service, signals, logs, reloading, checks before the start, plugins."""
