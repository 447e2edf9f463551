"""Validators for the values of the configuration, used by the attrs classes in ``config``.

Each raises ValueError with a message that begins with the quoted key and says what to write.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sized
from ipaddress import ip_address, ip_network
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import attrs

_Attribute: TypeAlias = "attrs.Attribute[Any]"


def not_empty(_: object, key: _Attribute, value: Sized) -> None:
    """Require a value that is not empty."""
    if not value:
        raise ValueError(f"'{key.name}' must not be empty")


def is_path(_: object, key: _Attribute, text: str) -> None:
    """Require a text that can be a file name, or part of one."""
    if "\0" in text:
        raise ValueError(
            f"'{key.name}' holds the character NUL, which no name of a file may; remove it"
        )


def is_network(_: object, key: _Attribute, text: str) -> None:
    """Require a network (CIDR) or an IP address."""
    try:
        ip_network(text)
    except ValueError as error:
        raise ValueError(
            f"'{key.name}' has {text!r}, which is no network: {error}; "
            'write addresses as "192.0.2.0/24", "2001:db8::/32" or "192.0.2.7"'
        ) from error


#: An IP address and a port; an IPv6 address is in brackets.
_NAME_SERVER = re.compile(r"(?:\[(?P<address>.+)\]|(?P<other>[^:]+)):(?P<port>[0-9]{1,5})")


def is_name_server(_: object, key: _Attribute, text: str) -> None:
    """Require the IP address of a name server, with a port or without."""
    match = _NAME_SERVER.fullmatch(text)
    try:
        ip_address(match["address"] or match["other"] if match else text)
        usable = match is None or 0 < int(match["port"]) < 65536
    except ValueError:
        usable = False
    if not usable:
        raise ValueError(
            f"'{key.name}' has {text!r}, which is no name server; write an address, and a port "
            'if it is not 53: "192.0.2.53", "127.0.0.1:5353" or "[2001:db8::53]:5353"'
        )


#: An abstract UNIX socket of Linux, which has no file, and so no lock file either.
_ABSTRACT = re.compile(r"unix:(?:address=)?\0[^\0]+:lockfile=0")


#: A token of a request, long enough that nobody guesses it.
_TOKEN = re.compile(r"[\x21-\x7e]{16,}")


def is_token(_: object, key: _Attribute, text: str) -> None:
    """Require a token for ``Authorization: Bearer TOKEN`` that nobody guesses, or no text."""
    if text and not _TOKEN.fullmatch(text):
        raise ValueError(
            f"'{key.name}' must have 16 characters at least, of ASCII and without blanks; "
            "make one with: python3 -c 'import secrets; print(secrets.token_urlsafe())'"
        )


def is_endpoint(_: object, key: _Attribute, text: str) -> None:
    """Require the form of a Twisted endpoint's description."""
    if not re.fullmatch(r"[A-Za-z0-9_]+:\S.*", text):
        raise ValueError(
            f"'{key.name}' has {text!r}, which is no Twisted endpoint; "
            'write a kind and its arguments, such as "tcp:5337" or "tcp:5337:interface=127.0.0.1"'
        )
    if not _ABSTRACT.match(text):
        is_path(_, key, text)
    port = re.match(r"(?:tcp6?|ssl):(?:port=)?(-?[0-9]{1,9})(?::|$)", text)
    if port and not 0 <= int(port[1]) <= 65535:
        raise ValueError(f"'{key.name}' has {text!r}, whose port is not in 0 to 65535")


#: The databases that the broker works with, and their drivers.
_DRIVERS: Final = {"sqlite": "pysqlite", "postgresql": "psycopg"}

_DATABASES: Final = 'write it as "sqlite:///FILE" or "postgresql+psycopg://USER:PASSWORD@HOST/NAME"'


def is_database(_: object, key: _Attribute, text: str) -> None:
    """Require an SQLAlchemy URL of a database whose driver is installed."""
    check_database(key.name, text)


def check_database(name: str, text: str) -> None:
    """Check that a text is the SQLAlchemy URL of a database that the broker works with.

    :param name: the name of the key or the option that has the text.
    :raises ValueError: it is not, or the driver is not installed; the error says what to do.
    """
    # Imported here, since commands that only talk to a broker have no database.
    from sqlalchemy.engine import make_url  # noqa: PLC0415
    from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415

    try:
        url = make_url(text)
        database, driver = url.get_backend_name(), url.get_driver_name()
    except (SQLAlchemyError, ValueError) as error:  # ValueError: the port is no number
        raise ValueError(
            f"'{name}' is no SQLAlchemy URL of a known database: {error}; {_DATABASES}"
        ) from error
    if database not in _DRIVERS:
        raise ValueError(
            f"'{name}' is the URL of a database ({url.drivername}) that the broker cannot use; "
            f"{_DATABASES}"
        )
    if driver != _DRIVERS[database]:
        raise ValueError(
            f"'{name}' names the driver {driver}, which the broker cannot use; {_DATABASES}"
        )
    try:
        url.get_dialect().import_dbapi()
    except ImportError as error:
        raise ValueError(
            f"'{name}' needs the driver {driver}, which is not installed: {error}; "
            "install it beside the broker (pip install 'rsscloud-broker[postgresql]')"
        ) from error


def is_public_url(_: object, key: _Attribute, text: str) -> None:
    """Require an http or https URL to which paths can be appended."""
    try:
        parts = urlsplit(text)
        usable = (
            parts.scheme in {"http", "https"}
            and bool(parts.hostname)
            and parts.port != 0  # reading the port raises ValueError if it is out of range
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


def holds_tables(_: object, key: _Attribute, tables: Mapping[str, object]) -> None:
    """Require a table whose values are tables."""
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise ValueError(
                f"'{key.name}' holds {name!r}, which is no table; write [{key.name}.{name}] "
                "on a line of its own, and the keys of the plugin below it"
            )
