"""How the broker learns that a topic has changed, and what strangers may know of that."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from attrs import evolve

from rsscloud_broker.model.frozen import frozen

#: The protocols by which applications of the broker subscribe for their accounts.  What an account
#: follows is its own: strangers see nothing of these subscriptions, and nothing of a topic that has
#: no others and that nobody has pinged.
PRIVATE_PROTOCOLS: Final = frozenset({"river"})


class Way(StrEnum):
    """How the broker learned that a topic had changed, or why it fetched the topic.

    ``LIST`` is a ping that another server listed, and ``PING`` one of which no more is known.
    ``SUBSCRIBED`` is the fetch before a subscription, and ``FOLLOWED`` one that was caused by what
    only a private follower was notified of; to others both are a ``FETCH``.
    """

    FETCH, FOLLOWED = "fetch", "followed"
    WEBLOG_UPDATES, LIST, PING = "weblogUpdates", "list", "ping"
    RSSCLOUD, WEBSUB, PAGE, SUBSCRIBED = "rssCloud", "WebSub", "page", "subscribed"
    PUSH, PUBLISHED = "push", "published"

    @property
    def is_open(self) -> bool:
        """Whether the topic would be fetched even if nobody had subscribed to it.

        What such a fetch finds tells strangers nothing about followers.
        """
        return self in _OPEN

    @property
    def shown(self) -> Way:
        """The way as everybody may see it."""
        return Way.FETCH if self in {Way.FOLLOWED, Way.SUBSCRIBED} else self

    def joined(self, later: Way) -> Way:
        """The way of a fetch that two requests share: the later one, unless the first tells more.

        A fetch that somebody asked for openly stays open.
        """
        return later if _RANKS[later] >= _RANKS[self] else self


_OPEN: Final = frozenset(
    {Way.RSSCLOUD, Way.WEBSUB, Way.PAGE, Way.SUBSCRIBED, Way.PUSH, Way.PUBLISHED}
)

# Open ways tell most; of the others those tell more that say why the topic may have changed.
_RANKS: Final = {way: 3 if way in _OPEN else 2 for way in Way} | {Way.FETCH: 0, Way.FOLLOWED: 1}


@frozen
class ChangeSource:
    """Why the broker thinks that a topic may have changed.

    :ivar way: how it learned of that.
    :ivar origin: which brokers the ping has passed; see ``Ping``.  If pings of several origins
        share a fetch, empty.
    :ivar pinged: whether somebody said that it has changed.
    """

    way: Way = Way.FETCH
    origin: str = ""
    pinged: bool = False

    @property
    def is_ping(self) -> bool:
        """Whether a ping is recorded: not of what only a private follower was notified of."""
        return self.pinged and self.way is not Way.FOLLOWED

    @property
    def again(self) -> ChangeSource:
        """The cause of a further attempt.  Its way is none of those by which strangers ask openly:
        the broker may try again for private followers alone, and strangers would see what it finds.
        """
        return evolve(self, way=Way.FETCH) if self.way.is_open else self

    def joined(self, later: ChangeSource) -> ChangeSource:
        """The cause of a fetch that two requests share, with the origin that all its pings share.

        What only a private follower was notified of makes no ping of the other request, nor does
        it hide one.
        """
        way = self.way.joined(later.way)
        pings = [each for each in (self, later) if each.is_ping]
        if not pings:
            pinged = way is Way.FOLLOWED and (self.pinged or later.pinged)
            return ChangeSource(way, pinged=pinged)
        origin = pings[0].origin if pings[0].origin == pings[-1].origin else ""
        return ChangeSource(Way.FETCH if way is Way.FOLLOWED else way, origin, pinged=True)


#: Nothing is known of why.
UNKNOWN_SOURCE: Final = ChangeSource()
