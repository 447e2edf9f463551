"""Registers with clouds for rssCloud notifications, and renews the registrations.

A registration lasts 25 hours, so it is renewed every 24.  The cloud chooses the protocol of the
registration (``Cloud.protocol``); the subscriber chooses that of the notifications
(``RegisteredCallback.protocol``).

The first clouds, of 2003, have a procedure of five parameters, and notify by ``xml-rpc`` or
``soap``.  Later ones take a sixth one, the domain, and notify by ``http-post`` too.  So a cloud
that is called by ``xml-rpc`` or ``soap`` is asked in the first way, and if it declines, in the
other one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from attrs import define, evolve, field, frozen
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from rsscloud_broker.client.calls import Declined, call_form, call_soap, call_xmlrpc
from rsscloud_broker.client.listener import DEFAULT_PROCEDURE
from rsscloud_broker.client.web import ClientError, Web
from rsscloud_broker.wire.cloud import Cloud, InvalidCloud, clouds_of
from rsscloud_broker.wire.feed import is_json
from rsscloud_broker.wire.feed_json import read_json
from rsscloud_broker.wire.feed_tree import UnreadableFeed
from rsscloud_broker.wire.text import charset_of
from rsscloud_broker.wire.xml import MalformedXML

#: Seconds between two registrations.
RENEW_AFTER: Final = 24 * 3600
#: Seconds after which a renewal that failed is tried again.
RETRY_AFTER: Final = 5 * 60

_BY_FORM: Final = frozenset({"http-post", "https-post"})


@frozen
class RegisteredCallback:
    """The callback of a registration.

    :ivar protocol: the protocol of the notifications: ``http-post``, ``xml-rpc`` or ``soap``.
    :ivar procedure: the procedure to call, for ``xml-rpc`` and ``soap``.
    :ivar domain: the host of the callback; empty for the address that registers.
    """

    protocol: str
    port: int
    path: str = "/notify"
    procedure: str = ""
    domain: str = ""


async def find_cloud(web: Web, feed_url: str) -> Cloud:
    """Fetch a feed and return the first cloud that it names.

    :raises ClientError: the feed cannot be read, or names no valid cloud.
    """
    reply = await web.get(feed_url)
    if not reply.success:
        raise ClientError(f"{feed_url}: answered with HTTP status {reply.status}")
    charset = charset_of(reply.headers.get("content-type", ""))
    try:
        if is_json(reply.body):
            clouds = [*read_json(reply.body).clouds]
        else:
            clouds = clouds_of(reply.body, charset)
    except (MalformedXML, UnreadableFeed) as error:
        raise ClientError(
            f"{feed_url} cannot be read as a feed that names a cloud ({error}). Is it the "
            "address of a feed, and not of a page? If it is, name a broker with --broker."
        ) from None
    except InvalidCloud as error:
        raise ClientError(f"{feed_url}: {error}. Name a broker with --broker.") from None
    if not clouds:
        raise ClientError(f"{feed_url} names no cloud. Name a broker with --broker.")
    return clouds[0]


async def register(
    web: Web,
    cloud: Cloud,
    topic: str,
    callback: RegisteredCallback,
    begin: Callable[[RegisteredCallback], object] = lambda callback: None,
) -> str:
    """Register a callback for a topic, by the cloud's protocol.

    :param begin: called with the callback, as the cloud gets it, before each call of the cloud.
    :returns: the cloud's sentence.
    :raises ClientError: the cloud did not accept the registration.
    """
    if cloud.protocol in _BY_FORM:
        begin(callback)
        fields = _parameters(callback, url1=topic)
        return await call_form(web, cloud.url, [(name, str(fields[name])) for name in fields])
    reasons: list[str] = []
    for each in dict.fromkeys((_as_of_2003(cloud, callback), callback)):
        begin(each)
        try:
            return await _register_by_call(web, cloud, topic, each)
        except Declined as error:
            reasons.append(str(error))
    raise ClientError(" ".join(dict.fromkeys(reasons)))


def _as_of_2003(cloud: Cloud, callback: RegisteredCallback) -> RegisteredCallback:
    """A callback as the first clouds know it: they call back by XML-RPC or SOAP, at the address
    that the registration comes from.
    """
    protocol = cloud.protocol if callback.protocol in _BY_FORM else callback.protocol
    procedure = callback.procedure or DEFAULT_PROCEDURE
    return evolve(callback, protocol=protocol, procedure=procedure, domain="")


async def _register_by_call(
    web: Web, cloud: Cloud, topic: str, callback: RegisteredCallback
) -> str:
    """Register by XML-RPC or SOAP.

    :raises Declined: the cloud did not accept the registration.
    :raises ClientError: the call failed.
    """
    prefix, _, operation = (cloud.register_procedure or "rssCloud.pleaseNotify").rpartition(".")
    parameters = _parameters(callback, urlList=[topic])
    if cloud.protocol == "xml-rpc":
        procedure = f"{prefix}.{operation}" if prefix else operation
        accepted = await call_xmlrpc(web, cloud.url, procedure, list(parameters.values()))
    else:
        accepted = await call_soap(web, cloud.url, f"/{prefix}", operation, parameters)
    if accepted is not True:
        raise Declined(f"{cloud.url}: the registration was refused, without a reason")
    return "The registration was accepted."


def _parameters(callback: RegisteredCallback, **topics: Any) -> dict[str, Any]:
    """The parameters of a registration, in their order; without a domain, the address that it
    comes from is called.
    """
    return {
        "notifyProcedure": callback.procedure,
        "port": callback.port,
        "path": callback.path,
        "protocol": callback.protocol,
        **topics,
        **({"domain": callback.domain} if callback.domain else {}),
    }


@define(eq=False)
class Subscriber:
    """Renews registrations, and tells real notifications from a cloud's tests of the callback.

    :param on_notification: called with the URL of a topic that has changed.
    :param warn: called with a sentence if a renewal failed.
    """

    _web: Web
    _clock: IReactorTime
    _on_notification: Callable[[str], None]
    _warn: Callable[[str], None]
    topics: set[str] = field(factory=set, init=False)
    # The topics whose next notification is a cloud's test of the callback: see ``notified``.
    _awaiting_test: set[str] = field(factory=set, init=False)
    _renewals: list[Deferred[None]] = field(factory=list, init=False)

    async def subscribe(self, cloud: Cloud, topic: str, callback: RegisteredCallback) -> str:
        """Register with a cloud, and renew the registration from then on.

        :returns: the cloud's sentence.
        :raises ClientError: the registration failed; it is not renewed.
        """
        self.topics.add(topic)
        try:
            answer = await self._register(cloud, topic, callback)
        except ClientError:
            self.topics.discard(topic)
            raise
        self._renewals.append(Deferred.fromCoroutine(self._renew(cloud, topic, callback)))
        return answer

    def notified(self, topic: str) -> None:
        """Handle a notification of a cloud.

        The first one during a registration is the cloud's test of the callback, which looks like
        any other notification, and is not passed on.
        """
        if topic in self._awaiting_test:
            self._awaiting_test.discard(topic)
        else:
            self._on_notification(topic)

    def stop(self) -> None:
        """Stop the renewals; the registrations end within 25 hours."""
        for renewal in self._renewals:
            renewal.addErrback(lambda failure: failure.trap(CancelledError))
            renewal.cancel()
        self._renewals.clear()

    async def _register(self, cloud: Cloud, topic: str, callback: RegisteredCallback) -> str:
        """Register, and expect a test of the callback while the cloud has not answered."""

        def begin(callback: RegisteredCallback) -> None:
            """Expect a test of this callback, if the cloud tests it without a challenge."""
            self._awaiting_test.discard(topic)
            if not callback.domain or callback.protocol not in _BY_FORM:
                self._awaiting_test.add(topic)

        try:
            return await register(self._web, cloud, topic, callback, begin)
        finally:
            self._awaiting_test.discard(topic)

    async def _renew(self, cloud: Cloud, topic: str, callback: RegisteredCallback) -> None:
        """Register anew each day; after a failure, every five minutes until it succeeds."""
        delay = RENEW_AFTER
        while True:
            await deferLater(self._clock, delay)
            try:
                await self._register(cloud, topic, callback)
                delay = RENEW_AFTER
            except CancelledError:
                raise
            except Exception as error:  # a bug must not end the renewals either
                delay = RETRY_AFTER
                self._warn(
                    f"The registration for {topic} was not renewed: {str(error).rstrip('.')}. "
                    f"Trying again in {RETRY_AFTER // 60} minutes."
                )
