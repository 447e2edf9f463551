"""The configuration: one TOML file, checked before anything starts.

Every key has a default, so that an empty file (or none) is a configuration
too; ``example.toml``, beside this module, names them all.  Nothing is
converted silently: ``"5"`` is not a number, and a key that nobody knows is an
error.  A `ConfigError` lists everything that is wrong, a line for each, and
each line names the file, the key and the rule.

The tables of plugins stay as they were read.  What a plugin takes is an attrs
class of its own, and `build` checks it by the same rules.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sized
from difflib import get_close_matches
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar, cast, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

import attrs
import msgspec
from attrs import field, frozen
from attrs.validators import and_, deep_iterable, ge, gt, le, optional
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import SQLAlchemyError

T = TypeVar("T", bound=attrs.AttrsInstance)
Network: TypeAlias = IPv4Network | IPv6Network
_Attribute: TypeAlias = "attrs.Attribute[Any]"

_DAY = 86_400


class ConfigError(Exception):
    """The configuration cannot be used.  Its text says why, a line for each fault."""


# --- rules: validators for attrs, whose messages begin with the quoted key -----


def _not_empty(_: object, key: _Attribute, value: Sized) -> None:
    if not value:
        raise ValueError(f"'{key.name}' must not be empty")


def _is_network(_: object, key: _Attribute, text: str) -> None:
    try:
        ip_network(text)
    except ValueError as error:
        raise ValueError(
            f"'{key.name}' has {text!r}, which is no network: {error}; "
            'write addresses as "192.0.2.0/24", "2001:db8::/32" or "192.0.2.7"'
        ) from error


def _is_endpoint(_: object, key: _Attribute, text: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9_]+:\S.*", text):
        raise ValueError(
            f"'{key.name}' has {text!r}, which is no Twisted endpoint; "
            'write a kind and its arguments, such as "tcp:5337" or "tcp:5337:interface=127.0.0.1"'
        )


def _is_database(_: object, key: _Attribute, text: str) -> None:
    try:
        make_url(text).get_dialect()
    except SQLAlchemyError as error:
        raise ValueError(
            f"'{key.name}' is no SQLAlchemy URL of a known database: {error}; "
            'write it as "sqlite:///FILE" or "postgresql+psycopg://USER:PASSWORD@HOST/NAME"'
        ) from error


def _is_public_url(_: object, key: _Attribute, text: str) -> None:
    try:
        parts = urlsplit(text)
        usable = (
            parts.scheme in {"http", "https"}
            and bool(parts.hostname)
            and parts.port != 0  # reading it checks that it is a number in range
            and "@" not in parts.netloc
            and not re.search(r"[?#\s]", text)
        )
    except ValueError:
        usable = False
    if not usable:
        raise ValueError(
            f"'{key.name}' is {text!r}; it must be a whole http or https URL without user, "
            'query and fragment, such as "https://broker.example"'
        )


def _holds_tables(_: object, key: _Attribute, tables: Mapping[str, object]) -> None:
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise ValueError(
                f"'{key.name}' holds {name!r}, which is no table; write [{key.name}.{name}] "
                "on a line of its own, and the keys of the plugin below it"
            )


def _without_slash(url: str | None) -> str | None:
    return url.rstrip("/") if url else url


_networks = deep_iterable(_is_network)


# --- the keys ---------------------------------------------------------------


@frozen
class Egress:
    """``[egress]``: networks that the guard of outgoing requests lets through,
    though they are not on the open internet.

    :ivar allow_topics: networks (CIDRs) where topics may be read.
    :ivar allow_callbacks: networks (CIDRs) where callbacks may be called.
    """

    allow_topics: tuple[str, ...] = field(default=(), validator=_networks)
    allow_callbacks: tuple[str, ...] = field(default=(), validator=_networks)

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
    """``[http]``: what the broker bears from those who call it.

    :ivar body_limit: bytes of a request's body.
    :ivar request_timeout: seconds in which a whole request must have arrived.
    :ivar idle_timeout: seconds that a connection may stay open and silent.
    :ivar max_connections: connections at a time, in all.
    :ivar max_connections_per_address: connections at a time of one address; trusted
        proxies, who bring the requests of many, are not counted.
    :ivar trusted_proxies: networks (CIDRs) whose ``X-Forwarded-For`` counts.
    """

    body_limit: int = field(default=1_048_576, validator=ge(1))
    request_timeout: float = field(default=30.0, validator=and_(gt(0), le(_DAY)))
    idle_timeout: float = field(default=60.0, validator=and_(gt(0), le(_DAY)))
    max_connections: int = field(default=2000, validator=ge(1))
    max_connections_per_address: int = field(default=200, validator=ge(1))
    trusted_proxies: tuple[str, ...] = field(default=(), validator=_networks)

    @property
    def proxy_networks(self) -> tuple[Network, ...]:
        """``trusted_proxies``, parsed."""
        return tuple(map(ip_network, self.trusted_proxies))


@frozen
class Config:
    """The whole configuration.

    :ivar data: the directory of everything that the broker keeps.
    :ivar database: an SQLAlchemy URL; None for a SQLite file in ``data``.
    :ivar listen: Twisted endpoint strings.
    :ivar public_url: where others reach the broker, without a slash at the
        end; None to derive it from ``listen``.
    :ivar front_doors: the tables of front doors by name, as they were read.
    :ivar notifiers: likewise, of notifiers.
    :ivar sinks: likewise, of sinks.
    """

    data: str = field(default="rsscloud-broker-data", validator=_not_empty)
    database: str | None = field(default=None, validator=optional(_is_database))
    listen: tuple[str, ...] = field(
        default=("tcp:5337",), validator=and_(_not_empty, deep_iterable(_is_endpoint))
    )
    public_url: str | None = field(
        default=None, converter=_without_slash, validator=optional(_is_public_url)
    )
    egress: Egress = field(factory=Egress)
    http: Http = field(factory=Http)
    front_doors: dict[str, Any] = field(factory=dict, validator=_holds_tables)
    notifiers: dict[str, Any] = field(factory=dict, validator=_holds_tables)
    sinks: dict[str, Any] = field(factory=dict, validator=_holds_tables)

    @property
    def database_url(self) -> str:
        """The SQLAlchemy URL of the database, the default filled in."""
        if self.database is not None:
            return self.database
        file = URL.create("sqlite", database=str(Path(self.data, "broker.sqlite")))
        return file.render_as_string(hide_password=False)


def load(path: str | None) -> Config:
    """Read a configuration file; None gives the defaults.

    :raises ConfigError: it cannot be read, or what it says cannot be used.
    """
    if path is None:
        return Config()
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8, as TOML must be: {error}") from error
    return loads(text, path)


def loads(text: str, where: str) -> Config:
    """Read a configuration from a TOML document.

    :param where: what to call the document in messages: its file.
    :raises ConfigError: what it says cannot be used.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where}: is not TOML: {error}") from error
    return build(Config, table, where)


