"""The front door ``follows``: takes in the pings of other brokers.

All other front doors wait for callers.  This one calls: each minute it reads the change lists and
the feeds that the configuration names, or when a hub says that they have changed, and takes in the
pings that are new.
"""
