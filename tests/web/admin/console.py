"""The console of administrators, with the real verbs and a store in memory, without sockets."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlencode

from rsscloud_broker.accounts import AccountAdministration
from rsscloud_broker.config import Http
from rsscloud_broker.core import Administration, EventLog
from rsscloud_broker.http.limits import HTTPLimits, bounded_site
from rsscloud_broker.http.site import Root
from rsscloud_broker.interfaces import ServedTopics
from rsscloud_broker.model import Callback, Exchange, Lease, Outcome, Subscription
from rsscloud_broker.model.work import Delivery, HostState
from rsscloud_broker.plugins import bundled
from rsscloud_broker.storage import AccountStore
from rsscloud_broker.testing import front_door_parts
from rsscloud_broker.util.threads import Workers
from rsscloud_broker.web.callers import Callers
from rsscloud_broker.web.pages import PageRenderer
from tests.accounts.fixture import PATIENT, AccountHouse
from tests.core.house import DAY, FEED, NOW, BrokerTestCase
from tests.front_doors.exchange import Answer
from tests.web.accounts_site import Browser

PUBLIC_URL = "https://broker.example"
DOORS = ("accounts", "administration", "change_lists", "front_page", "topic_page")

OLD, ENDED, MOVING = (f"http://feeds.example/{name}.xml" for name in ("old", "ended", "moving"))

#: An exchange whose every text is a stranger's.
BAD: Final = "<script>alert(1)</script>\"'&"
EXCHANGE: Final = Exchange(
    "POST",
    f"http://reader.example/notify?{BAD}",
    {"content-type": "text/xml", "x-bad": BAD},
    b"\x00\xff<rss/>" + BAD.encode(),
    500,
    {"server": BAD},
    b"\x00oops" + BAD.encode(),
)


async def _read(url: str) -> None:
    """An application that has no topics."""


class ConsoleCase(BrokerTestCase):
    """A test case with the console of a broker.

    :ivar dave: the API token of an administrator.
    :ivar one, two: subscriptions with the ids 1 and 2.
    """

    pushes = ("http://pushed.example/",)

    def setUp(self) -> None:
        super().setUp()
        self.served: list[ServedTopics] = []
        self.people = AccountHouse(self, PATIENT, store=AccountStore(self.store._database))
        verbs = Administration(
            self.store,
            self.bus,
            self.detector,
            self.clock,
            self.blocks,
            self.counters,
            lambda: {"distribution": 3},
            (Workers(self.clock, "files", 2),),  # type: ignore[arg-type] # it starts no thread
            AccountAdministration(self.people.store, self.clock, PUBLIC_URL),
            lambda: self.served,
        )
        self.verbs = verbs
        verbs.following.startService()
        self.addCleanup(verbs.following.stopService)
        pages = PageRenderer(lambda: root.pages, verbs.following)
        parts = front_door_parts(
            broker=self.broker,
            pages=pages,
            clock=self.clock,
            counters=self.counters,
            public_url=PUBLIC_URL,
            running=frozenset(DOORS),
            accounts=self.people.accounts,
            callers=Callers(self.people.accounts, PUBLIC_URL),
            administration=verbs,
            event_log=EventLog(self.store),
        )
        makers = [getattr(bundled, name) for name in DOORS]
        doors = [maker.make(maker.options(), parts) for maker in makers]
        limits, root = HTTPLimits(Http(), self.clock), Root(doors, PUBLIC_URL)
        self.factory = bounded_site(root, limits, self.counters, pages.error)
        self.dave = self.people.token("admin")
        self.one = self.subscribe()
        self.two = self.stored(Callback("http://other.example/notify", "soap"))

    def stored(self, callback: Callback, topic: str = FEED) -> Subscription:
        """Store a subscription with another callback."""
        wanted = Subscription(topic, callback, Lease(self.clock.wall_seconds(), DAY))
        stored: Subscription = self.successResultOf(self.store.put_subscription(wanted))
        return stored

    def fill(self) -> None:
        """Store what the examples of the operations name."""
        for number, url in enumerate((OLD, ENDED, MOVING)):
            self.fetcher.contents[url] = b"<rss/>"
            self.stored(Callback(f"http://reader{number}.example/", "http-post"), url)
            self.result(self.verbs.read_topic("alice", url))
        self.result(self.verbs.end_topic("alice", ENDED, "a test"))
        self.result(self.verbs.block("alice", "source", "192.0.2.0/24", "a test"))
        self.result(self.verbs.announce("alice", "Hello"))
        self.taken_down: list[tuple[str, str]] = []
        self.served.append(ServedTopics("http://feeds.example/spam", _read, self._take_down))
        self.successResultOf(
            self.store.record_hosts([HostState("reader.example:8000", 7, NOW + 600)])
        )

    async def _take_down(self, url: str, reason: str, record: Callable[[Any], None]) -> bool:
        """An application that takes down whatever it is asked to."""
        self.taken_down.append((url, reason))
        return True

    def let_fail(self, one: Subscription, reason: str = BAD) -> None:
        """Record that a notification was given up, and that the next one failed once."""
        outcome = Outcome(False, reason, exchange=EXCHANGE)
        now = self.clock.wall_seconds()
        given_up = Delivery(one, outcome, now, 3)
        failed = Delivery(one, outcome, now, 3, attempts=1, retry_at=now + 600)
        for each in (given_up, failed):
            self.successResultOf(self.store.record_deliveries([each]))

    def browser(self, name: str = "") -> Browser:
        """A browser, in which somebody has signed in if a name is given."""
        browser = Browser(self)
        if name:
            self.assertEqual(browser.sign_in(name).status, 303)
        return browser

    # the API

    def call(
        self,
        method: str,
        path: str,
        values: Mapping[str, Any] | bytes | None = None,
        token: str | None = None,
        **headers: str,
    ) -> Answer:
        """Call the API.

        :param path: below ``/api/v1``.
        :param values: the query of a GET, or the body of a POST.
        """
        sent = {"Authorization": f"Bearer {self.dave if token is None else token}"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        body = b""
        if isinstance(values, bytes):
            body = values
        elif values and method == "GET":
            path = f"{path}?{urlencode(values)}"
        elif values is not None:
            body = json.dumps(values).encode()
        if body:
            sent = {"Content-Type": "application/json", **sent}
        return Browser(self).ask(method, f"/api/v1{path}", body, sent)

    def asked(self, method: str, path: str, values: Mapping[str, Any] | None = None) -> Any:
        """Call the API; what it answers."""
        answer = self.call(method, path, values)
        self.assertEqual(answer.status, 200, answer.text)
        self.assertEqual(answer.headers.get_content_type(), "application/json")
        return json.loads(answer.body)

    def problem(self, answer: Answer) -> tuple[int, str]:
        """The status of an answer that says that something was wrong, and what it says."""
        self.assertEqual(answer.headers.get_content_type(), "application/problem+json")
        self.assertEqual(answer.headers["cache-control"], "no-store")
        found = json.loads(answer.body)
        self.assertEqual(found["status"], answer.status)
        self.assertTrue(found["title"])
        return answer.status, found["detail"]

    def last_change(self) -> tuple[str, str, str, str]:
        (change,) = self.result(self.verbs.changes(limit=1))
        return change.account, change.verb, change.object, change.reason
