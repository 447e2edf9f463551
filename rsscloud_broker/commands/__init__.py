"""The ``rsscloud-broker`` command: to talk to a broker, and to look after one.

A thin layer over ``client``, ``storage`` and ``discovery``, which do the work.

``talking``   talks to any broker: ping, publish, listen, feed-state, resourcesync
``tending``   looks after a broker: export, import, sweep, topic
``checking``  tells beforehand what a broker would do: check-config, plugins
``shared``    what all of them need: common options, and how errors are shown
"""

# Importing a module of commands adds them to the group.
from rsscloud_broker.commands import checking, talking, tending
from rsscloud_broker.commands.shared import main

__all__ = ["checking", "main", "talking", "tending"]
