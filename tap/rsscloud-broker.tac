r"""The broker as an application for ``twistd -y``, which takes no options of its own.

The configuration file is the one that the environment variable
RSSCLOUD_BROKER_CONFIG names; without it everything has its default::

    RSSCLOUD_BROKER_CONFIG=/etc/rsscloud-broker/broker.toml \
        twistd -n --pidfile= -y rsscloud-broker.tac

What is logged, and where to, is said by twistd's own options; [log] in the configuration
is not heeded.

Where nothing asks for a .tac, ``twistd -n rsscloud-broker`` is the better way.
"""

import os

from twisted.application.service import Application

from rsscloud_broker.tap import Options, makeService

options = Options()
config_file = os.environ.get("RSSCLOUD_BROKER_CONFIG")
options.parseOptions(["--config", config_file] if config_file else [])

application = Application("rsscloud-broker")
makeService(options).setServiceParent(application)
