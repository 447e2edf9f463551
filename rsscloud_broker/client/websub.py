"""WebSub from the outside: publishing to a hub, finding one, being a subscriber.

A topic names its hub, and itself, in its HTTP headers, or inside if it is a feed
or an HTML page (section 4 of WebSub).  A subscriber asks the hub, is asked back
at its callback, gets what is new there, and asks again before the lease ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from secrets import token_urlsafe
from typing import Final, NoReturn
from urllib.parse import urlencode, urljoin

from attrs import define, field, frozen
from lxml import etree, html
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import deferLater

from rsscloud_broker.client.web import ClientError, Reply, Web
from rsscloud_broker.wire import links, websub, xml
from rsscloud_broker.wire.text import clean, decode
from rsscloud_broker.wire.websub import HubCall

#: Seconds in which a hub may ask whether we mean it to end.
LEAVING: Final = 5.0
#: Seconds in which our last answer gets out, before everything is closed.
LINGER: Final = 0.1
#: Seconds after which a renewal that failed is tried again.
RETRY_AFTER: Final = 5 * 60

_ATOM = "http://www.w3.org/2005/Atom"
_FORM = {"Content-Type": "application/x-www-form-urlencoded"}
# Posts that are whole pages nest deeper than a call does, and have more in them.
_MAX_DEPTH, _MAX_ELEMENTS = 200, 500_000


# --- publishing and finding -------------------------------------------------


def hub_of(broker_url: str) -> str:
    """The hub of a broker of our kind."""
    return broker_url.rstrip("/") + links.HUB_PATHS[0]


async def publish(web: Web, hub: str, urls: Sequence[str]) -> str:
    """Say that topics changed; what the hub said.

    :raises ClientError: it did not take it.
    """
    fields = [("hub.mode", "publish"), *(("hub.url", url) for url in urls)]
    return await _ask(web, hub, fields)


async def find_hub(web: Web, url: str) -> tuple[str, str]:
    """The hub of a topic, and the topic's own name for itself.

    :raises ClientError: it cannot be read, or names no hub.
    """
    reply = await web.get(url)
    if not reply.success:
        raise ClientError(f"{url}: answered with HTTP status {reply.status}")
    for find in (_in_headers, _in_document):
        found = list(find(reply))
        hubs = [target for target, relation in found if relation == "hub"]
        selves = [target for target, relation in found if relation == "self"]
        if hubs:
            base = reply.url or url
            return urljoin(base, hubs[0]), urljoin(base, selves[0]) if selves else url
    raise ClientError(f"{url} names no hub. A broker can be named with --broker.")


def _in_headers(reply: Reply) -> Iterator[tuple[str, str]]:
    try:
        found = links.parse(reply.link)
    except links.MalformedLink:
        return
    yield from ((link.target, relation) for link in found for relation in link.relations)


def _in_document(reply: Reply) -> Iterator[tuple[str, str]]:
    """Targets and relations that a feed or the head of a page names."""
    for element in _elements(reply):
        for relation in element.get("rel", "").lower().split():
            yield element.get("href", "").strip(), relation


def _elements(reply: Reply) -> list[etree._Element]:
    """The link elements of a feed as a whole, or of a page's head."""
    try:  # many a feed is labelled as a page
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
    except etree.ParserError:  # there is nothing in it
        return []
    return list(page.iterfind("head/link"))


async def _ask(web: Web, hub: str, fields: Sequence[tuple[str, str]]) -> str:
    """Send a form to a hub; the sentence that it answered with."""
    reply = await web.post(hub, _FORM, urlencode(fields).encode("ascii"))
    said = clean(decode(reply.body))[:200]
    if not reply.taken:
        raise ClientError(f"{hub}: answered with HTTP status {reply.status}: {said}".rstrip(": "))
    return said or f"The answer was HTTP status {reply.status}."


# --- being a subscriber -----------------------------------------------------


@frozen
class Delivery:
    """What a hub sent.

    :ivar signed: whether it came with the signature that our secret makes; None if
        we gave none.
    """

    topic: str
    body: bytes = field(repr=False)
    content_type: str
    signed: bool | None


