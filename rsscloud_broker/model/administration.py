"""What administrators see and change: subscriptions and their failures, topics, hosts, blocks.

``interfaces.administration`` exchanges these values with pages, with the API and with commands.
Every class here is frozen and holds plain values.  Times are seconds since the epoch (UTC) as
floats; durations are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from attrs import field

from rsscloud_broker.model import Exchange, Subscription, TopicStatus
from rsscloud_broker.model.frozen import frozen
from rsscloud_broker.model.work import HostState

#: The states by which an administrator finds subscriptions.  A subscription may be in several.
#:
#: - ``active``: its lease has not ended, and it is not marked for dropping
#: - ``failing``: its last notification failed
#: - ``dropping``: it is marked for dropping, so the next sweep removes it
#: - ``waiting``: it has a pending notification
#: - ``expired``: its lease has ended, so the next sweep removes it
STATES: Final = ("active", "failing", "dropping", "waiting", "expired")

#: What an administrator may block: see ``Block``.
BLOCK_KINDS: Final = ("host", "topic", "source")

#: How many blocks there may be: each process keeps all of them in memory.
MAX_BLOCKS: Final = 10_000


@frozen
class SubscriptionFilter:
    """Which subscriptions an administrator looks for.  An empty field lets all pass.

    :ivar topic: the URL of a topic, in any spelling; also an earlier URL of a topic that has moved.
    :ivar host: the host of the callbacks.
    :ivar protocol: the name of a protocol, such as ``websub``.
    :ivar state: one of ``STATES``.
    """

    topic: str = ""
    host: str = ""
    protocol: str = ""
    state: str = ""


@frozen
class SubscriptionPage:
    """Some of the subscriptions that pass a filter.

    The broker looks through a limited number of subscriptions for one page.  So a page may have
    fewer subscriptions than asked for, or none, though further ones follow: go on while ``after``
    is not None.

    :ivar subscriptions: in the order of their ids, without the values of secret options.
    :ivar after: the key after which the next page begins; None if there is no further page.
    """

    subscriptions: tuple[Subscription, ...]
    after: int | None = None


@frozen
class PendingNotification:
    """The notification that waits for a subscription.

    :ivar attempts: how many attempts it has had.
    :ivar due_at: when its next attempt is due.
    :ivar under_way: whether a process of the broker works on it.
    :ivar failing_since: when its first attempt failed; None if none failed.
    :ivar not_before: the time before which the subscriber asked not to be called; None if it did
        not ask.
    :ivar queued: how many pushed contents wait behind it.
    """

    attempts: int
    due_at: float
    under_way: bool
    failing_since: float | None = None
    not_before: float | None = None
    queued: int = 0


@frozen
class FailedAttempt:
    """An attempt to notify a subscriber that failed.

    :ivar at: when it ended.
    :ivar attempt: which attempt it was of its notification; the first is 1.
    :ivar reason: why it failed, for people.
    """

    at: float
    attempt: int
    reason: str
    exchange: Exchange


@frozen
class SubscriptionDetails:
    """One subscription with all that an administrator may see of it.

    :ivar subscription: the subscription.  Of its options, secret ones have the value ``HIDDEN``.
    :ivar pending: its pending notification, or None.
    :ivar failures: its last failed attempts, newest first, at most three.
    :ivar breakers: the open circuit breakers of its host, and of the port of its callback.
    :ivar block: the block that stops its notifications, or None.
    """

    subscription: Subscription
    pending: PendingNotification | None = None
    failures: tuple[FailedAttempt, ...] = ()
    breakers: tuple[HostState, ...] = ()
    block: Block | None = None


@frozen
class TopicDetails:
    """One topic with all that an administrator may see of it.

    :ivar status: the topic, its fetches and its polls.
    :ivar block: the block that keeps the broker from fetching it, or None.
    """

    status: TopicStatus
    block: Block | None = None


@frozen
class TopicReading:
    """What came of a fetch that an administrator asked for.

    :ivar changed: whether the topic had changed; then its subscribers are being notified.
    :ivar problem: why the fetch failed, for people; empty if it did not.
    :ivar status: the topic after the fetch; None if the broker does not know it.
    """

    changed: bool
    problem: str = ""
    status: TopicStatus | None = None


@frozen
class Block:
    """Something that an administrator has shut out.

    - kind ``host``: ``object`` is the name of a host or an address, such as ``spam.example``; or
      ``*.spam.example`` for all hosts below that name, but not for itself.  The broker calls no
      such host, takes no subscriptions with callbacks there, and no pings of topics there nor
      subscriptions to them.
    - kind ``topic``: ``object`` is the URL of a topic, or the beginning of URLs with a whole host
      and a ``*`` at its end.  The broker does not fetch such topics, and takes no pings of them
      nor subscriptions to them.
    - kind ``source``: ``object`` is an address or a network, such as ``192.0.2.0/24``.  The
      broker takes no pings and no requests to subscribe or unsubscribe from there.

    What exists stays: subscriptions and topics are not removed.  Notifications to a blocked host
    wait until the block is lifted or the lease ends.

    :ivar reason: why, for people; callers that are refused read it.
    :ivar account: who blocked it.
    """

    kind: str
    object: str
    reason: str
    account: str
    at: float


@frozen
class Announcement:
    """A text by an administrator that the pages show to everybody.

    :ivar since, until: the time during which it is shown; ``until`` is None for no end.
    :ivar account: who wrote it.
    :ivar id: the store's key, ascending; 0 before it is stored.
    """

    text: str
    since: float
    until: float | None
    account: str
    id: int = 0


@frozen
class NodeState:
    """A process of the broker that works on the database.

    :ivar name: the computer and the process id.
    :ivar here: whether this process is that one.
    :ivar notifications: how many pending notifications it works on.
    :ivar slices: how many slices of fan-outs it works on.
    :ivar version: the version of the program.
    :ivar started_at: when it started, by the clock of the database.
    :ivar silent_for: seconds since its last heartbeat; None on SQLite, where it writes none.
    :ivar claims: how much of the further work it has claimed, by kind: ``fan-outs``, ``checks``,
        ``polls``, ``intents``.
    :ivar jobs: the names of the jobs that it does for all nodes now.
    :ivar pings: how many pings it has recorded since its start; as of its last heartbeat, as are
        the numbers below.
    :ivar notified: how many attempts to notify a subscriber it has made since its start.
    :ivar ping_rate, notification_rate: how many of these there were in each of the last seconds;
        None on SQLite.
    :ivar clock_ahead: by how many seconds the clock of its computer is ahead of the database's.
    """

    name: str
    here: bool
    notifications: int
    slices: int
    version: str = ""
    started_at: float = 0.0
    silent_for: float | None = None
    claims: Mapping[str, int] = field(factory=dict)
    jobs: tuple[str, ...] = ()
    pings: int = 0
    notified: int = 0
    ping_rate: float | None = None
    notification_rate: float | None = None
    clock_ahead: float = 0.0


@frozen
class BrokerState:
    """How busy the broker is.

    :ivar numbers: how many of something there are in this process now, or wait in the database, by
        name: for example ``notifications under way``, ``writes waiting``, ``topics waiting in the
        database``.
    :ivar queues: how many events wait for each sink, by the name of the sink.
    :ivar workers: how many calls wait for a thread and how many run, by the name of the pool.
    :ivar nodes: the processes that work on the database.
    :ivar late_jobs: since when jobs are due that one process does for all, by their names: those
        that became due a quarter of an hour ago, while this process ran.
    """

    numbers: Mapping[str, int] = field(factory=dict)
    queues: Mapping[str, int] = field(factory=dict)
    workers: Mapping[str, WorkerState] = field(factory=dict)
    nodes: tuple[NodeState, ...] = ()
    late_jobs: Mapping[str, float] = field(factory=dict)


@frozen
class WorkerState:
    """A pool of threads: how many calls wait for a thread, and how many run."""

    waiting: int
    running: int


@frozen
class Change:
    """Something that an administrator did, as the store keeps it.

    :ivar verb: what, in one word of ``VERBS``.
    :ivar object: to what: a URL, a host, the id of a subscription, and so on.
    :ivar id: the store's key, ascending; 0 before it is stored.
    :ivar title: the title or name of what was taken down, which nobody can look up any more; empty
        of everything else.
    """

    account: str
    verb: str
    object: str
    reason: str
    at: float
    id: int = 0
    title: str = ""


@frozen
class AccountSummary:
    """An account, as administrators see it.

    :ivar disabled: why it is disabled; empty if it is not.
    :ivar created_at: when it was made.
    :ivar signed_in_at: when somebody last signed in; None if nobody ever did.
    :ivar invited_until: until when its invitation works; None if there is none that was not used.
    :ivar has_password: whether it has a password here.
    :ivar sessions, tokens: how many it has.
    :ivar max_bytes: the most bytes that an application may store for it; None for what the options
        of the application say.
    """

    id: int
    name: str
    is_admin: bool
    disabled: str
    created_at: float
    signed_in_at: float | None
    invited_until: float | None
    has_password: bool
    sessions: int
    tokens: int
    max_bytes: int | None


@frozen
class Invitation:
    """A link by which somebody signs in to an account, once, and then chooses a password.

    :ivar link: its URL, which nobody can find out later.
    :ivar expires_at: when it expires.
    """

    name: str
    link: str = field(repr=False)
    expires_at: float


@frozen
class PublishedWork:
    """Something that an account publishes at this broker.

    :ivar url: where everybody can read it; it can be taken down there.
    :ivar kind: ``feed``, ``file`` or ``message``.
    :ivar title: its title or name, for people.
    :ivar at: when it was published.
    """

    url: str
    kind: str
    title: str
    at: float


#: What ``Change.verb`` and ``events.Administered.verb`` may be, each with what the event log says;
#: ``{topic}`` stands for an object that is the URL of a topic, and ``{}`` for any other object.  Of
#: ``move``, the object is the URL and the new one.
VERBS: Final[Mapping[str, str]] = {
    "redeliver": "had the subscription {} notified again",
    "remove": "removed the subscription {}",
    "mark": "marked the subscription {} for dropping",
    "unmark": "took the mark for dropping from the subscription {}",
    "read": "had {topic} fetched",
    "revive": "revived {topic}",
    "end": "ended {topic}",
    "take down": "took down {topic}",
    "move": "moved {topic}",
    "close breaker": "closed the circuit breakers of {}",
    "block": "blocked the {}",
    "unblock": "lifted the block of the {}",
    "announce": "announced: {}",
    "withdraw": "withdrew the announcement {}",
    "invite": "invited {}",
    "reset": "gave {} a new link to sign in, in place of the password",
    "disable": "disabled the account {}",
    "enable": "enabled the account {}",
    "promote": "made {} an administrator",
    "demote": "made {} an ordinary account",
    "set limit": "changed how much {} may store",
    "remove account": "removed the account {}",
}
