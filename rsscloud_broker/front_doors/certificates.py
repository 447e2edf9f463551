"""Certificates of listeners, which are read again while the broker runs.

An ``ssl:`` endpoint of Twisted reads the files of its certificate when it is made, and never
again.  Here each listener with TLS asks a `Certificate` for the TLS of a new connection, and the
certificate can be read anew from the same files, as when certbot has renewed it.

OpenSSL's errors are codes for programmers, and do not name the file.  So the files are examined
here before Twisted reads them, and what is wrong is said in a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from attrs import define
from OpenSSL import SSL, crypto
from OpenSSL.SSL import Connection
from twisted.internet.endpoints import serverFromString
from twisted.internet.error import VerifyError
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator
from twisted.internet.protocol import Factory
from twisted.protocols.tls import TLSMemoryBIOProtocol
from zope.interface import directlyProvides, implementer, providedBy

from rsscloud_broker.config import ConfigError
from rsscloud_broker.front_doors.endpoint_text import arguments

#: What begins the text of an endpoint with TLS whose files Twisted reads.
TLS: Final = "ssl:"


@implementer(IOpenSSLServerConnectionCreator)
@define(eq=False)
class Certificate:
    """The certificate of one listener, with its key.

    :ivar description: the endpoint of the listener, which names the files.
    :ivar options: what Twisted has made of the files.
    """

    description: str
    options: Any

    def serverConnectionForTLS(self, protocol: TLSMemoryBIOProtocol) -> Connection:
        """The TLS of a new connection: see ``IOpenSSLServerConnectionCreator``."""
        if IOpenSSLServerConnectionCreator.providedBy(self.options):
            connection: Connection = self.options.serverConnectionForTLS(protocol)
            return connection
        return Connection(self.options.getContext())  # Twisted sees to the rest

    def read_again(self, reactor: Any) -> Any:
        """Read the files again, and use nothing of them yet.

        :returns: ``options`` as they would be now.
        :raises ConfigError: they cannot be read, or do not belong together.
        """
        try:
            return tls_options(self.description, reactor)
        except ConfigError as error:
            raise ConfigError(
                f"listen: the certificate of {self.description!r} cannot be read again: {error}"
            ) from error

    def use(self, options: Any) -> str:
        """Use for new connections what was read again; those that are open keep theirs.

        :returns: until when the new certificate is valid; empty if it is the same as before.
        """
        before, now = _certificate_of(self.options), _certificate_of(options)
        self.options = options
        if now is None or now == before:
            return ""
        return f"{now.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"


def _certificate_of(options: Any) -> Any:
    """The certificate in what was made of the files; None if an endpoint does not tell."""
    certificate = getattr(options, "certificate", None)
    return None if certificate is None else certificate.to_cryptography()


def tls_options(description: str, reactor: Any) -> Any:
    """Make the TLS of an endpoint out of its files, without listening.

    :param description: an endpoint of Twisted with TLS.
    :returns: what Twisted makes of the files, whose ``getContext`` is known to work.
    :raises ConfigError: a file cannot be read, holds something else, or they do not belong
        together; the text is a clause that names the file.
    """
    if description.startswith(TLS):
        _check_files(arguments(description, "port", "privateKey", "certKey"))
    reading = _Reading(reactor)
    try:
        serverFromString(reading, description).listen(Factory())
        reading.options.getContext()  # which sees whether all of it can be used
    except (crypto.Error, SSL.Error) as error:
        raise ConfigError(f"OpenSSL refuses its files: {_reasons(error)}") from error
    except VerifyError as error:
        raise ConfigError(
            "the key and the certificate do not belong together: name files that were made for "
            "each other"
        ) from error
    except Exception as error:  # the parsers of endpoints raise whatever they like
        raise ConfigError(str(error)) from error
    return reading.options


def _check_files(given: Mapping[str, str]) -> None:
    """See whether the files of an ``ssl:`` endpoint hold what they should.

    :param given: the arguments of the endpoint, by name.
    :raises ConfigError: one of them does not; the text is a clause that names it.
    """
    key_file = given.get("privateKey", "server.pem")
    certificate_file = given.get("certKey", key_file)
    certificate, key = _content(certificate_file), _content(key_file)
    both = certificate + b"\n" + key  # as Twisted looks for either in both of them
    try:
        crypto.load_certificate(crypto.FILETYPE_PEM, both)
    except crypto.Error as error:
        raise ConfigError(
            f"{certificate_file} holds no certificate in PEM that can be read "
            f"({_reasons(error)}); certKey must name one"
        ) from error
    try:
        # With a passphrase OpenSSL does not ask for one at the terminal.
        crypto.load_privatekey(crypto.FILETYPE_PEM, both, passphrase=b"none")
    except crypto.Error as error:
        if b"ENCRYPTED" in both:
            raise ConfigError(
                f"the key in {key_file} has a passphrase, which the broker cannot know; "
                f"write the key without one (openssl pkey -in {key_file} -out FILE)"
            ) from error
        raise ConfigError(
            f"{key_file} holds no private key in PEM that can be read ({_reasons(error)}); "
            "privateKey must name one"
        ) from error
    for name in ("extraCertChain", "dhParameters"):
        if name in given:
            _content(given[name])


def _content(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{file!r} is no name of a file: {error}") from error


def _reasons(error: crypto.Error | SSL.Error) -> str:
    """What OpenSSL says, without the names of its own parts."""
    stack = error.args[0] if error.args else ()
    return ", ".join(dict.fromkeys(reason for *_, reason in stack if reason)) or str(error)


class _Reading:
    """A reactor that does not listen, but keeps what it would listen with.

    :ivar options: of the TLS.
    """

    options: Any = None

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        directlyProvides(self, providedBy(reactor))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reactor, name)

    def listenSSL(self, port: int, factory: Any, contextFactory: Any, **where: Any) -> None:
        """See ``IReactorSSL``."""
        self.options = contextFactory
