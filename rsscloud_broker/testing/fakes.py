"""Fakes of the broker's parts, which record their calls and answer as a test tells them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias, cast

from attrs import define, evolve, field
from twisted.internet.defer import Deferred, execute
from twisted.internet.interfaces import IReactorTime
from twisted.python.filepath import FilePath
from twisted.web.template import Flattenable
from zope.interface import implementer

from rsscloud_broker import interfaces, model
from rsscloud_broker.counters import Counters
from rsscloud_broker.errors import TopicUnreadable
from rsscloud_broker.events import Event, TopicChanged
from rsscloud_broker.model.fetching import EVERYTHING, Fetched, Wanted
from rsscloud_broker.model.ways import Way
from rsscloud_broker.testing.clock import Clock
from rsscloud_broker.testing.memory import memory_store
from rsscloud_broker.testing.parsing import parse_here
from rsscloud_broker.wire.websub import SIGNATURE, sign


def reply(status: int = 200, body: bytes = b"", **headers: str) -> interfaces.OutboundReply:
    """Make an answer for a `FakeOutbound`.

    :param headers: the headers of the answer; an underscore stands for a hyphen.
    """
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return interfaces.OutboundReply(status, names, body, "")


#: An answer with status 200 and no body.
EMPTY = reply()

#: The answer to a request, or a function that makes it; an exception is raised.
Answer: TypeAlias = (
    interfaces.OutboundReply
    | Exception
    | Deferred[interfaces.OutboundReply]
    | Callable[
        [interfaces.OutboundRequest],
        interfaces.OutboundReply | Exception | Deferred[interfaces.OutboundReply],
    ]
)


@implementer(interfaces.IOutbound)
class FakeOutbound:
    """An outbound client that sends nothing: it records requests, and answers from a table.

    :param answers: the answers by URL.  A URL that is not in the table is looked up without its
        query.
    :param otherwise: the answer for URLs that are not in the table.
    :ivar requests: the requests in order, with the headers that sign them.
    """

    def __init__(self, answers: Mapping[str, Answer] | None = None, otherwise: Answer = EMPTY):
        self.answers: dict[str, Answer] = dict(answers or {})
        self.otherwise = otherwise
        self.requests: list[interfaces.OutboundRequest] = []

    async def request(self, request: interfaces.OutboundRequest) -> interfaces.OutboundReply:
        """Record a request, signed if it is to be, and return or raise the answer in the table."""
        url, signing = request.url, request.signing
        if signing is not None:
            signature = sign(request.body, signing.secret, signing.method)
            request = evolve(request, headers={**request.headers, SIGNATURE: signature})
        self.requests.append(request)
        page = url.partition("?")[0]
        answer = self.answers.get(url, self.answers.get(page, self.otherwise))
        if callable(answer):
            answer = answer(request)
        if isinstance(answer, Deferred):
            answer = await answer
        if isinstance(answer, Exception):
            raise answer
        return evolve(answer, url=answer.url or url)


@implementer(interfaces.ITopicFetcher)
class FakeFetcher:
    """Fetches topics from a table.

    :param contents: the bytes of topics by URL; the fetch of any other URL fails.
    :ivar validators: the validators of contents by URL; a fetch with these validators gets no
        content.
    :ivar moves: the URLs to which topics have moved, by URL.
    :ivar failures: the exceptions to raise, by URL.
    :ivar fetched: the URLs that were fetched, in order.
    :ivar asked: the validators and the number of subscribers of each fetch, in order.
    :ivar wanted: what was wanted of each fetch, in order.
    :ivar held: None; or a list, to which each fetch adds a Deferred and waits until the test
        fires it.
    """

    def __init__(self, contents: Mapping[str, bytes] | None = None) -> None:
        self.contents: dict[str, bytes] = dict(contents or {})
        self.validators: dict[str, model.Validators] = {}
        self.moves: dict[str, str] = {}
        self.failures: dict[str, Exception] = {}
        self.fetched: list[str] = []
        self.asked: list[tuple[model.Validators, int]] = []
        self.wanted: list[Wanted] = []
        self.held: list[Deferred[None]] | None = None

    async def fetch(
        self,
        url: str,
        known: model.Validators = model.NO_VALIDATORS,
        subscribers: int = 0,
        wanted: Wanted = EVERYTHING,
    ) -> Fetched:
        """Record a fetch, and return or raise what the tables say of the URL."""
        self.fetched.append(url)
        self.asked.append((known, subscribers))
        self.wanted.append(wanted)
        if self.held is not None:
            gate: Deferred[None] = Deferred()
            self.held.append(gate)
            await gate
        if url in self.failures:
            raise self.failures[url]
        moved_to = self.moves.get(url, "")
        location = moved_to or url
        if location not in self.contents:
            raise TopicUnreadable(url, "its server answered with status 404")
        validators = self.validators.get(location, model.NO_VALIDATORS)
        if known != model.NO_VALIDATORS and known == validators:
            return Fetched(None, validators, moved_to, result="not modified")
        content = model.Content(self.contents[location], "application/rss+xml")
        return Fetched(content, validators, moved_to, result="it came")


@implementer(interfaces.INotifier)
@define(eq=False, slots=False)
class FakeNotifier:
    """A notifier that calls nobody: it records its calls, and takes the outcomes from a table.

    :ivar outcomes: the outcomes by callback URL; an exception is raised.  The outcome of any other
        callback is a success.
    :ivar verified: the intents to verify, in order.
    :ivar notified: the notifications to send, in order.
    :ivar denied: the denials to send, in order.
    :ivar held: None; or a list, to which each notification adds a Deferred and waits until the
        test fires it.
    """

    protocol: str = "http-post"
    drop_after_failures: int | None = 3
    retries: tuple[float, ...] = ()
    carries_content: bool = False
    outcomes: dict[str, model.Outcome | Exception] = field(factory=dict, init=False)
    verified: list[model.Intent] = field(factory=list, init=False)
    notified: list[model.Notification] = field(factory=list, init=False)
    denied: list[model.Denial] = field(factory=list, init=False)
    held: list[Deferred[None]] | None = field(default=None, init=False)

    async def verify(self, intent: model.Intent) -> model.Outcome:
        self.verified.append(intent)
        return self._outcome(intent.callback)

    async def notify(self, notification: model.Notification) -> model.Outcome:
        self.notified.append(notification)
        if self.held is not None:
            gate: Deferred[None] = Deferred()
            self.held.append(gate)
            await gate
        return self._outcome(notification.callback)

    async def deny(self, denial: model.Denial) -> model.Outcome:
        self.denied.append(denial)
        return self._outcome(denial.callback)

    def _outcome(self, callback: model.Callback) -> model.Outcome:
        """The outcome that the test has given for a callback."""
        outcome = self.outcomes.get(callback.url, model.Outcome(True))
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


@implementer(interfaces.IEventSink)
class RecordingSink:
    """A sink that records the events it is given."""

    def __init__(
        self, name: str = "recording", handles: tuple[type[Event], ...] = (TopicChanged,)
    ) -> None:
        self.name = name
        self.handles = handles
        self.events: list[Event] = []

    async def handle(self, event: Event) -> None:
        self.events.append(event)


@implementer(interfaces.IEventBus)
class RecordingBus:
    """A bus that records events, and delivers them to no sink.

    :ivar events: the published events, in order.
    :ivar sinks: the attached sinks.
    :ivar on_publish: a function that is called with each published event.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.sinks: list[interfaces.IEventSink] = []
        self.on_publish: Callable[[Event], object] = lambda event: None

    def attach(self, sink: interfaces.IEventSink) -> None:
        self.sinks.append(sink)

    def wants(self, kind: type[Event]) -> bool:
        return True

    def publish(self, event: Event) -> None:
        self.events.append(event)
        self.on_publish(event)


