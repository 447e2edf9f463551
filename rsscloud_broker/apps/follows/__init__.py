"""The front door ``follows``: takes in the pings of other brokers.

All other front doors wait for callers.  This one calls: each minute it reads the change lists and
the feeds that the configuration names, or when a hub says that they have changed, and takes in the
pings that are new.

``options``    the keys of the configuration
``parts``      what its modules have in common
``lists``      follows a change list
``documents``  reads change lists and archives, and takes their pings in
``archives``   reads the archives of hours in which a list was not read
``feeds``      follows a feed of pings
``pushing``    subscribes to lists and feeds at their hubs
``door``       the front door, which joins these
"""
