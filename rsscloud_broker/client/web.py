"""The client's HTTP: one exchange under one deadline, with a limit on what is read.

There is no guard over addresses here, unlike in ``outbound``: a command that
somebody runs calls what it was told to call, their own machine included.
"""

from __future__ import annotations

import re
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

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
    RequestTransmissionFailed,
    ResponseFailed,
)
from twisted.web.error import SchemeNotSupported
from twisted.web.http_headers import Headers

from rsscloud_broker import __version__
from rsscloud_broker.interfaces import IClock

_PEM: Final = re.compile(
    rb"-----BEGIN CERTIFICATE-----\s.*?-----END CERTIFICATE-----", flags=re.DOTALL
)

#: Seconds to wait for a connection.
CONNECT_TIMEOUT: Final = 10

USER_AGENT: Final = f"rsscloud-broker/{__version__}"


class ClientError(Exception):
    """A call did not work.  The text says why, to people."""


def trusting(reactor: Any, file: str | None) -> Agent:
    """What connects, and trusts those whose certificates were signed by whom it knows.

    :param file: certificates in PEM of whom alone to trust; those that OpenSSL trusts if None.
    :raises ClientError: there is no certificate in the file.
    """
    if file is None:
        return Agent(reactor, connectTimeout=CONNECT_TIMEOUT)
    blocks = _PEM.findall(Path(file).read_bytes())
    try:
        certificates = [Certificate.loadPEM(block) for block in blocks]
    except NoCertificate:
        certificates = []
    if not certificates:
        raise ClientError(f"{file}: there is no certificate in PEM in it")
    policy = BrowserLikePolicyForHTTPS(trustRootFromCertificates(certificates))
    return Agent(reactor, policy, connectTimeout=CONNECT_TIMEOUT)


def _reason(failure: Failure) -> str:
    """Why there was no answer, for people."""
    error = failure.value
    if isinstance(error, VerificationError):
        return "its certificate is that of another name"
    if isinstance(error, SSLError):
        said = ", ".join(dict.fromkeys(words[-1] for words in error.args[0] if words[-1]))
        if "certificate" in said:
            said += " (--cacert names a file with certificates to trust)"
        return f"TLS failed: {said or 'the other side hung up'}"
    return failure.getErrorMessage()


@frozen
class Reply:
    """What a server answered; the body in whole.

    :ivar url: where the answer came from, after redirects; empty if that is not known.
    :ivar link: the values of Link headers, joined by commas.
    """

    status: int
    content_type: str
    body: bytes = field(repr=False)
    url: str = ""
    link: str = ""

    @property
    def success(self) -> bool:
        """Whether the status is in 200-299."""
        return 200 <= self.status <= 299

    @property
    def taken(self) -> bool:
        """Whether it is what a hub answers that took what it was sent: 202, or 204 from
        those of PubSubHubbub.  With 200 some other page has answered.
        """
        return self.status in {202, 204}


@frozen
class Web:
    """Makes requests.

    :ivar treq: the treq client that connects.
    :ivar clock: the time.
    :ivar seconds: how long an exchange may take, from the first look-up to the
        last byte.
    :ivar max_bytes: the largest body that is read, after decompression.
    """

    treq: HTTPClient
    clock: IClock
    seconds: float = 30.0
    max_bytes: int = 10 * 1024 * 1024

    async def get(self, url: str) -> Reply:
        """Read what is at a URL, over any redirects.

        :raises ClientError: there was no answer.
        """
        return await self._in_time(url, self._exchange("GET", url, {}, b""))

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """Send a body.  A redirect is an answer like any other.

        :raises ClientError: there was no answer.
        """
        return await self._in_time(url, self._exchange("POST", url, headers, body))

    async def _exchange(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> Reply:
        sent = {"User-Agent": USER_AGENT, **headers}
        response = await self.treq.request(
            method,
            url,
            headers=Headers({name: [text] for name, text in sent.items()}),
            data=body or None,
            allow_redirects=method == "GET",
            unbuffered=True,
        )
        read = bytearray()

        def take(data: bytes) -> None:
            read.extend(data)
            if len(read) > self.max_bytes:
                raise ClientError(f"{url}: the answer is larger than {self.max_bytes} bytes")

        await collect(response, take)
        content_type = response.headers.getRawHeaders("content-type", [""])[-1]
        link = ", ".join(response.headers.getRawHeaders("link", []))
        final = response.request.absoluteURI or b""
        return Reply(response.code, content_type, bytes(read), final.decode("ascii"), link)

    async def _in_time(self, url: str, exchange: Coroutine[Any, Any, Reply]) -> Reply:
        """Wait for an exchange until the deadline, and put its failure into words."""

        def timed_out(_: object, seconds: float) -> NoReturn:
            # Whatever the cancelled exchange made of it.
            raise ClientError(f"{url}: no answer within {seconds:g} seconds")

        try:
            return await Deferred.fromCoroutine(exchange).addTimeout(
                self.seconds, self.clock, timed_out
            )
        except (ResponseFailed, RequestTransmissionFailed) as error:
            # The latter comes of a handshake that fails while there is a body to be sent.
            reasons = ", ".join(dict.fromkeys(map(_reason, error.reasons)))
            raise ClientError(f"{url}: {reasons}") from error
        except (ConnectError, ConnectionClosed, SchemeNotSupported, OSError, ValueError) as error:
            # A ValueError comes of a URL that is none; DNS fails with an OSError.
            raise ClientError(f"{url}: {error}") from error