@implementer(interfaces.IBroker)
class FakeBroker:
    """A broker that stores nothing: it records its calls, and accepts every request.

    :ivar pings: the pings, each with its repeat window.
    :ivar recent: the pings that ``recent_pings`` returns.
    :ivar pinged: the topics given to ``ping_topic``.
    :ivar sources: the addresses that pings of all kinds and pushes came from, in order.
    :ivar origins: the origins given to ``ping_topic`` and ``publish``, in order.
    :ivar published: the URLs given to ``publish``, call by call.
    :ivar fetched: the topics given to ``fetch_for_followers``.
    :ivar distrusted: the topics given to ``distrust_pings``.
    :ivar pushed: the topics given to ``push_content``, each with its content.
    :ivar intents: the intents given to ``subscribe``.
    :ivar unsubscribed: the intents given to ``unsubscribe``.
    :ivar accepted: the intents given to ``accept``.
    :ivar failures: the exceptions to raise, by the name of the method.
    :ivar problems: the sentences that ``publish`` returns, by URL.
    :ivar changed: the result of ``ping_topic``, ``push_content`` and ``unsubscribe``.
    """

    def __init__(self, protocols: Sequence[str] = ("http-post",)) -> None:
        self.protocols = frozenset(protocols)
        self.content_protocols: frozenset[str] = frozenset()
        self.pings: list[tuple[model.Ping, float]] = []
        self.recent: tuple[model.Ping, ...] = ()
        self.pinged: list[str] = []
        self.sources: list[str] = []
        self.origins: list[str] = []
        self.published: list[tuple[str, ...]] = []
        self.fetched: list[str] = []
        self.distrusted: list[str] = []
        self.pushed: list[tuple[str, model.Content]] = []
        self.intents: list[model.Intent] = []
        self.unsubscribed: list[model.Intent] = []
        self.accepted: list[model.Intent] = []
        self.failures: dict[str, Exception] = {}
        self.problems: dict[str, str] = {}
        self.changed = True

    async def ping(self, ping: model.Ping, repeat_window: float, source: str) -> None:
        self._raise_given("ping")
        self.pings.append((ping, repeat_window))
        self.sources.append(source)

    async def recent_pings(self) -> Sequence[model.Ping]:
        self._raise_given("recent_pings")
        return self.recent

    async def ping_topic(
        self, url: str, source: str, again: bool = False, origin: str = "", way: Way = Way.RSSCLOUD
    ) -> bool:
        self._raise_given("ping_topic")
        self.pinged.append(url)
        self.origins.append(origin)
        self.sources.append(source)
        return self.changed

    async def publish(
        self, urls: Collection[str], source: str, origin: str = ""
    ) -> Mapping[str, str]:
        self._raise_given("publish")
        self.origins.append(origin)
        self.published.append(tuple(urls))
        self.sources.append(source)
        return {url: self.problems[url] for url in urls if url in self.problems}

    async def fetch_for_followers(self, url: str, source: str) -> None:
        """Request a fetch of a topic for private followers."""
        self._raise_given("fetch_for_followers")
        self.fetched.append(url)
        self.sources.append(source)

    async def distrust_pings(self, url: str) -> None:
        self._raise_given("distrust_pings")
        self.distrusted.append(url)

    async def push_content(self, topic: str, content: model.Content, source: str) -> bool:
        """Begin a fan-out of pushed content; return False if its topic has no subscriptions."""
        self._raise_given("push_content")
        self.pushed.append((topic, content))
        self.sources.append(source)
        return self.changed

    async def subscribe(self, intent: model.Intent) -> model.Subscription:
        """Record an intent, and return a subscription that is stored nowhere."""
        self._raise_given("subscribe")
        self.intents.append(intent)
        lease = model.Lease(0.0, intent.lease_seconds)
        number = len(self.intents)
        return model.Subscription(
            intent.topic, intent.callback, lease, id=number, options=intent.options
        )

    async def unsubscribe(self, intent: model.Intent) -> bool:
        self._raise_given("unsubscribe")
        self.unsubscribed.append(intent)
        return self.changed

    async def accept(self, intent: model.Intent) -> None:
        self._raise_given("accept")
        self.accepted.append(intent)

    def _raise_given(self, verb: str) -> None:
        """Raise the exception that the test has given for a method, if any."""
        if verb in self.failures:
            raise self.failures[verb]


