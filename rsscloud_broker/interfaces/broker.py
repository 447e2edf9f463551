"""The middle of the broker: its verbs, its clock and its event bus.

Front doors call ``IBroker``.  The core publishes events on ``IEventBus``, and sinks take them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Mapping, Sequence

from twisted.internet.interfaces import IReactorTime
from zope.interface import Attribute, Interface

from rsscloud_broker.events import Event
from rsscloud_broker.model import Content, Intent, Ping, Subscription


class IClock(IReactorTime):
    """The time, by two clocks.

    ``seconds`` and ``callLater`` go by a monotonic clock.  Nobody sets it, and its
    readings mean nothing outside this process: it is for timers and durations.

    ``wall_seconds`` reads the wall clock.  Somebody may set it at any moment, back too: it
    is for what is stored, shown, or compared with what is stored.
    """

    def wall_seconds() -> float:
        """Seconds since the epoch (UTC), by the computer's wall clock."""


class IBroker(Interface):
    """The verbs.  When one of them returns, what it did is on disk.

    Every URL must be a web address: http or https, with a host, without white space, of at
    most 2048 characters.  The broker checks that, whatever a front door has checked.
    """

    protocols = Attribute("A frozenset of the protocols that subscribers may ask for.")
    content_protocols = Attribute("Those of them whose notifications carry the content of topics.")

    def ping(ping: Ping, repeat_window: float, source: str) -> Awaitable[None]:
        """Take in that a site changed.  Nothing is fetched before this returns.

        Subscribers of any topic that the ping names are told once the topic
        has been read and found changed.

        :param repeat_window: seconds within which the same ping again makes no
            second record.
        :param source: the address of the caller, which may ping only so often;
            empty if nobody called.
        :raises TooMany: it did so more often.
        :raises InvalidPing: one of its URLs is no web address.
        """

    def recent_pings() -> Awaitable[Sequence[Ping]]:
        """The newest pings, newest first and ten at most, as they were a second ago or later.

        However often this is called, the store is read once a second at most.

        :raises Unavailable: the store cannot be read.
        """

    def ping_topic(url: str, source: str, again: bool = ...) -> Awaitable[bool]:
        """Read a topic because somebody says that it changed.

        :param source: as for ``ping``.
        :param again: if it cannot be read, and somebody subscribed to it, it is
            read again later.
        :returns: whether it had; if so, its subscribers are being told.
        :raises TooMany: the caller pinged too often; or nobody has subscribed to the topic,
            and too many such topics of its host are read.
        :raises TopicUnreadable: it could not be read; nothing was stored.
        """

    def publish(urls: Collection[str], source: str) -> Awaitable[Mapping[str, str]]:
        """Take in that topics changed, to be read afterwards.

        Each counts as a ping of that topic.  Nothing is fetched before this returns.

        :param urls: at least one.
        :param source: as for ``ping``.
        :returns: sentences for people, by URL in normal form: why some of them were not
            taken in, as below, or could not be read the last time.
        :raises TooMany: the caller pinged too often; none of them was taken in.
        :raises Forbidden: nobody may publish the first of them, and none was taken in.
        :raises TopicUnreadable: likewise, as the broker would not call a URL like that,
            the topic has ended, or its content is pushed.
        :raises TooMany: likewise, as nobody has subscribed to it, and too many such topics
            of its host are read, or wait to be read.
        """

    def push_content(topic: str, content: Content) -> Awaitable[bool]:
        """Carry a content to the subscribers of a topic, as it is and without a fetch.

        Whoever calls this has made sure of the publisher.

        :returns: whether there is anybody to carry it to.
        :raises TopicUnreadable: the URL of the topic is no web address.
        """

    def subscribe(intent: Intent) -> Awaitable[Subscription]:
        """Verify an intent, then store the subscription or renew it.

        :raises UnsupportedProtocol: no notifier carries its protocol.
        :raises Forbidden: nobody may subscribe to the topic.
        :raises TopicUnreadable: the topic could not be read, or has ended.
        :raises CallbackFailed: the callback did not confirm, now or a moment ago.
        :raises TooMany: the caller asks too often, or too much is asked of the
            hosts of the topic or the callback; neither was called.
        """

    def unsubscribe(intent: Intent) -> Awaitable[bool]:
        """Verify an intent to end a subscription, then remove it.

        :returns: whether there was one.
        :raises UnsupportedProtocol, CallbackFailed, TooMany: as for ``subscribe``.
        """

    def accept(intent: Intent) -> Awaitable[None]:
        """Take in an intent to subscribe or to unsubscribe, to be verified afterwards.

        It outlives a restart.  A later one of the same topic and callback replaces
        it.  What comes of it the subscriber learns at its callback.

        :raises UnsupportedProtocol, Forbidden, TooMany: as for ``subscribe``; too many
            too if more intents wait than the broker keeps.
        :raises TopicUnreadable: the broker would not call a URL like that, or the
            topic has ended.
        :raises CallbackFailed: the broker would not call a URL like that.
        """


class IEventBus(Interface):
    """Carries events from the core to the sinks."""

    def attach(sink: IEventSink) -> None:
        """Let a sink have the events it handles from now on."""

    def publish(event: Event) -> None:
        """Put an event into the queue of every sink that handles its class.

        Never blocks and never raises.  For a sink whose queue is full the
        event is dropped and counted: what it told of is in the store.
        """


class IEventSink(Interface):
    """Reacts to events, one at a time and in order.

    A sink that is also an ``IService`` is started and stopped with the broker.
    """

    name = Attribute("A unique str, for logs and counters.")
    handles = Attribute("A tuple of the event classes that the sink wants.")

    def handle(event: Event) -> Awaitable[None]:
        """React.  The next event waits until this is done.

        A failure is logged and counted; the sink gets the next event.
        """
