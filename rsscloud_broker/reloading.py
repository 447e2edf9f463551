"""Reloads the configuration of a broker that runs: at SIGHUP, for ``systemctl reload``.

What a part can take while it runs, it takes: it is given here with the keys that it takes.  Of all
other keys that have changed the log says that they need a restart.  Certificates are read again
from their files.  If anything is wrong with the configuration, with an endpoint that it names or
with a certificate, nothing changes at all, and the log says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import attrs
from attrs import frozen
from twisted.logger import Logger

from rsscloud_broker.config import Config, ConfigError, Http, Network, RateLimitOptions, Topics
from rsscloud_broker.front_doors.listening import check_endpoints

#: Takes what it needs of a new configuration.
Taker: TypeAlias = Callable[[Config], object]


class Certificate(Protocol):
    """A certificate of a listener: see ``front_doors.certificates``."""

    description: str

    def read_again(self, reactor: Any) -> Any: ...
    def use(self, options: Any) -> str: ...


class _Callbacks(Protocol):
    def allow(self, networks: tuple[Network, ...]) -> None: ...


class _Topics(_Callbacks, Protocol):
    def change_body_limit(self, limit: int) -> None: ...


class _Http(Protocol):
    def change(self, http: Http) -> None: ...


class _Admission(Protocol):
    def change(self, limits: RateLimitOptions) -> None: ...


class _Access(Protocol):
    def change(self, topics: Topics) -> None: ...


@frozen
class Parts:
    """The parts of a broker that take something of a new configuration.

    :ivar topics: reads topics.
    :ivar callbacks: calls callbacks.
    :ivar http: what requests and connections are bound by.
    :ivar allow_connections: sees to it that there may be so many.
    """

    topics: _Topics
    callbacks: _Callbacks
    http: _Http
    admission: _Admission
    access: _Access
    allow_connections: Callable[[int], None]

    def takers(self) -> Mapping[str, Taker]:
        """Who takes which keys; each is a key, or the beginning of several."""
        return {
            "[egress] allow_topics": lambda new: self.topics.allow(new.egress.topic_networks),
            "[egress] allow_callbacks": lambda new: self.callbacks.allow(
                new.egress.callback_networks
            ),
            "[http]": lambda new: self.http.change(new.http),
            "[http] max_connections": lambda new: self.allow_connections(new.http.max_connections),
            "[limits]": lambda new: self.admission.change(new.limits),
            "[topics]": lambda new: self.access.change(new.topics),
            "[topics] body_limit": lambda new: self.topics.change_body_limit(new.topics.body_limit),
        }


def settings(config: Config) -> Iterator[tuple[str, Any]]:
    """Every key of a configuration as people know it, such as ``[http] body_limit``, and its value.

    The table of a plugin that has no keys stands for itself: to write it means something.
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
    """Has the parts of a broker take what has changed in its configuration.

    :param running: the configuration that the parts were made with.
    :param takers: as ``Parts.takers``.
    :param certificates: those of the listeners.
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

    def take_too(self, keys: str, taker: Taker) -> None:
        """Have somebody else take keys as well."""
        self._takers = {**self._takers, keys: taker}

    def reload(self, read: Callable[[], Config]) -> None:
        """Read the configuration again, and take what can be taken.

        :param read: reads it.
        """
        self.log.info("Reading the configuration again.")
        try:
            config, renewed, faults = self._prepare(read)
        except Exception:  # a plugin may check its options by any code
            self.log.failure("Reading the configuration again failed.")
            config, renewed, faults = None, [], []
        if config is None or faults:
            for fault in "\n".join(faults).splitlines():
                self.log.error("The configuration cannot be used: {fault}", fault=fault)
            self.log.error("Nothing was changed: the broker goes on as it was.")
            return
        try:
            self._take(config)
            self._renew(renewed)
        except Exception:
            self.log.failure(
                "Taking over the configuration failed, perhaps with a part of it in use; restart "
                "the broker to be sure."
            )
            return
        self.log.info("Reloaded the configuration.")

    def _prepare(
        self, read: Callable[[], Config]
    ) -> tuple[Config | None, list[tuple[Certificate, Any]], list[str]]:
        """Read the configuration and the certificates, and change nothing.

        :returns: the configuration, if it can be read; the certificates with what they would use;
            and what is wrong with any of it.
        """
        faults: list[str] = []
        config = None
        try:
            config = read()
            # Those of now are listened at already, which needs a restart to change.
            new = [each for each in config.listen if each not in self._running["listen"]]
            check_endpoints(new, "", self._reactor)
        except ConfigError as error:
            faults.append(str(error))
        renewed = []
        for certificate in self._certificates:
            try:
                renewed.append((certificate, certificate.read_again(self._reactor)))
            except ConfigError as error:
                faults.append(str(error))
        return config, renewed, faults

    def _renew(self, renewed: Sequence[tuple[Certificate, Any]]) -> None:
        """Have certificates use what was read for them, and log which of them are new."""
        for certificate, options in renewed:
            until = certificate.use(options)
            if until:
                self.log.info(
                    "New connections at {listen} get a new certificate, valid until {until}.",
                    listen=certificate.description,
                    until=until,
                )

    def _take(self, config: Config) -> None:
        wanted = dict(settings(config))
        changed = [
            key
            for key in {**self._running, **wanted}
            if key not in wanted or key not in self._running or wanted[key] != self._running[key]
        ]
        taken = [key for key in changed if any(map(key.startswith, self._takers))]
        for keys, taker in self._takers.items():
            if any(key.startswith(keys) for key in taken):
                taker(config)
        self._running |= {key: wanted[key] for key in taken}
        if taken:
            self.log.info("Changed: {keys}.", keys=", ".join(taken))
        if not changed:
            self.log.info("No key has another value than before.")
        left = [key for key in changed if key not in taken]
        if left:
            self.log.warn(
                "What has changed in these keys needs a restart: {keys}.", keys=", ".join(left)
            )
