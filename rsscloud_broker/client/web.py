"""The HTTP client of the commands: each exchange has a deadline and a limit on the body.

Unlike ``outbound`` it has no address guard: a command may call any address that its user gives,
including the user's own machine.
"""

from __future__ import annotations

import re
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn, Protocol, TypeVar

from attrs import field, frozen
from OpenSSL.crypto import Error as NoCertificate
from OpenSSL.SSL import Error as SSLError
from service_identity import VerificationError
from treq import collect
from treq.client import HTTPClient
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectError, ConnectionClosed
from twisted.internet.ssl import Certificate, trustRootFromCertificates
from twisted.python.failure import Failure
from twisted.web.client import (
    Agent,
    BrowserLikePolicyForHTTPS,
    HTTPConnectionPool,
    RequestTransmissionFailed,
    ResponseFailed,
)
from twisted.web.error import SchemeNotSupported
from twisted.web.http_headers import Headers

from rsscloud_broker import __version__
from rsscloud_broker.interfaces import IClock

T = TypeVar("T")

_PEM: Final = re.compile(
    rb"-----BEGIN CERTIFICATE-----\s.*?-----END CERTIFICATE-----", flags=re.DOTALL
)

#: Seconds to wait for a connection.
CONNECT_TIMEOUT: Final = 10

#: How many seconds an exchange may take, and how many bytes of an answer are read.
SECONDS, MAX_BYTES = 30.0, 10 * 1024 * 1024

USER_AGENT: Final = f"rsscloud-broker/{__version__}"


class ClientError(Exception):
    """A call failed.  The text says why, for people."""


def trusting(reactor: Any, file: str | None, pool: HTTPConnectionPool | None = None) -> Agent:
    """Make an agent that checks the certificates of servers.

    :param file: a file with the only certificates to trust, in PEM; None to trust those that
        OpenSSL trusts.
    :param pool: keeps connections for further requests; None to close each.
    :raises ClientError: the file holds no certificate.
    """
    if file is None:
        return Agent(reactor, connectTimeout=CONNECT_TIMEOUT, pool=pool)
    blocks = _PEM.findall(Path(file).read_bytes())
    try:
        certificates = [Certificate.loadPEM(block) for block in blocks]
    except NoCertificate:
        certificates = []
    if not certificates:
        raise ClientError(f"{file}: the file holds no certificate in PEM")
    policy = BrowserLikePolicyForHTTPS(trustRootFromCertificates(certificates))
    return Agent(reactor, policy, connectTimeout=CONNECT_TIMEOUT, pool=pool)


def _reason(failure: Failure) -> str:
    """Why there was no answer, for people."""
    error = failure.value
    if isinstance(error, VerificationError):
        return "its certificate is for another name"
    if isinstance(error, SSLError):
        reasons = ", ".join(dict.fromkeys(words[-1] for words in error.args[0] if words[-1]))
        if "certificate" in reasons:
            reasons += " (--cacert names a file with certificates to trust)"
        return f"TLS failed: {reasons or 'the other side hung up'}"
    return failure.getErrorMessage()


@frozen
class Reply:
    """A server's answer, with its whole body.

    :ivar url: the URL that answered, after redirects; empty if it is not known.
    :ivar link: the values of the Link headers, joined by commas.
    :ivar location: where a redirect leads, as written; empty if the answer does not say it.
    """

    status: int
    content_type: str
    body: bytes = field(repr=False)
    url: str = ""
    link: str = ""
    location: str = ""

    @property
    def success(self) -> bool:
        """Whether the status is from 200 to 299."""
        return 200 <= self.status <= 299

    @property
    def accepted(self) -> bool:
        """Whether a hub has accepted a request: its status is 202, or 204 from a PubSubHubbub hub.

        A 200 comes from some page that is not a hub.
        """
        return self.status in {202, 204}


class MakesRequests(Protocol):
    """What the clients of this package need to make requests: ``Web``, or ``GuardedWeb``."""

    async def get(
        self, url: str, headers: Mapping[str, str] | None = None, *, redirects: bool = True
    ) -> Reply:
        """See ``Web.get``."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """See ``Web.post``."""


@frozen
class Web:
    """Makes HTTP requests.

    :ivar treq: the treq client that connects.
    :ivar clock: the clock for the deadline.
    :ivar seconds: how long an exchange may take, from the look-up of the name to the last byte.
    :ivar max_bytes: the largest body that is read, after decompression.
    """

    treq: HTTPClient
    clock: IClock
    seconds: float = SECONDS
    max_bytes: int = MAX_BYTES

    async def get(
        self, url: str, headers: Mapping[str, str] | None = None, *, redirects: bool = True
    ) -> Reply:
        """Send a GET.

        :param redirects: whether to follow redirects; not with headers that have a secret.
        :raises ClientError: there was no answer, or its body was too large.
        """
        exchange = self._exchange("GET", url, headers or {}, b"", redirects=redirects)
        return await in_time(url, exchange, self.seconds, self.clock)

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """Send a POST; a redirect is not followed.

        :raises ClientError: there was no answer, or its body was too large.
        """
        return await in_time(
            url, self._exchange("POST", url, headers, body), self.seconds, self.clock
        )

    async def _exchange(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        *,
        redirects: bool = False,
    ) -> Reply:
        sent = {"User-Agent": USER_AGENT, **headers}
        response = await self.treq.request(
            method,
            url,
            headers=Headers({name: [text] for name, text in sent.items()}),
            data=body or None,
            allow_redirects=redirects,
            unbuffered=True,
        )
        content = bytearray()

        def add(data: bytes) -> None:
            content.extend(data)
            if len(content) > self.max_bytes:
                raise ClientError(f"{url}: the answer is larger than {self.max_bytes} bytes")

        await collect(response, add)
        content_type = response.headers.getRawHeaders("content-type", [""])[-1]
        link = ", ".join(response.headers.getRawHeaders("link", []))
        final = response.request.absoluteURI or b""
        location = response.headers.getRawHeaders("location", [""])[-1]
        url = final.decode("ascii")
        return Reply(response.code, content_type, bytes(content), url, link, location)


async def in_time(url: str, exchange: Coroutine[Any, Any, T], seconds: float, clock: IClock) -> T:
    """Wait for an exchange until the deadline.

    :param url: what is requested, for the error.

    :raises ClientError: the exchange failed, or the deadline has passed.
    """

    def timed_out(_: object, seconds: float) -> NoReturn:
        # Replaces whatever error the cancelled exchange raised.
        raise ClientError(f"{url}: no answer within {seconds:g} seconds")

    try:
        return await Deferred.fromCoroutine(exchange).addTimeout(seconds, clock, timed_out)
    except (ResponseFailed, RequestTransmissionFailed) as error:
        # RequestTransmissionFailed: the TLS handshake failed while a body was being sent.
        reasons = ", ".join(dict.fromkeys(map(_reason, error.reasons)))
        raise ClientError(f"{url}: {reasons}") from error
    except (ConnectError, ConnectionClosed, SchemeNotSupported, OSError, ValueError) as error:
        # ValueError: the URL is invalid.  OSError: among others, DNS failed.
        raise ClientError(f"{url}: {error}") from error
