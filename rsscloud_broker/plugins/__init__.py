"""The drop-in path of ``twisted.plugin`` for makers of front doors, notifiers and sinks.

A third-party package adds its makers by installing a module into a directory
``rsscloud_broker/plugins``, without any ``__init__.py``, anywhere on Python's path.  ``bundled``
holds the makers that come with the broker; ``runtime.plugin_discovery`` finds and checks
them all.  ``docs/examples/rsscloud-broker-example`` is an example package to copy.

Nothing else belongs here: the broker imports every module in this package when it starts, and
each must hold makers.
"""

from twisted.plugin import pluginPackagePaths

__path__.extend(pluginPackagePaths(__name__))
__all__: list[str] = []