@define(eq=False)
class _Subscription:
    """What we asked of a hub, and where we stand.

    :ivar callback: where this hub calls us for this topic, which nobody else knows.
    :ivar mode: what we want to be asked about; empty if nothing is to be asked.
    :ivar confirmed: a hub has asked, and we have said yes.
    """

    hub: str
    topic: str
    callback: str
    mode: str = "subscribe"
    confirmed: bool = False
    renewal: IDelayedCall | None = None
    left: Deferred[None] = field(factory=Deferred)


class HubSubscriber:
    """Keeps subscriptions at hubs alive, and checks what comes.

    :param on_delivery: called with each content.
    :param tell: called with sentences for people.
    :param secret: what deliveries are to be signed with; empty for unsigned ones.
    """

    def __init__(
        self,
        web: Web,
        clock: IReactorTime,
        on_delivery: Callable[[Delivery], None],
        tell: Callable[[str], None],
        secret: str = "",
    ) -> None:
        self._web = web
        self._clock = clock
        self._on_delivery = on_delivery
        self._tell = tell
        self._secret = secret
        self._subscriptions: dict[str, _Subscription] = {}

    async def subscribe(self, hub: str, topic: str, callbacks: str) -> str:
        """Ask a hub for a topic; what it said.  It asks back later.

        :param callbacks: the URL below which we are called, with a slash at the end.
        :raises ClientError: it will not.
        """
        token = token_urlsafe(16)
        subscription = _Subscription(hub, topic, f"{callbacks}{token}")
        self._subscriptions[token] = subscription
        try:
            return await self._send(subscription)
        except ClientError:
            del self._subscriptions[token]
            raise

    def asked(self, token: str, call: HubCall) -> bool:
        """A hub asks whether we mean it, or tells us no.  Whether we agree.

        :param token: the last part of the URL that was called.
        """
        subscription = self._subscriptions.get(token)
        if subscription is None or subscription.topic != call.topic:
            return False
        if call.mode == "denied":
            reason = f": {call.reason}" if call.reason else ""
            self._tell(f"{call.topic}: the hub gives us nothing{reason}")
            self._rest(subscription)
            subscription.confirmed = False
            return True
        if call.mode != subscription.mode:
            return False
        if call.mode == "subscribe":
            subscription.confirmed = True
            self._tell(f"{call.topic}: subscribed for {call.lease_seconds} seconds")
            # Before the lease has ended, and not so often that it burdens the hub.
            self._renew_after(subscription, max(call.lease_seconds * 0.75, 60.0))
        elif not subscription.left.called:
            subscription.left.callback(None)
        return True

    def deliver(self, token: str, content_type: str, signature: str, body: bytes) -> bool:
        """A hub sent something.  Whether we have asked for it."""
        subscription = self._subscriptions.get(token)
        if subscription is None:
            return False
        signed = websub.is_signed(signature, body, self._secret) if self._secret else None
        self._on_delivery(Delivery(subscription.topic, body, content_type, signed))
        return True

    async def leave(self) -> None:
        """End every subscription, as far as its hub lets us in a few seconds."""
        for subscription in self._subscriptions.values():
            self._rest(subscription)
        confirmed = [one for one in self._subscriptions.values() if one.confirmed]
        await gatherResults([Deferred.fromCoroutine(self._leave(one)) for one in confirmed])

    async def _leave(self, subscription: _Subscription) -> None:
        def not_asked(result: object, seconds: float) -> NoReturn:
            raise ClientError(f"the hub did not ask back within {seconds:g} seconds")

        subscription.mode = "unsubscribe"
        try:
            await self._send(subscription)
            await subscription.left.addTimeout(LEAVING, self._clock, not_asked)
            await deferLater(self._clock, LINGER)
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
        return await _ask(self._web, subscription.hub, fields)

    async def _renew(self, subscription: _Subscription) -> None:
        try:
            await self._send(subscription)
        except ClientError as error:
            self._tell(
                f"The subscription of {subscription.topic} was not renewed: "
                f"{str(error).rstrip('.')}. Trying again in {RETRY_AFTER // 60} minutes."
            )
            self._renew_after(subscription, RETRY_AFTER)

    def _renew_after(self, subscription: _Subscription, seconds: float) -> None:
        self._rest(subscription)
        subscription.renewal = self._clock.callLater(
            seconds, lambda: Deferred.fromCoroutine(self._renew(subscription))
        )

    def _rest(self, subscription: _Subscription) -> None:
        """Renew no more."""
        if subscription.renewal is not None and subscription.renewal.active():
            subscription.renewal.cancel()
