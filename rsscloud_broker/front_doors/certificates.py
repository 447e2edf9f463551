"""Certificates of listeners, which are read again while the broker runs.

An ``ssl:`` endpoint of Twisted reads the files of its certificate when it is made, and never
again.  Here each listener with TLS asks a `Certificate` for the TLS of a new connection, and the
certificate can be read anew from the same files, as when certbot has renewed it.
"""

from __future__ import annotations

from typing import Any

from attrs import define
from OpenSSL.SSL import Connection
from twisted.internet.endpoints import serverFromString
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator
from twisted.internet.protocol import Factory
from twisted.protocols.tls import TLSMemoryBIOProtocol
from zope.interface import directlyProvides, implementer, providedBy

from rsscloud_broker.config import ConfigError


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
        reading = _Reading(reactor)
        try:
            serverFromString(reading, self.description).listen(Factory())
            reading.options.getContext()  # which sees whether all of it can be used
        except Exception as error:  # endpoints and OpenSSL raise whatever they like
            raise ConfigError(
                f"listen: the certificate of {self.description!r} cannot be read again: {error}"
            ) from error
        return reading.options

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