def override(config: T, where: str, **values: Any) -> T:
    """A configuration with single values replaced, and checked as in a file.

    :param where: where they come from, for messages, such as ``the command line``.
    :param config: the whole configuration, or one of its tables.
    :param values: by the names of its fields.
    :raises ConfigError: a value cannot be used.
    """
    try:
        evolved: T = attrs.evolve(cast(Any, config), **values)
    except ValueError as error:
        raise ConfigError(f"{where}: {_broken_rule(error, (), values)}") from error
    return evolved


# --- from a table to an attrs class -----------------------------------------


def build(
    cls: type[T],
    table: Mapping[str, Any],
    where: str,
    *,
    path: tuple[str, ...] = (),
    others: Iterable[str] = (),
) -> T:
    """Make an instance of an attrs class from a TOML table.

    The types of its fields are checked without conversion (a whole number may
    stand for a float, a list for a tuple), then its validators run.  A table
    within the table is a field whose type is an attrs class, or a ``dict``.

    :param where: what to call the document in messages: its file.
    :param path: the names of the table, outermost first.
    :param others: keys that the table may hold besides and the caller has taken
        out, for those who misspell them.
    :raises ConfigError: keys are unknown or missing, types are wrong, or a
        validator refuses; all of it at once, where the types are right.
    """
    problems: list[str] = []
    made = _make(cls, table, path, problems, others)
    if made is None:
        prefix = f"{where}: " if where else ""
        raise ConfigError("\n".join(prefix + problem for problem in problems))
    return made


