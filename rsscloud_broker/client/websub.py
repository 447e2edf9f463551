"""The client side of WebSub: pings a hub, finds the hub of a topic, and subscribes.

A topic names its hub and itself in its HTTP headers, or, if it is a feed or an HTML page, in its
content (section 4 of WebSub).  A subscriber sends the hub a request, the hub verifies the intent
at the subscriber's callback and sends the content there, and the subscriber renews the
subscription before the lease ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from math import inf
from secrets import token_urlsafe
from typing import Final, NoReturn, Protocol
from urllib.parse import urlencode

from attrs import define, field, frozen
from lxml import etree, html
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from rsscloud_broker.client.web import ACCEPTED, ClientError, Web
from rsscloud_broker.errors import OutboundError, Unavailable
from rsscloud_broker.interfaces import OutboundReply
from rsscloud_broker.outbound.urls import redirected
from rsscloud_broker.util.clock import call_off
from rsscloud_broker.util.urls import joined
from rsscloud_broker.wire import links, websub, xml
from rsscloud_broker.wire.feed import is_json
from rsscloud_broker.wire.feed_json import read_json
from rsscloud_broker.wire.feed_tree import UnreadableFeed
from rsscloud_broker.wire.text import charset_of, clean, decode
from rsscloud_broker.wire.web_address import REDIRECTS
from rsscloud_broker.wire.websub import HubCall

#: Seconds after which a renewal that failed is tried again.
RETRY_AFTER: Final = 5 * 60

#: The largest content that is accepted, in bytes.
MAX_CONTENT_BYTES: Final = 10 * 1024 * 1024

_ATOM = "http://www.w3.org/2005/Atom"
_FORM = {"Content-Type": "application/x-www-form-urlencoded"}


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
    for find in (_links_in_headers, _links_in_document):
        first: dict[str, str] = {}  # the first target of each relation
        for target, relation in find(reply):
            if absolute := target and joined(reply.url, target):
                first.setdefault(relation, absolute)
        if "hub" in first:
            return first["hub"], first.get("self", url)
    raise ClientError(f"{url} names no hub. Name a broker with --broker.")


def _links_in_headers(reply: OutboundReply) -> Iterator[tuple[str, str]]:
    """Targets and relations of the links in the Link headers."""
    for link in links.parse_or_empty(reply.headers.get("link", "")):
        yield from ((link.target, relation) for relation in link.relations)


def _links_in_document(reply: OutboundReply) -> Iterator[tuple[str, str]]:
    """Targets and relations of the links in a feed, or in the head of a page."""
    if is_json(reply.body):
        with suppress(UnreadableFeed):
            facts = read_json(reply.body)
            yield from ((hub, "hub") for hub in facts.hubs)
            yield facts.self_link, "self"
        return
    for element in _link_elements(reply):
        target = element.get("href", "").strip()
        for relation in element.get("rel", "").lower().split():
            # What lxml calls the base is that of ``xml:base``, or of the ``base`` of a page.
            yield target and joined(element.base or "", target), relation


def _link_elements(reply: OutboundReply) -> list[etree._Element]:
    """The link elements of a feed, without those of its entries, or of a page's head."""
    body, content_type = reply.body, reply.headers.get("content-type", "")
    charset = charset_of(content_type)
    try:  # first as a feed, since many feeds are labelled as pages
        root = xml.parse(body, charset, max_depth=xml.FEED_DEPTH, max_elements=xml.FEED_ELEMENTS)
    except xml.MalformedXML:
        root = None
    if root is not None and xml.local_name(root) != "html":
        parents = [root, *(child for child in root if xml.local_name(child) == "channel")]
        return [child for parent in parents for child in parent if child.tag == f"{{{_ATOM}}}link"]
    if "html" not in content_type.lower():
        return []
    try:
        page = html.document_fromstring(body)
    except etree.ParserError:  # the page is empty
        return []
    return list(page.iterfind("head/link"))


async def ask_hub(web: Web, hub: str, fields: Sequence[tuple[str, str]]) -> str:
    """Send a form to a hub, or to the one to which it redirects (section 5 of WebSub).

    :returns: the sentence with which the hub answers.
    :raises ClientError: the hub did not accept the request.
    """
    body = urlencode(fields).encode("ascii")
    reply = await web.post(hub, _FORM, body)
    for _ in range(REDIRECTS):
        location = reply.headers.get("location", "")
        if reply.status not in {307, 308} or not location:
            break
        try:
            there = redirected(hub, location)
        except OutboundError as error:
            raise ClientError(f"{hub}: {error}") from error
        if hub.lower().startswith("https:") and not there.lower().startswith("https:"):
            # The form may have a secret, which only https protects.
            raise ClientError(f"{hub}: it redirects to {there[:200]}, which is not https")
        hub = there
        reply = await web.post(hub, _FORM, body)
    answer = clean(decode(reply.body))[:200]
    if reply.status not in ACCEPTED:
        raise ClientError(f"{hub}: answered with HTTP status {reply.status}: {answer}".rstrip(": "))
    return answer or f"The answer was HTTP status {reply.status}."


