"""The configuration: one TOML file, which is read and checked before anything starts.

Every key has a default, so an empty file, or none, is a valid configuration; ``example.toml``,
beside this module, names all keys.  Nothing is converted silently: ``"5"`` is not a number, and an
unknown key is an error.  A `ConfigError` lists all faults, a line for each, and each line names the
file, the key and the rule.

The tables of plugins are kept as they were read.  Each plugin has an attrs class for its options,
and `build` checks them by the same rules.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

import attrs
from attrs import field, frozen
from attrs.validators import and_, deep_iterable, ge, gt, in_, le, optional

from rsscloud_broker.config.accounts import AccountsConfig
from rsscloud_broker.config.building import ConfigError, broken_rule, build
from rsscloud_broker.config.couriers import DeliveryConfig
from rsscloud_broker.config.endpoint_text import arguments
from rsscloud_broker.config.lines import with_line
from rsscloud_broker.config.logging import Log
from rsscloud_broker.config.validators import (
    holds_tables,
    is_database,
    is_endpoint,
    is_name_server,
    is_network,
    is_path,
    is_public_url,
    is_token,
    not_empty,
)
from rsscloud_broker.model.disclosure import Mode
from rsscloud_broker.model.work import Bounds
from rsscloud_broker.util.urls import normal_form
from rsscloud_broker.wire.units import DAY

T = TypeVar("T", bound=attrs.AttrsInstance)
Network: TypeAlias = IPv4Network | IPv6Network
_Attribute: TypeAlias = "attrs.Attribute[Any]"
#: Finds further faults in a parsed document, a line for each.
Check: TypeAlias = Callable[[Mapping[str, Any]], Iterable[str]]


def _as_base(url: str | None) -> str | None:
    """The public URL in normal form, without a slash at the end.

    The broker's own files are topics, and topics are found by their normal form.
    """
    return normal_form(url).rstrip("/") if url else url


_networks = deep_iterable(is_network)


# --- the keys ---------------------------------------------------------------


@frozen
class Egress:
    """``[egress]``: where outgoing requests may go, beside the public internet.

    :ivar allow_topics: networks (CIDRs) from which topics may be fetched.
    :ivar allow_callbacks: networks (CIDRs) in which callbacks may be called.
    :ivar name_servers: name servers that are asked for addresses, ADDRESS or ADDRESS:PORT;
        empty for those of the system.
    """

    allow_topics: tuple[str, ...] = field(default=(), validator=_networks)
    allow_callbacks: tuple[str, ...] = field(default=(), validator=_networks)
    name_servers: tuple[str, ...] = field(default=(), validator=deep_iterable(is_name_server))

    @property
    def topic_networks(self) -> tuple[Network, ...]:
        """``allow_topics``, parsed."""
        return tuple(map(ip_network, self.allow_topics))

    @property
    def callback_networks(self) -> tuple[Network, ...]:
        """``allow_callbacks``, parsed."""
        return tuple(map(ip_network, self.allow_callbacks))


@frozen
class Http:
    """``[http]``: limits on incoming requests.

    :ivar body_limit: the largest body of a request, in bytes.
    :ivar idle_timeout: seconds that a connection may stay open without a request, or without its
        client reading the answer.
    :ivar max_connections: how many connections may be open at the same time.
    :ivar max_connections_per_address: how many of them may come from one address; trusted
        proxies, which pass on the requests of many clients, are not counted.
    :ivar trusted_proxies: networks (CIDRs) of proxies whose ``X-Forwarded-For`` is believed.
    :ivar local_programs: whether requests from a loopback address come from programs on this
        machine, which may read the metrics, and send passwords without TLS: ``always``, ``never``,
        or ``auto``: if ``public_url`` names this machine, or ``trusted_proxies`` names the address.
    """

    body_limit: int = field(default=65_536, validator=ge(1))
    idle_timeout: float = field(default=60.0, validator=and_(gt(0), le(DAY)))
    max_connections: int = field(default=2000, validator=ge(1))
    max_connections_per_address: int = field(default=200, validator=ge(1))
    trusted_proxies: tuple[str, ...] = field(default=(), validator=_networks)
    local_programs: str = field(default="auto", validator=in_(("auto", "always", "never")))

    @property
    def proxy_networks(self) -> tuple[Network, ...]:
        """``trusted_proxies``, parsed."""
        return tuple(map(ip_network, self.trusted_proxies))


_rate = and_(ge(0.0), le(1_000_000.0))


@frozen
class RateLimitOptions:
    """``[limits]``: rate limits, so that nobody can use the broker to flood other servers.

    Rates are numbers per second; 0 is no limit.  A burst is how many requests may come at once
    after a quiet time.  A registration needs a verification for each of its topics: the broker
    fetches the topic and calls the callback.

    :ivar pings_per_source: pings from one address.
    :ivar pings_per_day: pings from one address in a day; 0 is no limit.
    :ivar fetches_per_host: fetches from one host, caused by pings, of topics without subscribers.
    :ivar verifications_per_source: verifications that one address requests.
    :ivar verifications_per_host: verifications that name one host: the host of the topic, or
        that of a callback which is not the caller's own.
    :ivar subscriptions_per_host: how many subscriptions may have callbacks at one host; 0 is no
        limit.
    :ivar exempt: networks (CIDRs) whose callers are not limited.
    """

    pings_per_source: float = field(default=100.0, validator=_rate)
    pings_burst: int = field(default=2000, validator=ge(1))
    pings_per_day: int = field(default=200_000, validator=and_(ge(0), le(1_000_000_000)))
    fetches_per_host: float = field(default=1.0, validator=_rate)
    fetches_host_burst: int = field(default=60, validator=ge(1))
    verifications_per_source: float = field(default=10.0, validator=_rate)
    verifications_burst: int = field(default=2000, validator=ge(1))
    verifications_per_host: float = field(default=50.0, validator=_rate)
    verifications_host_burst: int = field(default=5000, validator=ge(1))
    subscriptions_per_host: int = field(default=100_000, validator=ge(0))
    exempt: tuple[str, ...] = field(default=(), validator=_networks)

    @property
    def exempt_networks(self) -> tuple[Network, ...]:
        """``exempt``, parsed."""
        return tuple(map(ip_network, self.exempt))


@frozen
class Storage:
    """``[storage]``: how much the broker stores.

    The database keeps the contents of topics for notifications that carry them.  When the limit
    is reached, the oldest contents that are kept only for retries are deleted.  No notification is
    lost by that: the topic is fetched again.

    :ivar min_free_mb: while fewer megabytes are free on the disk of ``data``, pings and
        subscriptions are refused; a free tenth of the disk is always enough, and 0 is no limit.
    :ivar content_bytes: bytes of all contents; those from one host may have half of them.
    :ivar failed_attempts: of how many failed notifications the request and the answer are kept for
        administrators; up to 4 KB of each body.
    """

    min_free_mb: int = field(default=100, validator=ge(0))
    # At least two of the largest contents that are fetched, with what is stored beside them.
    content_bytes: int = field(default=144 * 1024**2, validator=ge(2 * 68_000_000))
    failed_attempts: int = field(default=10_000, validator=ge(0))

    @property
    def bounds(self) -> Bounds:
        """The limits, in the form that the store takes."""
        return Bounds(
            contents=self.content_bytes,
            contents_of_host=self.content_bytes // 2,
            failed_attempts=self.failed_attempts,
        )


@frozen
class Topics:
    """``[topics]``: which topics callers may subscribe to and ping.

    Patterns are compared with whole URLs: ``*`` stands for any characters, ``?`` for one,
    ``[...]`` for one of a set.

    :ivar subscribe: patterns of topics that callers may subscribe to.
    :ivar publish: patterns of topics that callers may ping.
    :ivar body_limit: the largest content of a topic in bytes, decompressed; larger ones are not
        accepted.
    """

    subscribe: tuple[str, ...] = ("*",)
    publish: tuple[str, ...] = ("*",)
    body_limit: int = field(default=5 * 1024 * 1024, validator=and_(ge(1024), le(64 * 1024 * 1024)))


def _not_below_floor(table: Polling, key: _Attribute, seconds: float) -> None:
    """Require an interval that is not below ``min_interval``."""
    if seconds < table.min_interval:
        raise ValueError(f"'{key.name}' is {seconds:g}; it must be at least 'min_interval'")


@frozen
class Polling:
    """``[polling]``: how often the broker polls topics that have subscribers.

    Within these bounds the broker follows the hints of the feed and of its server.

    :ivar enabled: whether topics are polled.
    :ivar min_interval: the shortest pause between two polls, in seconds.
    :ivar max_interval: the longest pause; also the pause of a topic that is pinged.
    """

    enabled: bool = True
    min_interval: float = field(default=900.0, validator=and_(ge(1), le(DAY)))
    max_interval: float = field(default=86_400.0, validator=and_(_not_below_floor, le(7 * DAY)))


@frozen
class Pages:
    """``[pages]``: what pages show to people without an account.

    :ivar callbacks: how much of callbacks' URLs and of clients' addresses: ``url`` (the URL
        without its query, the whole address), ``host`` (the host, the network of the address) or
        ``none``.
    """

    callbacks: Mode = field(default="host", validator=in_(("url", "host", "none")))


@frozen
class Metrics:
    """``[metrics]``: who may read ``/metrics``, ``/health/live`` and ``/health/ready``.

    Programs on this machine may, and those that send the token.

    :ivar enabled: whether the broker has these addresses.
    :ivar token: the token that programs send as ``Authorization: Bearer TOKEN``; empty for none.
    :ivar listen: endpoints for these addresses alone, which the other endpoints then lack.  Without
        a token everybody who can connect there may read them.
    """

    enabled: bool = True
    token: str = field(default="", repr=False, validator=is_token)
    listen: tuple[str, ...] = field(default=(), validator=deep_iterable(is_endpoint))


@frozen
class Config:
    """The whole configuration.

    :ivar data: the data directory, which holds all files of the broker.
    :ivar database: an SQLAlchemy URL; None for a SQLite file in ``data``.
    :ivar listen: descriptions of Twisted endpoints.
    :ivar public_url: the URL by which others reach the broker, without a slash at the end; None
        to derive it from ``listen``.
    :ivar front_doors: the tables of front doors by name, as they were read.
    :ivar notifiers: the tables of notifiers by name, as they were read.
    :ivar sinks: the tables of sinks by name, as they were read.
    :ivar checkers: the tables of credentials checkers by name, as they were read.
    :ivar apps: the tables of applications by name, as they were read.
    """

    data: str = field(default="rsscloud-broker-data", validator=and_(not_empty, is_path))
    database: str | None = field(default=None, validator=optional(and_(is_path, is_database)))
    listen: tuple[str, ...] = field(
        default=("tcp:5337",), validator=and_(not_empty, deep_iterable(is_endpoint))
    )
    public_url: str | None = field(
        default=None, converter=_as_base, validator=optional(is_public_url)
    )
    egress: Egress = field(factory=Egress)
    delivery: DeliveryConfig = field(factory=DeliveryConfig)
    http: Http = field(factory=Http)
    limits: RateLimitOptions = field(factory=RateLimitOptions)
    topics: Topics = field(factory=Topics)
    polling: Polling = field(factory=Polling)
    storage: Storage = field(factory=Storage)
    pages: Pages = field(factory=Pages)
    accounts: AccountsConfig = field(factory=AccountsConfig)
    metrics: Metrics = field(factory=Metrics)
    log: Log = field(factory=Log)
    front_doors: dict[str, Any] = field(factory=dict, validator=holds_tables)
    notifiers: dict[str, Any] = field(factory=dict, validator=holds_tables)
    sinks: dict[str, Any] = field(factory=dict, validator=holds_tables)
    checkers: dict[str, Any] = field(factory=dict, validator=holds_tables)
    apps: dict[str, Any] = field(factory=dict, validator=holds_tables)

    @property
    def all_listen(self) -> tuple[str, ...]:
        """The endpoints of everybody, and those of ``[metrics]``."""
        return (*self.listen, *(self.metrics.listen if self.metrics.enabled else ()))

    @property
    def database_url(self) -> str:
        """The SQLAlchemy URL of the database: ``database``, or its default."""
        if self.database is not None:
            return self.database
        # Imported here, since commands that only talk to a broker have no database.
        from sqlalchemy.engine import URL  # noqa: PLC0415

        file = URL.create("sqlite", database=str(Path(self.data, "broker.sqlite")))
        return file.render_as_string(hide_password=False)

    @property
    def address(self) -> str:
        """``public_url``, or the local address if that is not set."""
        return self.local_address if self.public_url is None else self.public_url

    @property
    def local_address(self) -> str:
        """A URL for a browser on this machine, without a slash at the end.

        It has no port if the first endpoint names none, or names port 0.
        """
        kind = self.listen[0].partition(":")[0]
        port = arguments(self.listen[0], "port").get("port", "")
        scheme = "https" if kind == "ssl" else "http"
        known = port.isdigit() and int(port) > 0
        derived = f"{scheme}://localhost:{port}" if known else f"{scheme}://localhost"
        return normal_form(derived).rstrip("/")


_TOO_DEEP = (
    "lists or tables stand within each other too deeply to be read; no key needs more than a few "
    "of them: look for brackets that are not closed"
)


def load(path: str | None, check: Check | None = None) -> Config:
    """Read a configuration file.

    :param path: the file; None for the defaults.
    :param check: finds further faults in the document, to be reported with the others.
    :raises ConfigError: the file cannot be read, or has faults.
    """
    if path is None:
        return Config()
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8, as TOML must be: {error}") from error
    return loads(text, path, check)


def loads(text: str, where: str, check: Check | None = None) -> Config:
    """Read a configuration from a TOML document.

    :param where: the name of the document in messages, usually its file.
    :param check: see `load`.
    :raises ConfigError: the document has faults.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where}: is not TOML: {error}") from error
    except RecursionError as error:
        raise ConfigError(f"{where}: {_TOO_DEEP}") from error
    try:
        return build(Config, table, "", further=check(table) if check else ())
    except ConfigError as error:
        faults = (with_line(fault, text) for fault in str(error).splitlines())
        raise ConfigError("\n".join(f"{where}: {fault}" for fault in faults)) from error
    except RecursionError as error:
        raise ConfigError(f"{where}: {_TOO_DEEP}") from error


def override(config: T, where: str, **values: Any) -> T:
    """A copy of a configuration with some values replaced, and checked like those of a file.

    :param config: the whole configuration, or one of its tables.
    :param where: where the values come from, for messages, such as ``the command line``.
    :param values: the new values, by the names of their fields.
    :raises ConfigError: a value cannot be used.
    """
    try:
        evolved: T = attrs.evolve(cast(Any, config), **values)
    except ValueError as error:
        raise ConfigError(f"{where}: {broken_rule(error, (), values)}") from error
    return evolved
