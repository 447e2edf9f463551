r"""The broker as an application for ``twistd -y``, which takes no options of its own.

The environment variable RSSCLOUD_BROKER_CONFIG names the configuration file; without
it every key has its default::

    RSSCLOUD_BROKER_CONFIG=/etc/rsscloud-broker/broker.toml \
        twistd -n --pidfile= -y rsscloud-broker.tac

twistd's own options say what is logged and where; [log] in the configuration is ignored.

Use this file only with tools that need a .tac; otherwise ``twistd -n rsscloud-broker`` is
better.
"""

import os

from twisted.application.service import Application

from rsscloud_broker.tap import Options, makeService

options = Options()
config_file = os.environ.get("RSSCLOUD_BROKER_CONFIG")
options.parseOptions(["--config", config_file] if config_file else [])

application = Application("rsscloud-broker")
makeService(options).setServiceParent(application)
