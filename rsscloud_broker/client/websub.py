"""The client side of WebSub: pings a hub, finds the hub of a topic, and subscribes.

A topic names its hub and itself in its HTTP headers, or, if it is a feed or an HTML page, in its
content (section 4 of WebSub).  A subscriber sends the hub a request, the hub verifies the intent
at the subscriber's callback and sends the content there, and the subscriber renews the
subscription before the lease ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from secrets import token_urlsafe
from typing import Final, NoReturn
from urllib.parse import urlencode

from attrs import define, field, frozen
from lxml import etree, html
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import deferLater

from rsscloud_broker.client.web import ClientError, MakesRequests, Reply, Web
from rsscloud_broker.util.urls import joined
from rsscloud_broker.wire import links, websub, xml
from rsscloud_broker.wire.text import clean, decode
from rsscloud_broker.wire.web_address import REDIRECTS
from rsscloud_broker.wire.websub import HubCall

#: Seconds after which a renewal that failed is tried again.
RETRY_AFTER: Final = 5 * 60

_ATOM = "http://www.w3.org/2005/Atom"
_FORM = {"Content-Type": "application/x-www-form-urlencoded"}
# An entry may hold a whole page, which nests deeper and has more elements than a call.
_MAX_DEPTH, _MAX_ELEMENTS = 200, 500_000


# --- publishing and finding -------------------------------------------------


def hub_of(broker_url: str) -> str:
    """The URL of the hub of a broker with the paths of rsscloud-broker."""
    return broker_url.rstrip("/") + links.HUB_PATHS[0]


async def publish(web: Web, hub: str, urls: Sequence[str]) -> str:
    """Tell a hub that topics have changed.

    :returns: the hub's sentence.
    :raises ClientError: the hub did not accept the request.
    """
    fields = [("hub.mode", "publish"), *(("hub.url", url) for url in urls)]
    return await ask_hub(web, hub, fields)


async def find_hub(web: Web, url: str) -> tuple[str, str]:
    """Find the hub of a topic.

    :returns: the URL of the hub, and the URL that the topic gives as its own.
    :raises ClientError: the topic cannot be read, or names no hub.
    """
    reply = await web.get(url)
    if not reply.success:
        raise ClientError(f"{url}: answered with HTTP status {reply.status}")
    for find in (_in_headers, _in_document):
        base = reply.url or url
        found = [(joined(base, target), relation) for target, relation in find(reply)]
        hubs = [target for target, relation in found if relation == "hub" and target]
        selves = [target for target, relation in found if relation == "self" and target]
        if hubs:
            return hubs[0], selves[0] if selves else url
    raise ClientError(f"{url} names no hub. Name a broker with --broker.")


def _in_headers(reply: Reply) -> Iterator[tuple[str, str]]:
    """Targets and relations of the links in the Link headers."""
    try:
        found = links.parse(reply.link)
    except links.MalformedLink:
        return
    yield from ((link.target, relation) for link in found for relation in link.relations)


def _in_document(reply: Reply) -> Iterator[tuple[str, str]]:
    """Targets and relations of the links in a feed, or in the head of a page."""
    for element in _elements(reply):
        for relation in element.get("rel", "").lower().split():
            yield element.get("href", "").strip(), relation


def _elements(reply: Reply) -> list[etree._Element]:
    """The link elements of a feed, without those of its entries, or of a page's head."""
    try:  # first as a feed, since many feeds are labelled as pages
        root = xml.parse(reply.body, max_depth=_MAX_DEPTH, max_elements=_MAX_ELEMENTS)
    except xml.MalformedXML:
        root = None
    if root is not None and xml.local_name(root) != "html":
        parents = [root, *(child for child in root if xml.local_name(child) == "channel")]
        return [child for parent in parents for child in parent if child.tag == f"{{{_ATOM}}}link"]
    if "html" not in reply.content_type:
        return []
    try:
        page = html.document_fromstring(reply.body)
    except etree.ParserError:  # the page is empty
        return []
    return list(page.iterfind("head/link"))


async def ask_hub(web: MakesRequests, hub: str, fields: Sequence[tuple[str, str]]) -> str:
    """Send a form to a hub, or to the one to which it redirects (section 5 of WebSub).

    :returns: the sentence with which the hub answers.
    :raises ClientError: the hub did not accept the request.
    """
    body = urlencode(fields).encode("ascii")
    reply = await web.post(hub, _FORM, body)
    for _ in range(REDIRECTS):
        if reply.status not in {307, 308} or not reply.location:
            break
        there = joined(hub, reply.location)
        if hub.lower().startswith("https:") and not there.lower().startswith("https:"):
            # The form may have a secret, which only https protects.
            raise ClientError(f"{hub}: it redirects to {reply.location[:200]}, which is not https")
        hub = there
        reply = await web.post(hub, _FORM, body)
    answer = clean(decode(reply.body))[:200]
    if not reply.accepted:
        raise ClientError(f"{hub}: answered with HTTP status {reply.status}: {answer}".rstrip(": "))
    return answer or f"The answer was HTTP status {reply.status}."


# --- subscribing ------------------------------------------------------------


@frozen
class ReceivedContent:
    """A content that a hub has sent to a callback.

    :ivar signed: whether its signature is right; None if the subscription has no secret.
    """

    topic: str
    body: bytes = field(repr=False)
    content_type: str
    signed: bool | None


