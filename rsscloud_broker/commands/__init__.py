"""The ``rsscloud-broker`` command: to talk to a broker, and to look after one.

A thin layer over ``client``, ``storage`` and ``discovery``, which do the work.

``talking``  talks to any broker: ping, publish, listen, feed-state, resourcesync
``tending``  looks after a broker: check-config, export, import, sweep, topic
``shared``   what both need: the options they share, and how errors are shown
"""

# Importing a module of commands adds them to the group.
from rsscloud_broker.commands import talking, tending
from rsscloud_broker.commands.shared import main

__all__ = ["main", "talking", "tending"]
