"""Applies a changed configuration while the broker runs: at SIGHUP, for ``systemctl reload``.

``Server.takers`` lists the keys that can change while the broker runs, with the part that takes
each.  If other keys have changed, the log says that they need a restart.  Certificates are read
again from their files.  If the configuration, an endpoint in it or a certificate is faulty, nothing
changes at all, and the log says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import attrs
from twisted.logger import Logger

from rsscloud_broker.config import Config, ConfigError
from rsscloud_broker.http.certificates import Certificate
from rsscloud_broker.http.listening import check_endpoints

#: Applies some keys of a new configuration to a part.
Taker: TypeAlias = Callable[[Config], object]


def settings(config: Config) -> Iterator[tuple[str, Any]]:
    """Every key of a configuration, written like ``[http] body_limit``, with its value.

    The empty table of a plugin counts as a key, since it enables the plugin.
    """
    for key in attrs.fields(Config):
        value = getattr(config, key.name)
        if attrs.has(type(value)):
            for name, inner in attrs.asdict(value, recurse=False).items():
                yield f"[{key.name}] {name}", inner
        elif isinstance(value, Mapping):
            for plugin, table in value.items():
                if not table:
                    yield f"[{key.name}.{plugin}]", None
                for name, inner in table.items():
                    yield f"[{key.name}.{plugin}] {name}", inner
        else:
            yield key.name, value


class Reloading:
    """Applies a changed configuration to the parts of a running broker.

    :param running: the configuration that the parts were made with.
    :param takers: what takes changed keys, by these keys; a name may also be the beginning of
        several keys.
    :param certificates: the certificates of the listeners.
    """

    log = Logger()

    def __init__(
        self,
        running: Config,
        takers: Mapping[str, Taker],
        certificates: Sequence[Certificate],
        reactor: Any,
    ) -> None:
        self._running = dict(settings(running))
        self._takers = takers
        self._certificates = certificates
        self._reactor = reactor

    def reload(self, read: Callable[[], Config]) -> None:
        """Read the configuration again, and apply the changes that need no restart.

        :param read: reads the configuration; may raise ConfigError.
        """
        self.log.info("Reading the configuration again.")
        try:
            config, renewed, faults = self._read_all(read)
        except Exception:  # a plugin's validators may raise anything
            self.log.failure("Reading the configuration again failed.")
            config, renewed, faults = None, [], []
        if config is None or faults:
            for fault in "\n".join(faults).splitlines():
                self.log.error("The configuration cannot be used: {fault}", fault=fault)
            self.log.error("Nothing was changed: the broker goes on as it was.")
            return
        try:
            self._apply_changes(config)
            self._use_certificates(renewed)
        except Exception:
            self.log.failure(
                "Taking over the configuration failed, perhaps with a part of it in use; restart "
                "the broker to be sure."
            )
            return
        self.log.info("Reloaded the configuration.")

    def _read_all(
        self, read: Callable[[], Config]
    ) -> tuple[Config | None, list[tuple[Certificate, Any]], list[str]]:
        """Read the configuration and the certificates, without changing anything.

        :returns: the configuration, or None if it is faulty; each certificate with the options
            that it would use; and all faults.
        """
        faults: list[str] = []
        config = None
        try:
            config = read()
            # The broker listens at its present endpoints already, so only new ones are checked.
            running = (*self._running["listen"], *self._running["[metrics] listen"])
            new = [each for each in config.all_listen if each not in running]
            kept = [each for each in config.all_listen if each in running]
            check_endpoints(new, self._reactor, beside=kept)
        except ConfigError as error:
            faults.append(str(error))
        renewed = []
        for certificate in self._certificates:
            try:
                renewed.append((certificate, certificate.read_again(self._reactor)))
            except ConfigError as error:
                faults.append(str(error))
        return config, renewed, faults

    def _use_certificates(self, renewed: Sequence[tuple[Certificate, Any]]) -> None:
        """Have certificates use the options that were read for them, and log which changed."""
        for certificate, options in renewed:
            until = certificate.use(options)
            if until:
                self.log.info(
                    "New connections at {listen} get a new certificate, valid until {until}.",
                    listen=certificate.description,
                    until=until,
                )

    def _apply_changes(self, config: Config) -> None:
        """Have the parts take the keys that have changed, and log which need a restart."""
        wanted = dict(settings(config))
        changed = [
            key
            for key in {**self._running, **wanted}
            if key not in wanted or key not in self._running or wanted[key] != self._running[key]
        ]
        applied = [key for key in changed if any(map(key.startswith, self._takers))]
        for keys, taker in self._takers.items():
            if any(key.startswith(keys) for key in applied):
                taker(config)
        self._running |= {key: wanted[key] for key in applied}
        if applied:
            self.log.info("Changed: {keys}.", keys=", ".join(applied))
        if not changed:
            self.log.info("No key has another value than before.")
        left = [key for key in changed if key not in applied]
        if left:
            self.log.warn(
                "What has changed in these keys needs a restart: {keys}.", keys=", ".join(left)
            )
