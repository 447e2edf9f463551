"""Feeds that are changed and pinged over and over, while brokers come and go."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from http.client import HTTPException
from threading import Condition, Event
from xmlrpc.client import dumps, loads

from rsscloud_broker.storage import import_in_parts, migrate, open_database
from tests.e2e.fixture import TIMEOUT, Broker, request
from tests.e2e.servers import Origin

#: Seconds in which everybody has been told, however often the broker was killed.
TOLD_WITHIN = TIMEOUT

#: Sends a ping for a feed, with a name that no other ping has; what was answered.
Ping = Callable[[Broker, str, str], str]


def by_rest(broker: Broker, feed: str, name: str) -> str:
    return broker.ping(feed).text


def by_xmlrpc(broker: Broker, feed: str, name: str) -> str:
    return _called(broker, "rssCloud.ping", feed)


def by_weblog_updates(broker: Broker, feed: str, name: str) -> str:
    return _called(broker, "weblogUpdates.ping", name, "http://site.example/", feed)


def _called(broker: Broker, procedure: str, *parameters: str) -> str:
    document = dumps(parameters, procedure).encode()
    answer = request(f"{broker.url}/RPC2", "POST", document, {"content-type": "text/xml"})
    return str(loads(answer.body)[0][0])


#: What each way of pinging answers when it has taken the ping.
THANKS: dict[Ping, str] = {
    by_rest: "Thanks for the ping.",
    by_xmlrpc: "True",
    by_weblog_updates: "Thanks for the ping.",
}


class Feed:
    """A feed, and what its subscribers saw of it.

    A subscriber that is notified reads the feed, in effect: what it saw is the
    version that was there when the notification came.

    :param heard: held by anyone who changes any of this while others may look; told
        of each change.
    :ivar version: how often it was changed.
    :ivar acknowledged: the names of the pings that were acknowledged.
    :ivar seen: for each callback, the versions seen with its notifications.
    :ivar untold: callbacks that were not notified since the last change.
    """

    def __init__(
        self,
        origin: Origin,
        path: str,
        ping: Ping,
        callbacks: Iterable[str],
        heard: Condition,
    ) -> None:
        self.path = path
        self.url = origin.feed(path)
        self.ping = ping
        self.version = 0
        self.acknowledged: list[str] = []
        self.seen: dict[str, list[int]] = {callback: [] for callback in callbacks}
        self.untold: set[str] = set()
        self._origin = origin
        self._heard = heard

    def change(self) -> None:
        # Nobody sees this version with an older number, or the other way round.
        with self._heard:
            self.version += 1
            self._origin.feed(self.path, f"<ttl>{self.version}</ttl>")
            self.untold = set(self.seen)

    def hear(self, callback: str) -> None:
        """Take in that a callback was notified; the caller holds ``heard``."""
        if callback in self.seen:
            self.seen[callback].append(self.version)
            self.untold.discard(callback)

    def forget(self, callback: str) -> None:
        """Expect no more notifications of a callback."""
        with self._heard:
            del self.seen[callback]
            self.untold.discard(callback)
            self._heard.notify_all()

    def told_all(self) -> bool:
        return not self.untold

    def told_some(self) -> bool:
        return not self.untold or len(self.untold) < len(self.seen)


class Publishers:
    """Change each of some feeds and ping until it is acknowledged, again and again.

    :ivar up: set while there is a broker to be pinged.
    :ivar refused: answers that are neither thanks nor the end of a broker.
    """

    def __init__(self, broker: Broker, heard: Condition, acknowledged: Callable[[], None]) -> None:
        self.up = Event()
        self.refused: list[str] = []
        self._broker = broker
        self._heard = heard
        self._acknowledged = acknowledged
        self._over = False
        self._pool = ThreadPoolExecutor()
        self._running: list[Future[None]] = []

    def publish(self, feed: Feed, ready: Callable[[], bool]) -> None:
        """Begin.

        :param ready: whether an acknowledged change has gone far enough for the next one.
        """
        self._running.append(self._pool.submit(self._publish, feed, ready))

    def _publish(self, feed: Feed, ready: Callable[[], bool]) -> None:
        while not self._over:
            feed.change()
            attempt = 1
            while not self._pinged(feed, f"{feed.path} {feed.version}.{attempt}"):
                attempt += 1
            with self._heard:
                if not self._heard.wait_for(lambda: self._over or ready(), TOLD_WITHIN):
                    raise AssertionError(
                        f"{feed.path}, version {feed.version}, was pinged and acknowledged; "
                        f"within {TOLD_WITHIN:g} s not notified were: {sorted(feed.untold)[:10]}"
                    )

    def _pinged(self, feed: Feed, name: str) -> bool:
        self.up.wait()
        try:
            answer = feed.ping(self._broker, feed.url, name)
        except (OSError, HTTPException):
            if self._over:
                raise
            return False  # it was killed
        if THANKS[feed.ping] not in answer:
            self.refused.append(answer)
            raise AssertionError(f"the ping {name} was refused: {answer}")
        feed.acknowledged.append(name)
        self._acknowledged()
        return True

    def finish(self) -> None:
        """Stop after the pings that are under way; raises what went wrong meanwhile."""
        with self._heard:
            self._over = True
            self._heard.notify_all()
        self.up.set()
        self._pool.shutdown()
        for one in self._running:
            one.result()


def subscribe_all(broker: Broker, topic: str, callbacks: Iterable[str], **more: object) -> None:
    """Put subscriptions by ``http-post`` into the database of a broker, which need not run.

    :param more: other members of each subscription, as an export has them.
    """
    lease = {"granted_at": datetime.now(UTC).isoformat(), "lease_seconds": 25 * 3600}
    common = {"protocol": "http-post", **lease, **more}
    document = {
        "format": "rsscloud-broker",
        "version": 1,
        "topics": [
            {"url": topic, "subscriptions": [{"callback": one, **common} for one in callbacks]}
        ],
    }
    broker.data.mkdir(parents=True, exist_ok=True)
    migrate(broker.database)
    import_in_parts(lambda: open_database(broker.database), document, time.time())
