"""Where the broker replaces a part of Twisted by its own.

Everything else in the broker uses Twisted as its manual says.  What is here depends on how Twisted
works inside, so a new release of Twisted may break it.  Each part has to earn its place: decisions
0014 and 0029 have the figures, and say how to measure them again.

===================  ===========================================================================
``uvloop_reactor``   opens outgoing TCP connections by uvloop, in couriers
``adopted_port``     listens on a UNIX socket that another program opened, and leaves it usable
===================  ===========================================================================
"""
