"""The table of what the administration API can do.

Each ``Operation`` says by which method and path it is called, what it takes, what it answers, and
what it does.  The API routes and checks requests by this table, ``openapi`` makes the document at
``/api`` from it, and the commands ``rsscloud-broker admin`` are made from it too.  So they cannot
differ.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from attrs import field, frozen

from rsscloud_broker.interfaces import IAdministration
from rsscloud_broker.web.admin import operations as does
from rsscloud_broker.web.admin import shapes

#: Does an operation: takes the verbs, the name of the account, what is asked, and the time.
Run = Callable[[IAdministration, str, Any, float], Awaitable[shapes.Shape]]


@frozen
class Operation:
    """Something that the API can do.

    :ivar name: its name, which is also that of the command.
    :ivar method: ``GET`` if it changes nothing, otherwise ``POST``.
    :ivar path: below ``/api/v1``; ``{id}`` stands for the id in ``asks``.
    :ivar help: what it does, in a sentence.
    :ivar asks, answers: the classes of what it takes and what it answers.
    :ivar example: an example of what it takes.
    :ivar final: whether nobody can undo it, so that the command asks once more.
    """

    name: str
    method: str
    path: str
    help: str
    asks: type[does.Asked]
    answers: type[shapes.Shape]
    run: Run = field(repr=False)
    example: Mapping[str, Any] = field(factory=dict)
    final: bool = False


_FEED: Final = "http://feeds.example/rss.xml"

#: All operations.
OPERATIONS: Final = (
    Operation(
        "state",
        "GET",
        "/state",
        "Show how busy the broker is, and its processes.",
        does.Nothing,
        shapes.State,
        does.state,
    ),
    Operation(
        "subscriptions",
        "GET",
        "/subscriptions",
        "Find subscriptions by topic, host, protocol and state.",
        does.Find,
        shapes.Subscriptions,
        does.find,
        {"topic": _FEED, "state": "active", "limit": 10},
    ),
    Operation(
        "subscription",
        "GET",
        "/subscriptions/{id}",
        "Show a subscription with its last failures.",
        does.ById,
        shapes.SubscriptionDetails,
        does.subscription,
        {"id": 1},
    ),
    Operation(
        "redeliver",
        "POST",
        "/subscriptions/{id}/redeliver",
        "Notify a subscriber now.",
        does.ByIdWithReason,
        shapes.SubscriptionDetails,
        does.redeliver,
        {"id": 1, "reason": "its server is back"},
    ),
    Operation(
        "mark",
        "POST",
        "/subscriptions/{id}/mark",
        "Mark a subscription: the next sweep, at the top of the hour, drops it.",
        does.ByIdWithReason,
        shapes.SubscriptionDetails,
        does.mark,
        {"id": 1},
    ),
    Operation(
        "unmark",
        "POST",
        "/subscriptions/{id}/unmark",
        "Take the mark for dropping from a subscription, and forget its failures.",
        does.ByIdWithReason,
        shapes.SubscriptionDetails,
        does.unmark,
        {"id": 1},
    ),
    Operation(
        "remove",
        "POST",
        "/subscriptions/{id}/remove",
        "Remove a subscription; the subscriber is not told.",
        does.ByIdWithReason,
        shapes.Done,
        does.remove,
        {"id": 2, "reason": "a test"},
        final=True,
    ),
    Operation(
        "topic",
        "GET",
        "/topic",
        "Show a topic: its fetches, its polls and what its feed says.",
        does.ByUrl,
        shapes.Topic,
        does.topic,
        {"url": _FEED},
    ),
    Operation(
        "read",
        "POST",
        "/topic/read",
        "Fetch a topic now; its subscribers are notified if it has changed.",
        does.ByUrlWithReason,
        shapes.Reading,
        does.read,
        {"url": _FEED},
    ),
    Operation(
        "end",
        "POST",
        "/topic/end",
        "End a topic: its subscribers are told why, and it is fetched no more.",
        does.End,
        shapes.Topic,
        does.end,
        {"url": "http://feeds.example/old.xml", "reason": "its site is gone"},
        final=True,
    ),
    Operation(
        "take-down",
        "POST",
        "/topic/take-down",
        "Delete what somebody has published with an application of this broker.",
        does.End,
        shapes.Done,
        does.take_down,
        {"url": "http://feeds.example/spam.xml", "reason": "it is spam"},
        final=True,
    ),
    Operation(
        "revive",
        "POST",
        "/topic/revive",
        "Revive an ended topic.",
        does.ByUrlWithReason,
        shapes.Topic,
        does.revive,
        {"url": "http://feeds.example/ended.xml"},
    ),
    Operation(
        "move",
        "POST",
        "/topic/move",
        "Move a topic with its subscriptions to another URL.",
        does.Move,
        shapes.Topic,
        does.move,
        {"url": "http://feeds.example/moving.xml", "to": "http://feeds.example/moved.xml"},
        final=True,
    ),
    Operation(
        "hosts",
        "GET",
        "/hosts",
        "List the hosts whose circuit breakers are open.",
        does.HostPage,
        shapes.Breakers,
        does.hosts,
        {"limit": 10},
    ),
    Operation(
        "close-breaker",
        "POST",
        "/hosts/close-breaker",
        "Close the circuit breakers of a host, so that it is called at once.",
        does.CloseBreaker,
        shapes.Done,
        does.close,
        {"host": "reader.example"},
    ),
    Operation(
        "blocks",
        "GET",
        "/blocks",
        "List the blocks.",
        does.BlockPage,
        shapes.Blocks,
        does.blocks,
        {"kind": "host"},
    ),
    Operation(
        "block",
        "POST",
        "/blocks",
        "Block a host, a topic or a source, or replace the reason of a block.",
        does.Shut,
        shapes.Block,
        does.block,
        {"kind": "host", "object": "spam.example", "reason": "it sends spam"},
    ),
    Operation(
        "unblock",
        "POST",
        "/blocks/lift",
        "Lift a block.",
        does.Open,
        shapes.Done,
        does.unblock,
        {"kind": "source", "object": "192.0.2.0/24"},
    ),
    Operation(
        "announcements",
        "GET",
        "/announcements",
        "List the announcements.",
        does.Page,
        shapes.Announcements,
        does.announcements,
    ),
    Operation(
        "announce",
        "POST",
        "/announcements",
        "Show a text on all pages.",
        does.Announce,
        shapes.Announcement,
        does.announce,
        {"text": "The broker moves on Sunday.", "until": "2099-11-22T10:30:00Z"},
    ),
    Operation(
        "withdraw",
        "POST",
        "/announcements/{id}/withdraw",
        "Remove an announcement.",
        does.ByIdWithReason,
        shapes.Done,
        does.withdraw,
        {"id": 1},
    ),
    Operation(
        "changes",
        "GET",
        "/changes",
        "List what administrators did, the newest first.",
        does.Page,
        shapes.Changes,
        does.changes,
        {"limit": 10},
    ),
)
