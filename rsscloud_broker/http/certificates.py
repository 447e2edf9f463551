"""Reads the certificates of listeners, and reads them again while the broker runs.

Twisted reads the files of an ``ssl:`` endpoint once, when it makes the endpoint.  Here each
listener with TLS asks a `Certificate` for the TLS of every new connection, and ``reloading``
has the certificate read again from the same files, for instance after certbot renewed it.

OpenSSL's errors are codes for programmers, and do not name the file.  So this module examines the
files before Twisted reads them, and says in a sentence what is wrong.
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
from rsscloud_broker.config.endpoint_text import arguments

#: Endpoints that begin with this have TLS, with files that Twisted reads.
TLS: Final = "ssl:"


@implementer(IOpenSSLServerConnectionCreator)
@define(eq=False)
class Certificate:
    """The certificate and key of one listener.

    :ivar description: the endpoint of the listener, which names the files.
    :ivar options: the TLS options that Twisted has made from the files.
    """

    description: str
    options: Any

    def serverConnectionForTLS(self, protocol: TLSMemoryBIOProtocol) -> Connection:
        """Make the TLS of a new connection: see ``IOpenSSLServerConnectionCreator``."""
        if IOpenSSLServerConnectionCreator.providedBy(self.options):
            connection: Connection = self.options.serverConnectionForTLS(protocol)
            return connection
        return Connection(self.options.getContext())  # Twisted does the rest

    def read_again(self, reactor: Any) -> Any:
        """Read the files again, without using them yet.

        :returns: the new options, for `use`.
        :raises ConfigError: the files cannot be read, or do not belong together.
        """
        try:
            return tls_options(self.description, reactor)
        except ConfigError as error:
            raise ConfigError(
                f"listen: the certificate of {self.description!r} cannot be read again: {error}"
            ) from error

    def use(self, options: Any) -> str:
        """Use new options for new connections; open connections keep the old certificate.

        :param options: what `read_again` has returned.
        :returns: the date until which the new certificate is valid; empty if the certificate has
            not changed.
        """
        before, after = certificate_of(self.options), certificate_of(options)
        self.options = options
        if after is None or after == before:
            return ""
        return f"{after.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"


def certificate_of(options: Any) -> Any:
    """The certificate (of ``cryptography``) in TLS options; None if they do not show it."""
    certificate = getattr(options, "certificate", None)
    return None if certificate is None else certificate.to_cryptography()


def tls_options(description: str, reactor: Any) -> Any:
    """Make the TLS options of an endpoint from its files, without listening.

    :param description: an endpoint of Twisted with TLS.
    :returns: the options that Twisted makes; their ``getContext`` has been tried.
    :raises ConfigError: a file cannot be read or holds something else, or the key and the
        certificate do not belong together; the text is a clause that names the file.
    """
    if description.startswith(TLS):
        _check_files(arguments(description, "port", "privateKey", "certKey"))
    recorder = _OptionsRecorder(reactor)
    try:
        serverFromString(recorder, description).listen(Factory())
        recorder.options.getContext()  # fails if OpenSSL cannot use the files
    except (crypto.Error, SSL.Error) as error:
        raise ConfigError(f"OpenSSL refuses its files: {_reasons(error)}") from error
    except VerifyError as error:
        raise ConfigError(
            "the key and the certificate do not belong together: name files that were made for "
            "each other"
        ) from error
    except Exception as error:  # parsers of endpoints raise exceptions of any class
        raise ConfigError(str(error)) from error
    return recorder.options


def _check_files(options: Mapping[str, str]) -> None:
    """Check that the files of an ``ssl:`` endpoint, given its arguments, hold what they must.

    :raises ConfigError: a file does not; the text is a clause that names the file.
    """
    key_file = options.get("privateKey", "server.pem")
    certificate_file = options.get("certKey", key_file)
    certificate, key = _read_file(certificate_file), _read_file(key_file)
    both = certificate + b"\n" + key  # Twisted looks for each of the two in both files
    try:
        crypto.load_certificate(crypto.FILETYPE_PEM, both)
    except crypto.Error as error:
        raise ConfigError(
            f"{certificate_file} holds no certificate in PEM that can be read "
            f"({_reasons(error)}); certKey must name one"
        ) from error
    try:
        # Given a passphrase, even a wrong one, OpenSSL does not ask for it at the terminal.
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
        if name in options:
            _read_file(options[name])


def _read_file(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{file!r} is not the name of a file: {error}") from error


def _reasons(error: crypto.Error | SSL.Error) -> str:
    """OpenSSL's reasons for an error, without the names of its libraries and functions."""
    stack = error.args[0] if error.args else ()
    return ", ".join(dict.fromkeys(reason for *_, reason in stack if reason)) or str(error)


class _OptionsRecorder:
    """A reactor that does not listen: it keeps the TLS options of the endpoint that tries to."""

    options: Any = None

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        directlyProvides(self, providedBy(reactor))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reactor, name)

    def listenSSL(self, port: int, factory: Any, contextFactory: Any, **where: Any) -> None:
        """Keep the TLS options, and do not listen."""
        self.options = contextFactory