@implementer(interfaces.IPages)
class FakePages:
    """Renders pages that show the names of their templates and slots."""

    async def render(
        self,
        title: str,
        template: str,
        viewer: interfaces.Caller | None = None,
        /,
        **slots: Flattenable,
    ) -> bytes:
        return repr((title, template, sorted(slots.items()))).encode()


@implementer(interfaces.ITopicView)
class FakeTopicView:
    """A view of topics that a test puts into it.

    :ivar overviews: the overviews of topics, by URL.
    :ivar summaries: the topics that have subscriptions, in the order of their ids.
    :ivar listed: the pings, newest first.
    """

    def __init__(self) -> None:
        self.overviews: dict[str, model.TopicOverview] = {}
        self.summaries: list[model.TopicSummary] = []
        self.listed: list[model.Ping] = []

    async def overview(self, url: str, newest: bool = False) -> model.TopicOverview | None:
        return self.overviews.get(url)

    async def status(self, url: str) -> model.TopicStatus | None:
        found = self.overviews.get(url)
        return None if found is None else found.status

    async def watched(self, after: int, limit: int) -> Sequence[model.TopicSummary]:
        return [summary for summary in self.summaries if summary.id > after][:limit]

    async def beginning(self, begins: str, limit: int) -> Sequence[model.TopicOverview]:
        """Topics whose URLs begin so after the scheme."""
        return [
            overview
            for url, overview in self.overviews.items()
            if url.partition("://")[2].startswith(begins)
        ][:limit]

    async def pings(self, before: tuple[float, int] | None, limit: int) -> Sequence[model.Ping]:
        """The newest pings, before the time and the id of one; None for all."""
        older = [
            ping for ping in self.listed if before is None or (ping.received_at, ping.id) < before
        ]
        return older[:limit]


def front_door_parts(**parts: Any) -> interfaces.FrontDoorParts:
    """The parts of a front door: those that the test gives, and fakes for the others."""
    fakes: dict[str, Any] = {
        "broker": FakeBroker(),
        "clock": Clock(),
        "pages": FakePages(),
        "counters": parts.get("counters") or Counters(),
        "public_directory": FilePath("no-such-directory"),
        "public_url": "http://broker.example",
        "running": frozenset(),
        "in_thread": execute,
        "parse": parse_here,
        "statistics": parts.get("statistics") or memory_store(),
        "topics": FakeTopicView(),
    }
    return interfaces.FrontDoorParts(**(fakes | parts))


def sink_parts(**parts: Any) -> interfaces.SinkParts:
    """The parts of a sink: those that the test gives, else a store in memory and fakes."""
    fakes: dict[str, Any] = {
        "store": parts.get("store") or memory_store(),
        "bus": RecordingBus(),
        "notifiers": {"http-post": FakeNotifier()},
        "clock": cast(IReactorTime, Clock()),
        "public_directory": FilePath("no-such-directory"),
        "in_thread": execute,
        "counters": parts.get("counters") or Counters(),
        "public_url": "http://broker.example",
    }
    return interfaces.SinkParts(**(fakes | parts))
