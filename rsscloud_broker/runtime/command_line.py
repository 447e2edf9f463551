"""The command line of ``twistd rsscloud-broker``, merged with the configuration file."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from twisted.python import usage

from rsscloud_broker import __version__
from rsscloud_broker import config as configuration
from rsscloud_broker.config import Config
from rsscloud_broker.runtime.plugin_discovery import Makers, bundled, faults

LOOPBACK = ("127.0.0.0/8", "::1/128")
LOCAL_LISTEN = "tcp:5337:interface=127.0.0.1"


class Options(usage.Options):
    """The command line.  Its options override the configuration file."""

    synopsis = "[options]"
    longdesc = "Runs a notification broker. Without options it listens on port 5337."
    optParameters: ClassVar[list[list[Any]]] = [
        # An absolute path: SIGHUP reads the file again, perhaps in another working directory.
        ["config", "c", None, "A configuration file (TOML).", os.path.abspath],
        ["data", "d", None, "The directory of everything the broker keeps."],
        ["public-url", "u", None, "Where others reach the broker: http(s)://HOST[:PORT]."],
        ["couriers", None, None, "How many processes call other servers: a number, or auto."],
    ]
    optFlags: ClassVar[list[list[str | None]]] = [
        ["local", None, "For a laptop: allow feeds and callbacks on loopback, listen only there."]
    ]

    def __init__(self) -> None:
        super().__init__()
        self["listen"] = []

    def opt_listen(self, endpoint: str) -> None:
        """Where to listen: a Twisted endpoint such as tcp:5337; may be repeated."""
        self["listen"].append(endpoint)

    opt_l = opt_listen

    def opt_version(self) -> None:
        """Print the version of the broker."""
        sys.stdout.write(f"rsscloud-broker {__version__}\n")
        raise SystemExit(0)

    def configuration(self, makers: Makers | None = None) -> Config:
        """The configuration: the file, overridden by the command line.

        :param makers: the plugins that were found, to check their tables; None for no check.
        :raises ConfigError: the file or an option cannot be used.
        """
        check = partial(_faults, makers, local=self["local"]) if makers else None
        config = configuration.load(self["config"], check)
        values: dict[str, Any] = {
            "data": self["data"],
            "public_url": self["public-url"],
            "listen": tuple(self["listen"]) or None,
        }
        if couriers := self["couriers"]:
            values["delivery"] = configuration.override(
                config.delivery,
                "--couriers",
                processes=int(couriers) if couriers.isdecimal() else couriers,
            )
        override = partial(configuration.override, where="the command line")
        config = override(config, **{k: v for k, v in values.items() if v is not None})
        return _local(config, makers) if self["local"] else config


def _local(config: Config, makers: Makers | None) -> Config:
    """Allow loopback for topics and callbacks, without rate limits, listen only there, and run
    the applications that come with the broker.

    ``listen`` is kept if it was set.  The public URL becomes one for a browser on this machine.
    """
    egress = configuration.override(
        config.egress,
        "--local",
        allow_topics=(*config.egress.allow_topics, *LOOPBACK),
        allow_callbacks=(*config.egress.allow_callbacks, *LOOPBACK),
    )
    limits = configuration.override(
        config.limits, "--local", exempt=(*config.limits.exempt, *LOOPBACK)
    )
    listen = (LOCAL_LISTEN,) if config.listen == Config().listen else config.listen
    local = configuration.override(config, "--local", egress=egress, limits=limits, listen=listen)
    apps = _with_bundled(makers, config.apps) if makers else config.apps
    return configuration.override(local, "--local", public_url=local.address, apps=apps)


def _with_bundled(makers: Makers, tables: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of applications, by which those that come with the broker run."""
    apps = {name: {"enabled": True} for name in bundled(makers.apps)}
    return {name: apps.get(name, {}) | tables.get(name, {}) for name in {*apps, *tables}}


def _faults(makers: Makers, document: Mapping[str, Any], *, local: bool) -> list[str]:
    """The faults in the tables of plugins, also of applications that run because of ``--local``."""
    apps = document.get("apps", {})
    are_tables = isinstance(apps, dict) and all(isinstance(each, dict) for each in apps.values())
    if local and are_tables:  # else `config` reports it
        document = {**document, "apps": _with_bundled(makers, apps)}
    return faults(makers, document)