@define(eq=False)
class _Subscription:
    """A subscription at a hub, and its state.

    :ivar callback: the URL of its callback, which only this hub knows.
    :ivar mode: the intent that the hub may verify: ``subscribe`` or ``unsubscribe``.
    :ivar confirmed: whether the callback has confirmed the subscription.
    :ivar renewal: the call that will renew it.
    :ivar unsubscribed: fires when the callback has confirmed that the subscription ends.
    """

    hub: str
    topic: str
    callback: str
    mode: str = "subscribe"
    confirmed: bool = False
    renewal: IDelayedCall | None = None
    unsubscribed: Deferred[None] = field(factory=Deferred)


class HubSubscriber:
    """Subscribes at hubs, confirms and renews the subscriptions, and checks signatures.

    ``callbacks`` passes the calls of the hubs to `verify` and `receive`.

    :param on_content: called with each content.
    :param tell: called with sentences for people.
    :param secret: the secret that signs notifications; empty for none.
    """

    def __init__(
        self,
        web: Web,
        clock: IReactorTime,
        on_content: Callable[[ReceivedContent], None],
        tell: Callable[[str], None],
        secret: str = "",
    ) -> None:
        self._web = web
        self._clock = clock
        self._on_content = on_content
        self._tell = tell
        self._secret = secret
        self._subscriptions: dict[str, _Subscription] = {}

    async def subscribe(self, hub: str, topic: str, callbacks: str) -> str:
        """Subscribe to a topic at a hub, which verifies the intent later.

        :param callbacks: the URL below which the callbacks are, with a slash at the end.
        :returns: the hub's sentence.
        :raises ClientError: the hub did not accept the request.
        """
        token = token_urlsafe(16)
        subscription = _Subscription(hub, topic, f"{callbacks}{token}")
        self._subscriptions[token] = subscription
        try:
            return await self._send(subscription)
        except ClientError:
            del self._subscriptions[token]
            raise

    def verify(self, token: str, call: HubCall) -> bool:
        """Check a hub's verification of intent against what was requested, or note its denial.

        :param token: the last segment of the callback's path.
        :returns: whether to confirm it.
        """
        subscription = self._subscriptions.get(token)
        if subscription is None or subscription.topic != call.topic:
            return False
        if call.mode == "denied":
            reason = f": {call.reason}" if call.reason else ""
            self._tell(f"{call.topic}: the hub refused or ended the subscription{reason}")
            self._stop_renewal(subscription)
            subscription.confirmed = False
            return True
        if call.mode != subscription.mode:
            return False
        if call.mode == "subscribe":
            subscription.confirmed = True
            self._tell(f"{call.topic}: subscribed for {call.lease_seconds} seconds")
            # Before the lease ends, but not so often that it burdens the hub.
            self._renew_after(subscription, max(call.lease_seconds * 0.75, 60.0))
        elif not subscription.unsubscribed.called:
            subscription.unsubscribed.callback(None)
        return True

    def receive(self, token: str, content_type: str, signature: str, body: bytes) -> bool:
        """Handle a content that a hub has sent.

        :returns: False if no subscription has this token.
        """
        subscription = self._subscriptions.get(token)
        if subscription is None:
            return False
        signed = websub.is_signed(signature, body, self._secret) if self._secret else None
        self._on_content(ReceivedContent(subscription.topic, body, content_type, signed))
        return True

    async def unsubscribe(self) -> None:
        """Unsubscribe from all topics, and wait at most a few seconds for the hubs to verify it."""
        for subscription in self._subscriptions.values():
            self._stop_renewal(subscription)
        confirmed = [one for one in self._subscriptions.values() if one.confirmed]
        await gatherResults([Deferred.fromCoroutine(self._unsubscribe(one)) for one in confirmed])

    async def _unsubscribe(self, subscription: _Subscription) -> None:
        def timed_out(result: object, seconds: float) -> NoReturn:
            raise ClientError(f"the hub did not verify the intent within {seconds:g} seconds")

        subscription.mode = "unsubscribe"
        try:
            await self._send(subscription)
            # Seconds in which a hub has to verify the intent to unsubscribe.
            await subscription.unsubscribed.addTimeout(5.0, self._clock, timed_out)
            # Seconds for the last answer to be sent before the process ends.
            await deferLater(self._clock, 0.1)
        except ClientError as error:
            self._tell(f"{subscription.topic}: the subscription ends with its lease: {error}")

    async def _send(self, subscription: _Subscription) -> str:
        fields = [
            ("hub.mode", subscription.mode),
            ("hub.topic", subscription.topic),
            ("hub.callback", subscription.callback),
        ]
        if self._secret:
            fields.append(("hub.secret", self._secret))
        return await ask_hub(self._web, subscription.hub, fields)

    async def _renew(self, subscription: _Subscription) -> None:
        # Unless the hub verifies it until then, whatever the reason is.
        self._renew_after(subscription, RETRY_AFTER)
        try:
            await self._send(subscription)
        except Exception as error:  # a bug too: the next renewal may succeed
            self._tell(
                f"The subscription of {subscription.topic} was not renewed: "
                f"{str(error).rstrip('.')}. Trying again in {RETRY_AFTER // 60} minutes."
            )

    def _renew_after(self, subscription: _Subscription, seconds: float) -> None:
        self._stop_renewal(subscription)
        subscription.renewal = self._clock.callLater(
            seconds, lambda: Deferred.fromCoroutine(self._renew(subscription))
        )

    def _stop_renewal(self, subscription: _Subscription) -> None:
        """Cancel the next renewal of a subscription."""
        if subscription.renewal is not None and subscription.renewal.active():
            subscription.renewal.cancel()
