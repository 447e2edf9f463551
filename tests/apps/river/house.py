"""The river in a whole broker in memory, and the sites that it reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.apps.river.app import make_river
from rsscloud_broker.apps.river.door import RiverDoor
from rsscloud_broker.apps.river.intake import RiverIntake
from rsscloud_broker.apps.river.model import Feed, InvalidFeed, Item
from rsscloud_broker.apps.river.options import RiverOptions
from rsscloud_broker.apps.river.river import River
from rsscloud_broker.apps.river.schema import TABLES
from rsscloud_broker.apps.river.tending import Tending
from rsscloud_broker.config import RateLimitOptions
from rsscloud_broker.http.limits import bounded_site
from rsscloud_broker.http.site import Root
from rsscloud_broker.interfaces import Caller, OutboundReply, OutboundRequest
from rsscloud_broker.storage import AccountStore
from rsscloud_broker.testing import FakeCallers, FakeOutbound, app_parts, reply
from rsscloud_broker.util.cluster_jobs import RunOnOneNode
from rsscloud_broker.web.pages import PageRenderer
from rsscloud_broker.wire import websub
from tests.front_doors.exchange import Answer
from tests.front_doors.fixture import PUBLIC_URL, House

BLOG = "http://blog.example/rss.xml"
HUB = "http://hub.example/"
DAY = 86_400.0

RSS = (
    '<rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom"><channel><title>A blog</title>'
    "<link>http://blog.example/</link><description>of a test</description>%s</channel></rss>"
)
NAMES_HUB = f'<atom:link rel="hub" href="{HUB}"/><atom:link rel="self" href="{BLOG}"/>'
NAMES_CLOUD = (
    '<cloud domain="cloud.example" port="5337" path="/pleaseNotify" registerProcedure="" '
    'protocol="http-post"/>'
)
CLOUD = "http://cloud.example:5337/pleaseNotify"


def rss(*titles: str, head: str = "") -> bytes:
    """A feed with an item for each title, the newest first."""
    items = "".join(f"<item><title>{each}</title><guid>{each}</guid></item>" for each in titles)
    return (RSS % (head + items)).encode()


class RiverHouse(House):
    """A broker with a river.

    :ivar dave, anna: callers with an account each.
    :ivar web: the pages that the broker's topics are, as another client reads them.
    :ivar hubs: answers the river's requests to hubs and clouds: 202 unless a test says otherwise.
    """

    def __init__(
        self,
        case: SynchronousTestCase,
        options: RiverOptions | None = None,
        limits: RateLimitOptions | None = None,
    ) -> None:
        # The river has a site of its own, below.
        super().__init__(case, limits=limits, root=Root([], PUBLIC_URL), tables=[TABLES])
        self._test = case
        accounts = AccountStore(self.threads)
        self.accounts = accounts
        self.dave, self.anna = (
            Caller(self.result(accounts.add_account(name, "", False, 0.0)), frozenset({"river"}))
            for name in ("dave", "anna")
        )
        self.topics.pages.clear()
        self.web = FakeOutbound(otherwise=self._answer)
        self.hubs = FakeOutbound(otherwise=reply(202))
        self.callers = FakeCallers()
        self.app_parts = app_parts(
            broker=self.broker,
            database=self.threads,
            callers=self.callers,
            pages=PageRenderer(),
            topics=self.parts.topics,
            web=self.web,
            outbound=self.hubs,
            clock=self.clock,
            counters=self.counters,
            directory=self.public_directory,
            public_url=PUBLIC_URL,
        )
        self.app = app = make_river(options or RiverOptions(), self.app_parts)
        for sink in app.sinks:
            self.bus.attach(sink)
        (door, _), (intake,), (held,) = app.front_doors, app.notifiers, app.services
        assert isinstance(held, RunOnOneNode)
        tending = held._service
        assert isinstance(door, RiverDoor)
        assert isinstance(intake, RiverIntake)
        assert isinstance(tending, Tending)
        self.intake, self.tending = intake, tending
        self.river: River = door._river
        self.notifiers["river"] = self.intake
        self.root = Root([door], PUBLIC_URL)
        self.factory = bounded_site(self.root, self.limits, self.counters, None)
        self.tending.startService()
        case.addCleanup(self.tending.stopService)

    def _answer(self, request: OutboundRequest) -> OutboundReply:
        page = self.topics.pages.get(request.url)
        return reply(404) if page is None else reply(200, page)

    def result(self, work: Any) -> Any:
        """The result of something that has nothing to wait for."""
        return self._test.successResultOf(work)

    def error(self, work: Any, *kinds: type[Exception]) -> Any:
        """The error that a coroutine raises."""
        return self._test.failureResultOf(work, *kinds).value

    def follow(self, url: str = BLOG, who: Caller | None = None) -> Feed:
        """Have an account follow a feed, and do all that this needs."""
        self.result(self.river.subscribe(who or self.dave, url, "192.0.2.7"))
        return self.feed(url, who)

    def refusal(
        self, url: str = BLOG, who: Caller | None = None, kind: type[Exception] = InvalidFeed
    ) -> Any:
        """The error if an account tries to follow a feed."""
        return self.error(self.river.subscribe(who or self.dave, url, ""), kind)

    def unfollow(self, url: str | int = BLOG, who: Caller | None = None) -> Feed | None:
        """Have an account follow a feed no more."""
        left: Feed | None = self.result(self.river.unsubscribe(who or self.dave, url))
        return left

    def feeds(self, who: Caller | None = None) -> list[Feed]:
        """The feeds of an account."""
        found: list[Feed] = self.result(self.river.feeds((who or self.dave).account.id))
        return found

    def feed(self, url: str = BLOG, who: Caller | None = None) -> Feed:
        """A feed as an account sees it."""
        (feed,) = [each for each in self.feeds(who) if each.url == url]
        return feed

    def share(self, *, public: bool = True) -> None:
        """Let everybody read the river of Dave, or nobody else."""
        work = self.river.store.set_public(self.dave.account.id, self.dave.name, public)
        self.result(work)

    def items(self, who: Caller | None = None) -> list[Item]:
        """The items of an account, newest first."""
        found: list[Item] = self.result(
            self.river.store.items((who or self.dave).account.id, None, 1000)
        )
        return found

    def titles(self, who: Caller | None = None) -> list[str]:
        return [item.title for item in self.items(who)]

    def poll(self, url: str = BLOG, page: bytes | None = None) -> None:
        """Have the broker find out that a feed changed, as a poll does: into a page, if given."""
        if page is not None:
            self.topics.pages[url] = page
        self.result(self.broker._detector.check_now(url))
        self.pass_time(2)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, so that all that is due in it is done."""
        self.clock.pump([seconds / 4] * 4)

    # --- a hub --------------------------------------------------------------------

    def asked(self, url: str = HUB) -> list[dict[str, str]]:
        """The forms that the river has sent to a hub or a cloud."""
        forms = [parse_qs(each.body.decode()) for each in self.hubs.requests if each.url == url]
        return [{name: values[0] for name, values in form.items()} for form in forms]

    def verify(self, form: Mapping[str, str], **changed: str) -> Answer:
        """Verify the intent of a form at its callback, as a hub does."""
        path = urlsplit(form["hub.callback"]).path
        query = {
            "hub.mode": form["hub.mode"],
            "hub.topic": form["hub.topic"],
            "hub.challenge": "x91",
            "hub.lease_seconds": "864000",
            **{f"hub.{name}": value for name, value in changed.items()},
        }
        return self.get(path, **query)

    def push(self, form: Mapping[str, str], body: bytes, secret: str | None = None) -> Answer:
        """Push a document to the callback of a form, signed unless the secret is empty."""
        headers = {"Content-Type": "application/rss+xml"}
        if secret != "":
            headers["X-Hub-Signature"] = websub.sign(body, secret or form["hub.secret"])
        return self.ask("POST", urlsplit(form["hub.callback"]).path, body, headers)


class RiverCase(SynchronousTestCase):
    """A test with a house, and a blog in the web."""

    def setUp(self) -> None:
        self.house = RiverHouse(self)
        self.pages = self.house.topics.pages
        self.pages[BLOG] = rss("two", "one")
