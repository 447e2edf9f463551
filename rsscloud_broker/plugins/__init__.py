"""Where makers of front doors, notifiers and sinks are found.

This package is a drop-in path of ``twisted.plugin``: a package of somebody
else's adds its makers by installing a module into a directory of this name,
``rsscloud_broker/plugins``, without any ``__init__.py``, anywhere on the path of
Python.  ``bundled`` holds the makers that come with the broker;
``rsscloud_broker.discovery`` finds and checks them all, and a package to copy is
in ``docs/examples/rsscloud-broker-example``.

Nothing else belongs here: every module in this package is imported at start-up
and must hold makers, and each becomes a name in this one.
"""

from twisted.plugin import pluginPackagePaths

__path__.extend(pluginPackagePaths(__name__))
__all__: list[str] = []
