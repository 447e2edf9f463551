"""Plugins for rsscloud-broker: a sink, a notifier, a front door and an application.

Each has a module, with an attrs class of options, a class that does the work and
a maker.  What a plugin may use is handed to its maker: none of them imports the
reactor, opens a connection of its own or looks into the database.
"""
