"""The verbs of administrators: pages, the API and commands all call this.

Each verb that changes something stores the change, has ``Following`` put it into force in this
process, and then returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from attrs import define, evolve, field
from prometheus_client import Gauge
from zope.interface import implementer

from rsscloud_broker.core.change_detection import ChangeDetector
from rsscloud_broker.core.following import MAX_ANNOUNCEMENTS, Following
from rsscloud_broker.core.web_addresses import topic_of
from rsscloud_broker.counters import Counters
from rsscloud_broker.errors import TopicUnreadable, Unadministrable, Unavailable
from rsscloud_broker.events import SubscriptionRemoved, TopicEnded
from rsscloud_broker.interfaces import (
    IAccountAdministration,
    IAdministration,
    IClock,
    IEventBus,
    ServedTopics,
)
from rsscloud_broker.model import Subscription
from rsscloud_broker.model.administration import (
    BLOCK_KINDS,
    MAX_BLOCKS,
    STATES,
    Announcement,
    Block,
    BrokerState,
    Change,
    PublishedWork,
    SubscriptionDetails,
    SubscriptionFilter,
    SubscriptionPage,
    TopicDetails,
    TopicReading,
    WorkerState,
)
from rsscloud_broker.model.values import HIDDEN
from rsscloud_broker.model.work import HostState
from rsscloud_broker.policy.blocks import Blocks, block_name, host_name
from rsscloud_broker.policy.changes import change_by, needed
from rsscloud_broker.storage import Store
from rsscloud_broker.util.threads import Workers
from rsscloud_broker.util.urls import normal_form
from rsscloud_broker.wire import websub
from rsscloud_broker.wire.text import clean
from rsscloud_broker.wire.units import MINUTE

#: The options of subscriptions whose values an administrator may see.
PUBLIC_OPTIONS: Final = frozenset({websub.HUB, websub.METHOD})

#: The longest announcement, in characters.
MAX_TEXT: Final = 1000

#: The most items of one page.
MAX_LIMIT: Final = 500


@implementer(IAdministration)
@define(eq=False)
class Administration:
    """Carries out the verbs, each of which ``IAdministration`` describes.

    :param detector: reads topics; its ``forget`` discards what is cached of one.
    :param blocks: is given what is blocked.
    :param queues: says how many events wait for each sink.
    :param workers: the pools of threads.
    :param served_topics: returns what applications serve, so that it can be taken down.
    :ivar accounts: the verbs about accounts.
    :ivar following: a service that puts changes into force; it also has the announcements.
    """

    _store: Store
    _bus: IEventBus
    _detector: ChangeDetector
    _clock: IClock
    _blocks: Blocks
    _counters: Counters
    _queues: Callable[[], Mapping[str, int]]
    _workers: Sequence[Workers]
    accounts: IAccountAdministration
    _served_topics: Callable[[], Iterable[ServedTopics]] = tuple
    following: Following = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.following = Following(
            self._store, self._bus, self._clock, self._blocks, self._detector.reader.forget
        )

    def _change_now(self, account: str, verb: str, what: object, reason: str = "") -> Change:
        """A change by an account now.

        :raises Unadministrable: there is no account, or the reason is too long.
        """
        return change_by(account, verb, what, reason, self._clock.wall_seconds())

    # subscriptions

    async def find_subscriptions(
        self, wanted: SubscriptionFilter, after: int = 0, limit: int = 50
    ) -> SubscriptionPage:
        _check_limit(limit)
        if wanted.state not in ("", *STATES):
            raise Unadministrable(
                f"{wanted.state!r} is no state of a subscription: write one of {', '.join(STATES)}"
            )
        in_normal_form = evolve(
            wanted,
            topic=_topic_url(wanted.topic) if wanted.topic else "",
            host=host_name(wanted.host) if wanted.host else "",
        )
        now = self._clock.wall_seconds()
        page = await self._store.find_subscriptions(in_normal_form, now, after, limit)
        return evolve(page, subscriptions=tuple(map(_without_secrets, page.subscriptions)))

    async def subscription(self, key: int) -> SubscriptionDetails:
        found = await self._store.subscription_details(key)
        if found is None:
            raise Unadministrable(_no_subscription(key), missing=True)
        return evolve(
            found,
            subscription=_without_secrets(found.subscription),
            block=self._blocks.of_host(found.subscription.callback.host),
        )

    async def redeliver(self, account: str, key: int, reason: str = "") -> SubscriptionDetails:
        change = self._change_now(account, "redeliver", key, reason)
        found = await self.subscription(key)
        await self._check_content(found)
        await self._apply(await self._store.redeliver(key, change), _no_subscription(key))
        return await self.subscription(key)

    async def _check_content(self, found: SubscriptionDetails) -> None:
        """Raise if a new notification would have nothing to carry, ever."""
        one = found.subscription
        url = one.moved_to or one.topic
        if found.pending or not one.wants_content or one.ended or self._detector.reader.reads(url):
            return
        if await self._store.newest_content(url) is None:
            raise Unadministrable(
                f"there is nothing to deliver: the content of {url} is pushed, and the last one "
                "is not kept any more; wait for the next"
            )

    async def remove_subscription(self, account: str, key: int, reason: str = "") -> None:
        change = self._change_now(account, "remove", key, reason)
        one = (await self.subscription(key)).subscription
        await self._apply(
            await self._store.remove_subscription_by_id(key, change), _no_subscription(key)
        )
        self._bus.publish(SubscriptionRemoved(one.topic, one.callback, account=account))

    async def mark(self, account: str, key: int, reason: str = "") -> None:
        change = self._change_now(account, "mark", key, reason)
        marked = await self._store.set_dropping(key, dropping=True, change=change)
        await self._apply(marked, _no_subscription(key))

    async def unmark(self, account: str, key: int, reason: str = "") -> None:
        change = self._change_now(account, "unmark", key, reason)
        unmarked = await self._store.set_dropping(key, dropping=False, change=change)
        await self._apply(unmarked, _no_subscription(key))

    # topics

    async def topic(self, url: str) -> TopicDetails:
        url = _topic_url(url)
        status = await self._store.topic_status(url)
        if status is None:
            raise Unadministrable(f"this broker knows no topic {url}", missing=True)
        return TopicDetails(status, self._blocks.of_topic(status.topic.url))

    async def read_topic(self, account: str, url: str, reason: str = "") -> TopicReading:
        url = _topic_url(url)
        change = self._change_now(account, "read", url, reason)
        changed, problem = False, ""
        try:
            changed = (await self._detector.check_now(url)).changed
        except TopicUnreadable as error:
            problem = error.reason
        await self._apply(await self._store.record_change(change))
        return TopicReading(changed, problem, await self._store.topic_status(url))

    async def revive_topic(self, account: str, url: str, reason: str = "") -> None:
        url = _topic_url(url)
        change = self._change_now(account, "revive", url, reason)
        if not await self._store.revive_topic(url, change):
            await self.topic(url)  # raises if it is unknown
            raise Unadministrable(f"{url} has not ended, so it cannot be revived")
        await self._apply()
        await self._fetch_soon(url)

    async def end_topic(self, account: str, url: str, reason: str) -> None:
        topic = (await self.topic(url)).status.topic
        url = topic.url
        change = self._change_now(account, "end", url, needed(reason))
        if not await self._store.end_topic(url, change.reason, change.at, change):
            raise Unadministrable(f"{url} has ended already")
        await self._apply()
        self._bus.publish(TopicEnded(url, change.reason, change.at, topic.is_private))

    def is_published(self, url: str) -> bool:
        return any(one.take_down and url.startswith(one.prefix) for one in self._served_topics())

    async def published(self, name: str, limit: int = 50) -> Sequence[PublishedWork]:
        _check_limit(limit)
        name = (await self.accounts.account(name)).name
        return [
            work
            for one in self._served_topics()
            if one.published is not None
            for work in await one.published(name, limit)
        ]

    async def taken_down(self, name: str, since: float) -> Sequence[Change]:
        prefixes = [f"{one.prefix}{name}/" for one in self._served_topics() if one.take_down]
        return await self._store.taken_down(prefixes, since)

    async def take_down(self, account: str, url: str, reason: str) -> None:
        url = _topic_url(url)
        change = self._change_now(account, "take down", url, needed(reason))
        change = evolve(change, title=await self._title_of(url))
        record = self._store.recording(change)
        removed = [
            await one.take_down(url, change.reason, record)
            for one in self._served_topics()
            if one.take_down and url.startswith(one.prefix)
        ]
        await self._apply(
            any(removed), f"no application of this broker publishes anything at {url}"
        )

    async def _title_of(self, url: str) -> str:
        """The title or name of what an account publishes at a URL; empty if it is not known."""
        for one in self._served_topics():
            if one.published is not None and url.startswith(one.prefix):
                name = url.removeprefix(one.prefix).partition("/")[0]
                for work in await one.published(name, MAX_LIMIT):
                    if normal_form(work.url) == url:
                        return clean(work.title)[:80]
        return ""

    async def move_topic(self, account: str, url: str, to: str, reason: str = "") -> None:
        url, to = (await self.topic(url)).status.topic.url, _topic_url(to)
        change = self._change_now(account, "move", f"{url} {to}", reason)
        if not self._detector.reader.reads(to):
            raise Unadministrable(
                f"{to}: its content is pushed to this broker, so no topic can move there"
            )
        if not await self._store.move_topic(url, to, change.at, change):
            raise Unadministrable(
                f"{url} cannot move to {to}: one of them has ended, or the topic is there "
                "already, or it came from there less than a week ago, or both have more than "
                "250 subscriptions"
            )
        await self._apply()
        await self._fetch_soon(to)

    async def _fetch_soon(self, url: str) -> None:
        """Have a topic fetched, if the store has taken a request for that."""
        if await self._store.request_check(url, self._clock.wall_seconds()):
            self._detector.schedule(url)

    # hosts

    async def hosts(self, after: str = "", limit: int = 50) -> Sequence[HostState]:
        _check_limit(limit)
        return await self._store.host_states(after, limit)

    async def close_breaker(self, account: str, host: str, reason: str = "") -> None:
        host = host_name(host)
        await self._store.close_breaker(
            host, self._change_now(account, "close breaker", host, reason)
        )
        await self._apply()

    # blocks

    async def blocks(
        self, kind: str = "", after: tuple[str, str] = ("", ""), limit: int = 50
    ) -> Sequence[Block]:
        _check_limit(limit)
        if kind not in ("", *BLOCK_KINDS):
            raise Unadministrable(f"{kind!r} is none of {', '.join(BLOCK_KINDS)}")
        return await self._store.blocks(kind, after, limit)

    async def block(self, account: str, kind: str, what: str, reason: str) -> Block:
        name = block_name(kind, what)
        change = self._change_now(account, "block", f"{kind} {name}", needed(reason))
        block = Block(kind, name, change.reason, account, change.at)
        if not await self._store.put_block(block, MAX_BLOCKS, change):
            raise Unadministrable(
                f"there are {MAX_BLOCKS:,} blocks, as many as may be: lift some of them first"
            )
        await self._apply()
        return block

    async def unblock(self, account: str, kind: str, what: str, reason: str = "") -> None:
        name = block_name(kind, what)
        change = self._change_now(account, "unblock", f"{kind} {name}", reason)
        lifted = await self._store.remove_block(kind, name, change)
        await self._apply(lifted, f"there is no block of the {kind} {name}")

    # the broker

    async def state(self) -> BrokerState:
        counters = self._counters
        numbers = {
            "notifications under way": counters.in_flight,
            "slow notifications": counters.slow,
            "notifications waiting for a slot": counters.queued,
            "fan-outs under way": counters.fan_outs,
            "topics waiting to be fetched": counters.checks,
            "hosts with open breakers": counters.open_hosts,
            "writes waiting": counters.writes,
        }
        found = await self._store.nodes()
        due, now = await self._store.late_jobs(), self._clock.wall_seconds()
        # No job is late because the broker was down: each has time since the start of this process.
        since = max((one.started_at for one in found.nodes if one.here), default=now)
        return evolve(
            found,
            late_jobs={name: at for name, at in due.items() if max(at, since) < now - 15 * MINUTE},
            numbers={**{name: _value(gauge) for name, gauge in numbers.items()}, **found.numbers},
            queues=self._queues(),
            workers={str(one.name): WorkerState(*one.busy()) for one in self._workers},
        )

    async def announcements(self, after: int = 0, limit: int = 50) -> Sequence[Announcement]:
        _check_limit(limit)
        return await self._store.announcements(after, limit)

    async def announce(
        self, account: str, text: str, since: float | None = None, until: float | None = None
    ) -> Announcement:
        text = clean(text)
        if not 0 < len(text) <= MAX_TEXT:
            raise Unadministrable(f"an announcement must have 1 to {MAX_TEXT} characters")
        change = self._change_now(account, "announce", text)
        since = change.at if since is None else since
        if until is not None and until <= max(since, change.at):
            raise Unadministrable("an announcement must end after it begins, and in the future")
        if len(await self._store.announcements(0, MAX_ANNOUNCEMENTS)) == MAX_ANNOUNCEMENTS:
            raise Unadministrable(
                f"there are {MAX_ANNOUNCEMENTS} announcements, as many as may be: remove one first"
            )
        stored = await self._store.add_announcement(
            Announcement(text, since, until, account), change
        )
        await self._apply()
        return stored

    async def withdraw(self, account: str, key: int, reason: str = "") -> None:
        change = self._change_now(account, "withdraw", key, reason)
        removed = await self._store.remove_announcement(key, change)
        await self._apply(removed, f"there is no announcement {key}")

    async def changes(self, before: int | None = None, limit: int = 50) -> Sequence[Change]:
        _check_limit(limit)
        return await self._store.changes(before, limit)

    async def _apply(self, changed: object = True, missing: str = "") -> None:
        """Put a change into force here.

        :param changed: whether the store has changed something.
        :param missing: what does not exist if it has not.
        :raises Unadministrable: the store has changed nothing.
        """
        if not changed:
            raise Unadministrable(missing, missing=True)
        with suppress(Unavailable):  # the next look follows it, and says if it fails
            await self.following.look()


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= MAX_LIMIT:
        raise Unadministrable(f"a page has from 1 to {MAX_LIMIT} items, and {limit} were asked for")


def _topic_url(url: str) -> str:
    """The normal form of the URL of a topic, as somebody has typed it."""
    try:
        return topic_of(url.strip())
    except TopicUnreadable as error:
        raise Unadministrable(str(error)) from error


def _no_subscription(key: int) -> str:
    return f"there is no subscription {key}: it may have expired or been removed"


def _without_secrets(one: Subscription) -> Subscription:
    """The subscription with ``HIDDEN`` in place of what administrators may not see."""
    shown = {
        name: value if name in PUBLIC_OPTIONS else HIDDEN for name, value in one.options.items()
    }
    return evolve(one, options=shown)


def _value(gauge: Gauge) -> int:
    """The present value of a gauge without labels."""
    (metric,) = gauge.collect()
    return int(metric.samples[0].value)