def nearest(name: str, known: Iterable[str]) -> str:
    """Help for somebody who wrote a name that is not known."""
    names = sorted(known)
    if not names:
        return "none is known here"
    # However far: the nearest is named, and the whole list stands beside it.
    (close,) = get_close_matches(name, names, n=1, cutoff=0.0)
    return f"the nearest known is {close!r}, of {', '.join(names)}"


def _place(path: tuple[str, ...], key: str = "") -> str:
    """How messages name a key: ``[http] body_limit``."""
    return f"[{'.'.join(path)}] {key}".rstrip() if path else key


def _make(
    cls: type[T],
    table: Mapping[str, Any],
    path: tuple[str, ...],
    problems: list[str],
    others: Iterable[str] = (),
) -> T | None:
    """An instance for a table, or None and at least one more problem."""
    before = len(problems)
    hints = get_type_hints(cls, include_extras=True)
    known = {key.alias: key for key in attrs.fields(cls) if key.init}
    problems.extend(
        f"{_place(path, name)}: unknown key; {nearest(name, {*known, *others})}"
        for name in table
        if name not in known
    )
    problems.extend(
        f"{_place(path, name)}: missing; it has no default"
        for name, key in known.items()
        if key.default is attrs.NOTHING and name not in table
    )
    values = {
        name: _value(hints[key.name], table[name], path, name, problems)
        for name, key in known.items()
        if name in table
    }
    if len(problems) > before:
        return None
    try:
        return cls(**values)
    except (TypeError, ValueError) as error:
        problems.append(_broken_rule(error, path, known))
        return None


def _value(hint: Any, value: Any, path: tuple[str, ...], name: str, problems: list[str]) -> Any:
    """The value of one key, or None and at least one more problem."""
    if attrs.has(hint) and isinstance(value, dict):
        return _make(hint, value, (*path, name), problems)
    try:
        return msgspec.convert(value, hint, strict=True)
    except msgspec.ValidationError as error:
        if get_origin(hint) is Literal:
            allowed = ", ".join(map(repr, get_args(hint)))
            problems.append(f"{_place(path, name)}: must be one of {allowed}, not {value!r}")
        else:
            problems.append(_wrong_type(str(error), value, path, name))
        return None


def _broken_rule(error: Exception, path: tuple[str, ...], known: Iterable[str]) -> str:
    """What a validator says, with its key in front where the message names it."""
    text = str(error.args[0]) if error.args else type(error).__name__
    quoted = re.match(r"'(\w+)' ", text)
    if quoted and quoted[1] in known:
        return f"{_place(path, quoted[1])}: {text[quoted.end() :]}"
    return f"{_place(path)}: {text}" if path else text


#: msgspec speaks of JSON's types; people who write TOML read these words.
_WORDS = {
    "array": "a list",
    "str": "a string in quotes",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "a table",
    "date": "a date",
    "datetime": "a date and time",
    "time": "a time",
}


def _wrong_type(message: str, value: Any, path: tuple[str, ...], name: str) -> str:
    """What msgspec says, in the words of TOML, and how to write it."""
    rule, _, inside = message.partition(" - at `$")
    place = _place(path, name) + inside.rstrip("`")
    found = re.fullmatch(r"Expected `([^`]*)`, got `([^`]*)`", rule)
    if not found:
        return f"{place}: {rule[:1].lower()}{rule[1:]}"
    types = [word for word in found[1].split(" | ") if word != "null"]  # TOML has no null
    expected = " or ".join(_WORDS.get(word, word) for word in types)
    got = _WORDS.get(found[2], found[2])
    hint = ""
    if "array" in types and not inside and isinstance(value, str):
        hint = f"; write {name} = [{json.dumps(value, ensure_ascii=False)}]"
    elif {"int", "float", "bool"}.issuperset(types) and found[2] == "str":
        hint = "; write it without quotes"
    return f"{place}: must be {expected}, not {got}{hint}"
