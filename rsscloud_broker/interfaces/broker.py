"""The interfaces in the middle of the broker: its verbs, its clock and its event bus.

Front doors call ``IBroker``.  The core publishes events on ``IEventBus``, and sinks handle them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Mapping, Sequence

from twisted.internet.interfaces import IReactorTime
from zope.interface import Attribute, Interface

from rsscloud_broker.events import Event
from rsscloud_broker.model import Content, Intent, Ping, Subscription
from rsscloud_broker.model.ways import Way


class IClock(IReactorTime):
    """Two clocks: a monotonic one for timers, and the wall clock.

    ``seconds`` and ``callLater`` use a monotonic clock, which nobody can set.  Its values mean
    nothing outside this process: use it for timers and durations.

    ``wall_seconds`` reads the wall clock, which somebody may set at any moment, forward or
    back: use it for times that are stored, shown, or compared with stored times.
    """

    def wall_seconds() -> float:
        """Seconds since the epoch (UTC), by the computer's wall clock."""


class IBroker(Interface):
    """The verbs of the broker, which front doors call: ping, publish, subscribe, unsubscribe.

    When a method returns, what it changed is on disk.

    Every URL must be a web address: http or https, with a host, without white space, of at
    most 2048 characters.  The broker checks this itself and does not rely on front doors.
    """

    protocols = Attribute("A frozenset of the protocols that subscribers may ask for.")
    content_protocols = Attribute(
        "A frozenset of those protocols whose notifications carry the content of the topic."
    )

    def ping(ping: Ping, repeat_window: float, source: str) -> Awaitable[None]:
        """Record that a site changed.  The broker fetches nothing before this returns.

        Afterwards it fetches each topic that the ping names and that has subscriptions.
        If the topic has changed, its subscribers are notified.

        A ping that has passed this broker before is ignored: see ``Ping.origin``.

        :param repeat_window: seconds within which the broker does not record the same ping
            again.
        :param source: the address of the caller, whose pings are limited; empty if there is
            no caller.
        :raises TooMany: the caller pinged too often.
        :raises InvalidPing: a URL of the ping is not a web address.
        :raises Forbidden: the operator allows no pings of one of its URLs; or an administrator has
            blocked one of them or the source.
        """

    def recent_pings() -> Awaitable[Sequence[Ping]]:
        """The ten newest pings, newest first; those without a name have the title of their topic,
        if it is public.  The list is at most a second old.

        However often this is called, the broker reads the store at most once a second.

        :raises Unavailable: the store cannot be read.
        """

    def ping_topic(
        url: str, source: str, again: bool = ..., origin: str = ..., way: Way = ...
    ) -> Awaitable[bool]:
        """Fetch a topic because somebody says that it changed, and wait for the result.

        :param source: as for ``ping``.
        :param again: whether to fetch the topic again later if this fetch fails and the topic
            has subscriptions.
        :param origin: see ``Ping``.  A ping that has passed this broker before is ignored.
        :param way: how the ping came; by default by rssCloud.
        :returns: whether the topic had changed.  If so, its subscribers are being notified.
        :raises TooMany: the caller pinged too often; or the topic has no subscriptions, and
            the broker fetches too many such topics of its host.
        :raises Forbidden: the operator allows no pings of the topic, or it or the source is
            blocked.
        :raises TopicUnreadable: the fetch failed; no change was stored.
        """

    def publish(
        urls: Collection[str], source: str, origin: str = ...
    ) -> Awaitable[Mapping[str, str]]:
        """Accept that topics changed, and fetch them afterwards.

        Each URL counts as one ping.  The broker fetches nothing before this returns.

        If the broker accepts none of the URLs, it raises the error of the first one.

        :param urls: at least one.
        :param source: as for ``ping``.
        :param origin: as for ``ping_topic``.
        :returns: sentences for people, by URL in normal form: why the broker did not accept
            this URL, or why its last fetch failed.
        :raises TooMany: the caller pinged too often; or a topic has no subscriptions, and too
            many such topics, or too many of its host, are fetched or wait to be fetched.
        :raises Forbidden: the operator allows no pings of a topic, or it or the source is
            blocked.
        :raises TopicUnreadable: the broker refuses to call the URL, the topic has ended, or its
            content is pushed.
        """

    def fetch_for_followers(url: str, source: str) -> Awaitable[None]:
        """Fetch a topic soon, since a private follower was notified that it has changed.

        It is no ping: nobody else learns of it.

        :param source: as for ``ping``.
        :raises TooMany: the caller pinged too often, or too many topics wait to be fetched.
        :raises Forbidden: the source is blocked.
        """

    def distrust_pings(url: str) -> Awaitable[None]:
        """Poll a topic as if nobody had ever pinged it, since its pings have stopped.

        The broker polls topics that are pinged rarely.  After the next ping it does so again.
        """

    def push_content(topic: str, content: Content, source: str) -> Awaitable[bool]:
        """Distribute pushed content to the subscribers of a topic, unchanged and without a fetch.

        The caller has authenticated the publisher.

        :param source: as for ``ping``.
        :returns: whether the topic has subscriptions.
        :raises Forbidden: the topic or the source is blocked.
        :raises TopicUnreadable: the URL of the topic is not a web address.
        """

    def subscribe(intent: Intent) -> Awaitable[Subscription]:
        """Verify an intent to subscribe, then store or renew the subscription.

        :raises UnsupportedProtocol: no notifier for its protocol runs.
        :raises Forbidden: the operator allows no subscriptions to the topic; or it, the host of
            the callback or the source is blocked.
        :raises TopicUnreadable: the topic could not be fetched, or has ended.
        :raises CallbackFailed: the callback did not confirm, now or a moment ago.
        :raises TooMany: the caller asks too often, or too many requests concern the host of
            the topic or of the callback; the broker called neither.
        """

    def unsubscribe(intent: Intent) -> Awaitable[bool]:
        """Verify an intent to unsubscribe, then remove the subscription.

        :returns: whether there was a subscription.
        :raises UnsupportedProtocol, CallbackFailed, TooMany: as for ``subscribe``.
        :raises Forbidden: the host of the callback or the source is blocked.
        """

    def accept(intent: Intent) -> Awaitable[None]:
        """Store an intent to subscribe or to unsubscribe, and verify it afterwards.

        The intent outlives a restart.  A later intent with the same topic and callback
        replaces it.  The subscriber learns the result at its callback.

        :raises UnsupportedProtocol, Forbidden: as for ``subscribe``.
        :raises TooMany: as for ``subscribe``, or too many intents wait to be verified.
        :raises TopicUnreadable: the broker refuses to call the URL of the topic, or the topic
            has ended.
        :raises CallbackFailed: the broker refuses to call the URL of the callback.
        """


class IEventBus(Interface):
    """Carries events from the core to the sinks."""

    def attach(sink: IEventSink) -> None:
        """Deliver the events that a sink handles to it from now on."""

    def wants(kind: type[Event]) -> bool:
        """Whether any sink handles a class of events.

        Nobody needs to ask before ``publish``.  It is for events so frequent that even making
        them costs time.
        """

    def publish(event: Event) -> None:
        """Put an event into the queue of every sink that handles its class.

        Never blocks and never raises.  If the queue of a sink is full, the bus drops the event
        for that sink and counts it; the fact that the event reports is in the store.
        """


class IEventSink(Interface):
    """Reacts to events, one at a time and in order.

    A sink that is also an ``IService`` is started and stopped with the broker.
    """

    name = Attribute("A unique str, for logs and counters.")
    handles = Attribute("A tuple of the event classes that the sink handles.")

    def handle(event: Event) -> Awaitable[None]:
        """Handle an event.  The sink gets its next event when this is done.

        The bus logs and counts a failure, and goes on with the next event.
        """
