"""The ``rsscloud-broker`` command, with which people talk to a broker and look after one.

It is a thin layer over ``client``, ``storage`` and ``discovery``, which do the work.

``talking``   talks to any broker: ping, publish, listen, feed-state, resourcesync
``tending``   looks after a broker: export, import, sweep, topic
``checking``  examines a configuration: check-config, plugins
``doctor``    examines an installed broker, or a feed: doctor
``shared``    has the options and the error messages that all commands share
"""

# Importing these modules adds their commands to the group.
from rsscloud_broker.commands import checking, doctor, talking, tending
from rsscloud_broker.commands.shared import main

__all__ = ["checking", "doctor", "main", "talking", "tending"]