# --- subscribing ------------------------------------------------------------

#: Seconds of the lease that is asked for, which is the longest that is taken, and of one without a
#: length.
LONGEST_LEASE, USUAL_LEASE = 14 * 86_400, 7 * 86_400


async def ask_for_topic(
    web: Web, hub: str, mode: str, topic: str, callback: str, secret: str = "", lease: int = 0
) -> str:
    """Ask a hub to send the changes of a topic to a callback, or to end that.

    :param mode: ``subscribe`` or ``unsubscribe``.
    :param secret: signs what the hub sends; empty for none.
    :param lease: seconds; 0 for as long as the hub likes.
    :returns: the hub's sentence; it verifies the intent later.
    :raises ClientError: the hub did not accept the request.
    """
    fields = {
        "hub.mode": mode,
        "hub.topic": topic,
        "hub.callback": callback,
        "hub.secret": secret,
        "hub.lease_seconds": str(lease or ""),
    }
    return await ask_hub(web, hub, [(name, value) for name, value in fields.items() if value])


def lease_of(call: HubCall) -> tuple[int, float]:
    """The seconds of the lease that a hub has granted, and those after which it is renewed: before
    the lease ends, but not so often that it burdens the hub.
    """
    lease = min(call.lease_seconds or USUAL_LEASE, LONGEST_LEASE)
    return lease, max(lease * 0.75, 300.0)


@frozen
class PushedContent:
    """What a hub has sent to a callback.

    :ivar signature: the header X-Hub-Signature; empty if there is none.
    :ivar source: the address that sent it.
    """

    body: bytes = field(repr=False)
    content_type: str
    signature: str
    source: str


