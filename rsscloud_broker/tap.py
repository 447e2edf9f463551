"""What twistd loads for ``twistd rsscloud-broker``: it makes the broker from the command line.

Most of a start is the import of ``composition``, and so of everything.  The garbage collector has
to be notified before that.
"""

from __future__ import annotations

from rsscloud_broker.runtime import memory

memory.postpone_collections()

from functools import partial

from attrs import evolve
from twisted.application.service import IService

from rsscloud_broker.composition.server import Server
from rsscloud_broker.config import ConfigError, Log
from rsscloud_broker.http.offers import FrontDoorsError
from rsscloud_broker.runtime.command_line import Options
from rsscloud_broker.runtime.logs import UnusableLog
from rsscloud_broker.runtime.plugin_discovery import PluginError, discover
from rsscloud_broker.runtime.signals import reload_at_hangup, reopen_at_request, stop_once
from rsscloud_broker.util.clock import use_monotonic_timers

__all__ = ["Options", "makeService"]


def makeService(options: Options) -> IService:
    """Build the broker's service from the command line; twistd calls this.

    :raises SystemExit: the configuration or the plugins cannot be used; the text says why, for
        people.
    """
    from twisted.internet import reactor  # noqa: PLC0415 # twistd may install another one first

    try:
        makers = discover()
        use_monotonic_timers(reactor)  # twistd has not scheduled anything yet
        stop_once(reactor)
        config = options.configuration(makers)
        is_local = bool(options["local"])
        server = Server(config, reactor, makers, is_local=is_local, twistd=options.parent)
        service = server.service
        if server.observer is None and evolve(config.log, access="") != Log():
            service.log.warn(
                "[log] of the configuration is ignored, but for the access log: this broker "
                "leaves its log to twistd (--logger, or twistd -y)."
            )
        read = partial(options.configuration, makers)
        reload_at_hangup(reactor, partial(server.reloading.reload, read))
        writes_log = server.observer is not None
        reopen_at_request(reactor, server.access_log.reopen, at_once=writes_log)
        return service
    except (ConfigError, PluginError, FrontDoorsError, UnusableLog) as error:
        # Not a UsageError: twistd shows that without a traceback only while it parses the
        # command line.
        raise SystemExit(f"rsscloud-broker: {error}") from error
