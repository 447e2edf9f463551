"""TLS for outgoing connections: one shared context, and a check of each certificate.

To make a context, OpenSSL reads every certificate that the system trusts, which costs more than a
whole notification.  So all connections share one context, and each connection knows the host name
that its certificate must be for.

TLS sessions are kept by host and port, so that the next connection to a host need not make a full
handshake.  Only sessions of hosts that were called before are kept: when very many hosts are called
once each, no session would still be there when it is needed, and keeping sessions is costly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from OpenSSL import SSL
from OpenSSL.crypto import X509
from service_identity import VerificationError
from service_identity.hazmat import DNS_ID, IPAddress_ID, ServiceID, verify_service_identity
from service_identity.pyopenssl import extract_patterns
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator
from twisted.internet.ssl import (
    Certificate,
    CertificateOptions,
    TLSVersion,
    platformTrust,
    trustRootFromCertificates,
)
from twisted.protocols.tls import TLSMemoryBIOProtocol
from zope.interface import implementer

from rsscloud_broker.util.caches import BoundedDict
from rsscloud_broker.util.urls import is_address

#: How many hosts the last session is kept of, some kilobytes each; and how many called hosts are
#: remembered.
SESSIONS = 1000

_CODES = SSL.X509VerificationCodes

#: What is wrong with a certificate, in words, by OpenSSL's number.
_PROBLEMS = {
    _CODES.ERR_CERT_HAS_EXPIRED: "has expired",
    _CODES.ERR_CERT_NOT_YET_VALID: "is not valid yet",
    _CODES.ERR_CERT_REVOKED: "has been revoked",
    _CODES.ERR_DEPTH_ZERO_SELF_SIGNED_CERT: "is signed by itself",
    _CODES.ERR_SELF_SIGNED_CERT_IN_CHAIN: "is of an authority that is not trusted",
    _CODES.ERR_UNABLE_TO_GET_ISSUER_CERT: "is of an authority that is not trusted",
    _CODES.ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY: "is of an authority that is not trusted",
    _CODES.ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE: "is of an authority that is not trusted",
}


class TLSContext:
    """The TLS context that all outgoing connections share.

    :param trusted: certificates of trusted authorities; by default those of the system.
    """

    def __init__(self, trusted: Sequence[Certificate] = ()) -> None:
        trust_root = trustRootFromCertificates(trusted) if trusted else platformTrust()
        options = CertificateOptions(
            trustRoot=trust_root, raiseMinimumTo=TLSVersion.TLSv1_2, enableSessionTickets=True
        )
        self._context: SSL.Context = options.getContext()
        self._context.set_session_cache_mode(SSL.SESS_CACHE_OFF)  # OpenSSL's own
        self._context.set_verify(SSL.VERIFY_PEER, _verify)
        self._sessions: BoundedDict[tuple[str, int], SSL.Session | None] = BoundedDict(SESSIONS)
        self._called: BoundedDict[tuple[str, int], bool] = BoundedDict(SESSIONS)

    def for_host(self, host: str, port: int) -> HostTLS:
        """The TLS settings of one connection to a host.

        :param host: a name in its ASCII form, or an address without brackets.
        """
        return HostTLS(self, host, port)

    def connection(self, host: HostTLS) -> SSL.Connection:
        """An OpenSSL connection, which resumes the last session with the host if one is kept."""
        connection = _Connection(self._context, None)
        connection.host = host
        session = self._sessions.pop(host.key, None)  # a TLS 1.3 ticket is for one use
        if session is not None:
            connection.set_session(session)
        return connection

    def keep_session(self, host: HostTLS, connection: SSL.Connection) -> None:
        """Keep the session of a connection for the next one to its host, but not of the first."""
        was_called = self._called.get(host.key, False)
        self._called[host.key] = True
        session = connection.get_session() if was_called else None  # most hosts are called once
        if session is not None:
            self._sessions[host.key] = session


class _Connection(SSL.Connection):
    """An OpenSSL connection that knows its host, and whether it has been closed.

    After the broker has sent ``close_notify`` it does not wait for the server's.  ``recv`` then
    reports a clean end instead of an error, since creating and handling that error takes longer
    than a whole request.
    """

    host: HostTLS
    _over = False

    def bio_shutdown(self) -> None:
        super().bio_shutdown()
        self._over = bool(self.get_shutdown() & SSL.SENT_SHUTDOWN)

    def recv(self, bufsiz: int, flags: int | None = None) -> bytes:
        if self._over:
            raise SSL.ZeroReturnError
        return super().recv(bufsiz, flags)


@implementer(IOpenSSLClientConnectionCreator)
class HostTLS:
    """TLS for one connection to a host, whose certificate must be for the host's name.

    :ivar key: host and port, by which sessions are kept.
    :ivar problem: why the certificate was refused; empty if it was not.
    """

    def __init__(self, context: TLSContext, host: str, port: int) -> None:
        self.problem = ""
        self._context = context
        self._name = name = host.removesuffix(".")
        self.key = (name, port)
        self._is_address = is_address(name)

    def clientConnectionForTLS(self, tlsProtocol: TLSMemoryBIOProtocol) -> SSL.Connection:
        """Make the TLS connection, which names the host (SNI) unless it is an address."""
        connection = self._context.connection(self)
        if not self._is_address:
            connection.set_tlsext_host_name(self._name.encode("ascii"))
        return connection

    def is_named_by(self, certificate: X509) -> bool:
        """Whether a certificate is for this host."""
        expected: ServiceID
        try:
            expected = IPAddress_ID(self._name) if self._is_address else DNS_ID(self._name)
            verify_service_identity(extract_patterns(certificate), [expected], [])
        except (VerificationError, ValueError):  # ValueError: the certificate has no usable name
            return False
        return True

    def note_problem(self, problem: str) -> None:
        """Note what is wrong with the certificate."""
        self.problem = f"the certificate of {self._name} {problem}"

    def keep_session(self, connection: SSL.Connection) -> None:
        """Keep the session of this connection.  Call it after the server has answered.

        In TLS 1.3 the ticket that resumes a session comes only after the handshake.
        """
        self._context.keep_session(self, connection)

    def why_lost(self, error: BaseException) -> str:
        """Why the connection was lost, for people."""
        if self.problem:
            return self.problem
        if isinstance(error, SSL.Error) and error.args and isinstance(error.args[0], list):
            return f"TLS failed: {'; '.join(entry[-1] for entry in error.args[0])}"
        return str(error)


def _verify(connection: Any, certificate: X509, error: int, depth: int, trusted: int) -> bool:
    """Check a certificate of a chain.  OpenSSL calls this, for the authority's first.

    OpenSSL does not call it when a session is resumed: the certificate was checked for the same
    host when the session began.

    :param trusted: whether OpenSSL accepts the certificate.
    :returns: whether the connection may go on.
    """
    host: HostTLS = connection.host
    if not trusted:
        host.note_problem(_PROBLEMS.get(error, f"cannot be verified (OpenSSL says: error {error})"))
        return False
    if depth or host.is_named_by(certificate):
        return True
    host.note_problem("is for another name")
    return False