class IsCalledByHubs(Protocol):
    """What `HubCallbacks` asks.  A key is the last segment of the path of a callback."""

    async def verify(self, key: str, call: HubCall) -> bool:
        """Check a hub's verification of intent against what was requested, or note its denial.

        :returns: whether to confirm it.
        """
        ...

    async def receive(self, key: str, content: PushedContent) -> bool:
        """Handle what a hub has sent.

        :returns: False if no subscription has this key.
        """
        ...


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

    :ivar callback: the URL of its callback.
    :ivar mode: the intent that the hub may verify: ``subscribe`` or ``unsubscribe``.
    :ivar asked: whether the hub was asked, and has not verified that yet.
    :ivar asked_at: when it was asked last, in seconds of the clock.
    :ivar confirmed: whether the callback has confirmed the subscription.
    :ivar renewal: the call that will renew it.
    :ivar unsubscribed: fires when the callback has confirmed that the subscription ends.
    """

    hub: str
    topic: str
    callback: str
    mode: str = "subscribe"
    asked: bool = False
    asked_at: float = -inf
    confirmed: bool = False
    renewal: IDelayedCall | None = None
    unsubscribed: Deferred[None] = field(factory=Deferred)


@define(eq=False)
class HubSubscriber:
    """Subscribes at hubs, confirms and renews the subscriptions, and checks signatures.

    ``HubCallbacks`` passes the calls of the hubs to `verify` and `receive`.

    :param on_content: called with each content.
    :param tell: called with sentences for people.
    :param secret: the secret that signs notifications; empty for none.
    :param lease: the seconds of the lease that hubs are asked for; 0 for as long as they like.
    :param retry_after: seconds after which a hub is asked again that has failed or not verified.
    :param keeps_asking: whether a hub that refused is asked again, too.
    """

    log = Logger()

    _web: Web
    _clock: IReactorTime
    _on_content: Callable[[ReceivedContent], None]
    _tell: Callable[[str], None]
    _secret: str = ""
    _lease: int = 0
    _retry_after: float = RETRY_AFTER
    _keeps_asking: bool = field(default=False, kw_only=True)
    _subscriptions: dict[str, _Subscription] = field(factory=dict, init=False)

    async def subscribe(self, hub: str, topic: str, callbacks: str) -> str:
        """Subscribe to a topic at a hub, which verifies the intent later.

        :param callbacks: the URL below which the callbacks are, with a slash at the end.
        :returns: the hub's sentence.
        :raises ClientError: the hub did not accept the request.
        """
        key = token_urlsafe(16)
        subscription = self._subscriptions[key] = _Subscription(hub, topic, f"{callbacks}{key}")
        try:
            return await self._ask(subscription)
        except ClientError:
            del self._subscriptions[key]
            raise

    def keep_subscribed(self, key: str, hub: str, topic: str, callbacks: str) -> None:
        """Subscribe to a topic, and try again after ``retry_after`` seconds if that fails.

        :param key: the last segment of the callback's path.  A subscription with the same key goes
            on if its hub and its topic are the same; else it is replaced, but the new hub is asked
            no sooner than ``retry_after`` seconds after the last one, as a topic may name another
            hub each time it is fetched.
        """
        known = self._subscriptions.get(key)
        if known is not None and (known.hub, known.topic) == (hub, topic):
            return
        subscription = self._subscriptions[key] = _Subscription(hub, topic, f"{callbacks}{key}")
        if known is not None:
            call_off(known.renewal)
            subscription.asked_at = known.asked_at
        since = self._clock.seconds() - subscription.asked_at
        if since < self._retry_after:
            self._renew_after(subscription, self._retry_after - since)
        else:
            Deferred.fromCoroutine(self._renew(subscription))

    def stop(self) -> None:
        """Renew no subscription any more; they end with their leases."""
        for subscription in self._subscriptions.values():
            call_off(subscription.renewal)
        self._subscriptions.clear()

    async def verify(self, key: str, call: HubCall) -> bool:
        """Whether to confirm a hub's verification of intent; a denial is noted, and confirmed."""
        subscription = self._subscriptions.get(key)
        if subscription is None or subscription.topic != call.topic:
            return False
        if call.mode == "denied":
            self._note_denial(subscription, call.reason)
            return True
        if call.mode != subscription.mode:
            return False
        if call.mode == "unsubscribe":
            if not subscription.unsubscribed.called:
                subscription.unsubscribed.callback(None)
            return True
        if not (subscription.asked or subscription.confirmed):
            return False
        if subscription.asked:  # anybody may pretend to be the hub, often, and promise too much
            lease, pause = lease_of(call)
            self._tell(f"{call.topic}: subscribed for {lease} seconds")
            self._renew_after(subscription, pause)
        subscription.asked, subscription.confirmed = False, True
        return True

    def _note_denial(self, subscription: _Subscription, reason: str) -> None:
        """Note that the hub denied a subscription; with ``keeps_asking``, ask it again."""
        if not (subscription.asked or subscription.confirmed):
            return  # that is known
        because = f": {reason}" if reason else ""
        self._tell(f"{subscription.topic}: the hub refused or ended the subscription{because}")
        subscription.asked = subscription.confirmed = False
        at = subscription.renewal.getTime() if subscription.renewal is not None else 0.0
        if not self._keeps_asking:
            call_off(subscription.renewal)
        elif at > self._clock.seconds() + self._retry_after:
            self._renew_after(subscription, self._retry_after)

    async def receive(self, key: str, content: PushedContent) -> bool:
        """Pass a content on, with whether its signature is right; False if the key is unknown."""
        subscription = self._subscriptions.get(key)
        if subscription is None:
            return False
        body, secret = content.body, self._secret
        signed = websub.is_signed(content.signature, body, secret) if secret else None
        self._on_content(ReceivedContent(subscription.topic, body, content.content_type, signed))
        return True

    async def unsubscribe(self) -> None:
        """Unsubscribe from all topics, and wait at most a few seconds for the hubs to verify it."""
        for subscription in self._subscriptions.values():
            call_off(subscription.renewal)
        confirmed = [one for one in self._subscriptions.values() if one.confirmed]
        await gatherResults([Deferred.fromCoroutine(self._unsubscribe(one)) for one in confirmed])

    async def _unsubscribe(self, subscription: _Subscription) -> None:
        """Unsubscribe from a topic, and wait until the hub has verified that, or some seconds."""

        def timed_out(result: object, seconds: float) -> NoReturn:
            raise ClientError(f"the hub did not verify the intent within {seconds:g} seconds")

        subscription.mode = "unsubscribe"
        try:
            await self._ask(subscription)
            # Seconds in which a hub has to verify the intent to unsubscribe.
            await subscription.unsubscribed.addTimeout(5.0, self._clock, timed_out)
            # Seconds for the last answer to be sent before the process ends.
            await deferLater(self._clock, 0.1)
        except ClientError as error:
            self._tell(f"{subscription.topic}: the subscription ends with its lease: {error}")

    async def _ask(self, subscription: _Subscription) -> str:
        """Ask the hub for what ``mode`` of the subscription says.  Returns the hub's sentence."""
        subscription.asked, subscription.asked_at = True, self._clock.seconds()
        about = (subscription.mode, subscription.topic, subscription.callback)
        return await ask_for_topic(self._web, subscription.hub, *about, self._secret, self._lease)

    async def _renew(self, subscription: _Subscription) -> None:
        """Ask the hub to subscribe, and plan the next attempt."""
        # Unless the hub verifies it until then: ``verify`` plans the renewal instead.
        self._renew_after(subscription, self._retry_after)
        try:
            await self._ask(subscription)
        except (ClientError, Unavailable) as error:
            self._tell_of_failure(subscription, str(error))
        except Exception:  # log a bug; the next renewal may succeed
            self.log.failure("Subscribing to {url} failed.", url=subscription.topic)
            self._tell_of_failure(subscription, "the broker made a mistake")

    def _tell_of_failure(self, subscription: _Subscription, reason: str) -> None:
        self._tell(
            f"{subscription.topic}: the hub did not take the subscription: {reason.rstrip('.')}. "
            f"Trying again in {self._retry_after / 60:g} minutes."
        )

    def _renew_after(self, subscription: _Subscription, seconds: float) -> None:
        """Ask the hub again after some seconds, in place of the renewal that was planned."""
        call_off(subscription.renewal)
        subscription.renewal = self._clock.callLater(
            seconds, lambda: Deferred.fromCoroutine(self._renew(subscription))
        )
