"""The page about one topic: its sentences, its button, and what strangers cannot do with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zope.interface import implementer

from rsscloud_broker.config import NoOptions, RateLimitOptions
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.http.site import Root
from rsscloud_broker.interfaces import IEventLog
from rsscloud_broker.model import Topic, TopicOverview, TopicStatus
from rsscloud_broker.model.log_entry import LogEntry, LogFilter
from rsscloud_broker.testing import Clock, FakeTopicView, front_door_parts
from rsscloud_broker.web.pages import PageRenderer
from rsscloud_broker.web.topic_page import TopicPageDoor
from tests.front_doors.fixture import FEED, NOON, PUBLIC_URL, House, HouseTestCase

BAD = "<script>alert(1)</script>\"'&amp;"

#: A whole feed, as the core has read it.
SAID: dict[str, Any] = {
    "format": "rss 2.0",
    "title": "A weblog",
    "link": "http://site.example/",
    "self_link": FEED,
    "hubs": [f"{PUBLIC_URL}/websub"],
    "clouds": [
        {"domain": "Broker.Example", "port": 5337, "path": "/rsscloud/pleaseNotify"}
        | {"register_procedure": "", "protocol": "http-post"}
    ],
    "entry_ids": ["a"],
    "hints": {"ttl_minutes": 60, "skip_hours": [0, 1], "skip_days": [6], "update_seconds": 7200.0},
    "problems": ["ttl of x is ignored: it must be a number"],
}


@implementer(IEventLog)
class FakeLog:
    """An event log with the entries of a list."""

    def __init__(self, entries: Sequence[LogEntry]) -> None:
        self.kept = entries
        self.failure: Exception | None = None
        self.asked: list[LogFilter] = []

    async def entries(
        self, wanted: LogFilter, before: int | None, limit: int
    ) -> Sequence[LogEntry]:
        self.asked.append(wanted)
        if self.failure:
            raise self.failure
        return [entry for entry in self.kept if wanted.passes(entry)][:limit]

    async def entries_after(self, wanted: LogFilter, after: int, limit: int) -> Sequence[LogEntry]:
        return []


def entry(kind: str, outcome: str, ago: float = 0.0, **more: Any) -> LogEntry:
    """An entry about the feed, of so many seconds ago."""
    return LogEntry(kind, outcome, NOON - ago, **{"topic": FEED, **more})


class TopicPageTestCase(HouseTestCase):
    def facts(self, page: Any) -> dict[str, str]:
        """The facts in the list, by their names."""
        return {
            row.xpath("string(dt)"): " ".join(row.xpath("string(dd)").split())
            for row in page.xpath("//dl[@class='facts']/div")
        }


class SentencesTests(TopicPageTestCase):
    """What the page says, of topics as a view may give them."""

    def setUp(self) -> None:
        self.view = FakeTopicView()
        self.log: FakeLog | None = None

    def shown(self, overview: TopicOverview | None, url: str = FEED, **parts: Any) -> Any:
        if overview is not None:
            self.view.overviews[url] = overview
        running = frozenset({"rsscloud", "topic_page"})
        usual: dict[str, Any] = {"topics": self.view, "pages": PageRenderer(), "has_hub": True}
        usual |= {"public_url": PUBLIC_URL, "running": running, "clock": Clock(NOON)}
        given = front_door_parts(**usual | {"event_log": self.log} | parts)
        door = TopicPageDoor(NoOptions(), given)
        self.answer = House(self, root=Root([door], PUBLIC_URL)).get("/topic", url=url)
        return self.answer.page()

    def status(self, **fields: Any) -> TopicStatus:
        topic = Topic(FEED, b"1" * 32, 2048, NOON - 7200, NOON - 86_400, subscribers=3)
        return TopicStatus(**{"topic": topic, "asked_at": NOON - 3600, "result": "200", **fields})

    def test_a_watched_topic(self) -> None:
        status = self.status(
            feed=SAID,
            pinged_at=NOON - 90,
            next_poll_at=NOON + 3601,
            poll_reason="polled every 1 hour since its ttl says so",
            moved_from=("http://old.example/feed",),
        )
        page = self.shown(TopicOverview(status, {"http-post": 2, "websub": 1}))
        self.assertEqual(page.xpath("string(//h1)"), "A weblog")
        self.assertIn("3 subscribers are notified", page.xpath("string(//*[@class='lead'])"))
        self.assertEqual(
            self.facts(page),
            {
                "Topic": FEED,
                "Moved from": "http://old.example/feed",
                "Subscriptions": "2 by http-post, 1 by websub",
                "Last fetch": "1 hour ago: 200",
                "Last content": "2 hours ago: 2,048 bytes",
                "Last change": "1 day ago",
                "Last ping": "1 minute ago, which made the broker fetch it",
                "Next poll": "in 1 hour: polled every 1 hour since its ttl says so",
                "Feed": "It is rss 2.0, called A weblog.",
                "Home page": "http://site.example/",
                "Own address": FEED,
                "Cloud": "It names this broker as its cloud, so rssCloud readers find the broker.",
                "Hub": "It names this broker as its hub, so WebSub subscribers find the broker.",
                "Hints": "keep it for 60 minutes (ttl); it is updated every 120 minutes; "
                "skip the hours 0, 1 (GMT); skip Sunday",
                "Problems": "ttl of x is ignored: it must be a number.",
            },
        )

    def test_what_a_feed_says(self) -> None:
        cloud = {**SAID["clouds"][0], "domain": "rpc.example", "port": 80, "path": "/notify"}
        apart: dict[str, Any] = {"running": frozenset({"topic_page"}), "has_hub": False}
        none: dict[str, Any] = {"clouds": [], "hubs": []}
        table: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
            (SAID | {"clouds": [cloud]}, {}, "Cloud", "another cloud: http://rpc.example/notify"),
            (SAID | {"hubs": ["http://h.example/"]}, {}, "Hub", "another hub: http://h.example/"),
            (SAID | none, {}, "Cloud", "do not find this broker"),
            (SAID | none, {}, "Hub", "may not find this broker"),
            (SAID | none, apart, "Cloud", "It names no cloud."),
            (SAID | none, apart, "Hub", "It names no hub in its content."),
            (SAID | {"self_link": "http://a.example/"}, {}, "Own address", "another address than"),
            ({}, {}, "Feed", "The broker has not read its content as a feed yet."),
            ({"unreadable": "it is empty"}, {}, "Feed", "read its content as a feed: it is empty."),
        ]
        for feed, parts, name, said in table:
            page = self.shown(TopicOverview(self.status(feed=feed)), **parts)
            self.assertIn(said, self.facts(page)[name])

    def test_an_ended_topic(self) -> None:
        status = self.status(topic=Topic(FEED, ended="it is gone for good"))
        page = self.shown(TopicOverview(status))
        self.assertEqual(
            page.xpath("string(//*[@class='lead'])").strip(),
            "This topic has ended: it is gone for good. The broker does not fetch it.",
        )
        self.assertNotIn("Next poll", self.facts(page))

    def test_a_topic_without_subscribers(self) -> None:
        page = self.shown(TopicOverview(self.status(topic=Topic(FEED), asked_at=None)))
        self.assertIn("nobody has subscribed", page.xpath("string(//*[@class='lead'])"))
        facts = self.facts(page)
        self.assertEqual(facts["Subscriptions"], "none")
        self.assertNotIn("Last fetch", facts)  # the event log says what pings caused

    def test_very_many_subscribers(self) -> None:
        status = self.status(topic=Topic(FEED, subscribers=10_000))
        page = self.shown(TopicOverview(status, {"http-post": 9_000, "soap": 1_000}))
        self.assertIn("At least 10,000 subscribers", page.xpath("string(//*[@class='lead'])"))
        said = "at least 10,000; of the first 10,000: 9,000 by http-post, 1,000 by soap"
        self.assertEqual(self.facts(page)["Subscriptions"], said)

    def test_a_topic_that_has_moved(self) -> None:
        page = self.shown(TopicOverview(self.status()), url="http://old.example/feed")
        lead = page.xpath("string(//*[@class='lead'])")
        self.assertIn(f"The topic has moved from there to {FEED}.", lead)

    def test_an_unknown_topic(self) -> None:
        page = self.shown(None)
        self.assertEqual(page.xpath("string(//h1)"), FEED)
        lead = page.xpath("string(//*[@class='lead'])")
        self.assertIn("does not know this feed or page (a topic)", lead)
        self.assertEqual(page.xpath("//form[@method='post']/input/@value"), [FEED])

    def test_the_event_log(self) -> None:
        failure = {
            "host": "reader.example",
            "protocol": "http-post",
            "callback": "http://reader.example/secret-path",
            "source": "192.0.2.99",
            "reason": "the connection was refused",
        }
        self.log = FakeLog(
            [
                entry("notification", "given up", 60, **failure),
                entry("notification", "delivered", 60, host="good.example"),
                entry("ping", "accepted", 120, protocol="rsscloud"),
                entry("fetch", "failed", 180, topic="http://other.example/"),
            ]
        )
        page = self.shown(TopicOverview(self.status()))
        lines = [
            [" ".join(part.xpath("string()").split()) for part in item]
            for item in page.xpath("//ol[@class='timeline']/li")
        ]
        failed = (
            "reader.example was not notified of this topic: the connection was refused; the broker "
            "makes no further attempt."
        )
        accepted = "A ping for this topic was accepted."
        expected = [
            ["1 minute ago", "notification given up by http-post", failed],
            ["2 minutes ago", "ping accepted by rsscloud", accepted],
        ]
        self.assertEqual(lines, expected)
        text = page.text_content()
        for hidden in ("secret-path", "192.0.2.99"):
            self.assertNotIn(hidden, text)

    def test_ways_of_pings(self) -> None:
        """Those that are no protocols are said in words."""
        ways = {"WebSub": "by WebSub", "published": "and published here", "ping": ""}
        ways |= {"page": "on a page", "list": "from a list"}
        for way, words in ways.items():
            self.log = FakeLog([entry("ping", "accepted", protocol=way)])
            page = self.shown(TopicOverview(self.status()))
            text = " ".join(page.xpath("string(//span[@class='what'])").split())
            self.assertEqual(text, f"ping accepted {words}".strip())

    def test_one_timeline(self) -> None:
        """The newest first, whatever they are; that subscribers are being notified is left out
        when they have been.
        """
        numbers = {"delivered": 2, "last_seconds": 1.5}
        self.log = FakeLog(
            [
                entry("ping", "accepted", 9),
                entry("fan-out", "begun", 7),
                entry("fan-out", "ended", 6, numbers=numbers),
                entry("fetch", "changed", 8),
                entry("fan-out", "begun", 1),
                entry("topic", "ended", 3),
                entry("subscription", "verified", 2),
            ]
        )
        page = self.shown(TopicOverview(self.status()))
        badges = page.xpath("//ol[@class='timeline']//*[contains(@class, 'badge')]/text()")
        expected = ["subscribers being notified", "topic ended", "subscribers notified"]
        self.assertEqual(badges, [*expected, "fetch changed", "ping accepted"])
        self.assertIn("This topic has ended.", page.text_content())
        self.assertNotIn("fan-out", page.xpath("string(//main)"))

    def test_whom_the_last_change_reached(self) -> None:
        """What a publisher wants to know first stands first."""
        old = entry("fan-out", "ended", 600, numbers={"delivered": 9})
        took = {"last_seconds": 60.0}
        for numbers, said in (
            ({"delivered": 2}, "reached 2 of 2 subscribers at once."),
            ({"delivered": 1}, "reached 1 of 1 subscriber at once."),
            (
                {"delivered": 1, "failed": 2, "waiting": 1},
                "reached 1 of 4 subscribers at once; below stands what became of the others.",
            ),
            ({"delivered": 0}, ""),
        ):
            new = entry("fan-out", "ended", 240, numbers=numbers | took)
            self.log = FakeLog([old, new])
            page = self.shown(TopicOverview(self.status()))
            whole = f"The last change, 5 minutes ago, {said}" if said else ""
            self.assertEqual(page.xpath("string(//*[@class='lead']/p[2])"), whole)
        self.log = FakeLog([old, entry("fan-out", "begun")])
        page = self.shown(TopicOverview(self.status()))
        self.assertIn("are being notified", page.xpath("string(//*[@class='lead'])"))

    def test_the_clock_was_set_back(self) -> None:
        """What was stored last is the newest."""
        numbers = {"delivered": 2}
        old = LogEntry("fan-out", "ended", NOON + 3600, 1, topic=FEED, numbers=numbers)
        self.log = FakeLog([old, LogEntry("fan-out", "begun", NOON, 2, topic=FEED)])
        page = self.shown(TopicOverview(self.status()))
        self.assertIn("are being notified", page.xpath("string(//*[@class='lead'])"))
        badges = page.xpath("//ol[@class='timeline']//*[contains(@class, 'badge')]/text()")
        self.assertEqual(badges, ["subscribers being notified", "subscribers notified"])

    def test_what_is_folded(self) -> None:
        """The earlier entries, and what the feed says of itself."""
        self.log = FakeLog([entry("fetch", "unchanged", n) for n in range(9)])
        page = self.shown(TopicOverview(self.status(feed={**SAID, "problems": ["It is old"]})))
        self.assertEqual(len(page.xpath("//ol[@class='timeline']/li[not(@class)]")), 6)
        earlier, feed = page.xpath("//main//details")
        self.assertEqual(earlier.xpath("string(summary)"), "3 earlier")
        self.assertEqual(len(earlier.xpath("ol/li")), 3)
        self.assertEqual(feed.xpath("string(summary)"), "What its feed says, and 1 problem in it")
        self.assertIn("It is old.", feed.text_content())
        self.log = FakeLog([entry("fetch", "unchanged")])
        (feed,) = self.shown(TopicOverview(self.status())).xpath("//main//details")
        self.assertEqual(feed.xpath("string(summary)"), "What its feed says")

    def test_changes_of_the_last_days(self) -> None:
        today = int(NOON // 86_400)
        status = self.status(change_days={today: 1, today - 3: 4, today - 40: 9})
        page = self.shown(TopicOverview(status))
        figure = page.xpath("//figure")[0]
        self.assertEqual(len(figure.xpath(".//*[local-name()='rect']")), 2)
        self.assertIn("5 changes in the last 30 days", figure.text_content())
        self.assertIn("most in a day: 4", figure.text_content())
        page = self.shown(TopicOverview(self.status(change_days={today - 40: 9})))
        self.assertEqual(page.xpath("//figure"), [])

    def test_what_to_do_about_each_fault(self) -> None:
        def lines(**more: Any) -> list[str]:
            page = self.shown(TopicOverview(self.status(feed={**SAID, **more}), {"websub": 1}))
            return [line.text for line in page.xpath("//ul[@class='todo']//pre[@class='copy']")]

        self.assertEqual(lines(), [])
        link = f'<link xmlns="http://www.w3.org/2005/Atom" rel="hub" href="{PUBLIC_URL}/websub"/>'
        cloud = (
            '<cloud domain="broker.example" port="5337" path="/rsscloud/pleaseNotify" '
            'registerProcedure="" protocol="http-post" />'
        )
        self.assertEqual(lines(hubs=[], clouds=[]), [link, cloud])
        self.assertEqual(lines(hubs=[], clouds=[], format="atom 1.0"), [link])
        (line,) = lines(hubs=[], clouds=[], format="json feed 1.1")
        self.assertIn('"hubs": [{"type": "WebSub"', line)
        (line,) = lines(self_link="http://feeds.example/other.xml")
        self.assertIn(f'rel="self" href="{FEED}"', line)
        status = self.status(result="its server answered with status 500", failures=3)
        todo = self.shown(TopicOverview(status)).xpath("string(//ul[@class='todo'])")
        self.assertIn("The last fetch failed: its server answered with status 500.", todo)

    def test_a_link_to_the_event_log(self) -> None:
        """If there are entries, and the page of the event log is served."""
        link = "/log?topic=http%3A%2F%2Ffeeds.example%2Frss.xml"
        for doors, entries, links in (
            ({"topic_page", "event_log"}, [entry("ping", "accepted")], [link]),
            ({"topic_page", "event_log"}, [], []),
            ({"topic_page"}, [entry("ping", "accepted")], []),
        ):
            self.log = FakeLog(entries)
            page = self.shown(None, running=frozenset(doors))
            self.assertEqual(page.xpath("//main//a[contains(@href, '/log')]/@href"), links)

    def test_an_event_log_that_cannot_be_read(self) -> None:
        self.log = FakeLog([])
        self.log.failure = Unavailable("the disk is full")
        page = self.shown(TopicOverview(self.status()))
        self.assertEqual(page.xpath("//ol[@class='timeline']"), [])

    def test_texts_of_strangers_are_texts(self) -> None:
        feed = {
            "format": BAD,
            "title": BAD,
            "link": "javascript:alert(1)",
            "self_link": BAD,
            "hubs": [BAD, "javascript:alert(2)"],
            "clouds": [{**SAID["clouds"][0], "domain": BAD, "path": BAD}],
            "hints": {},
            "problems": [BAD],
        }
        topic = Topic(FEED, ended=BAD)
        overview = TopicOverview(
            self.status(topic=topic, feed=feed, result=BAD, moved_from=(BAD,)), {BAD: 1}
        )
        self.log = FakeLog([entry("notification", "failed", host=BAD, protocol=BAD, reason=BAD)])
        page = self.shown(overview)
        self.assertEqual(page.xpath("//main//script | //img | //@style"), [])
        self.assertEqual([name for name in page.xpath("//@*") if name.attrname[:2] == "on"], [])
        for link in page.xpath("//@href"):
            self.assertRegex(link, r"^(/|#content$|http://)")
        self.assertEqual(page.xpath("string(//h1)"), BAD)
        self.assertGreater(page.text_content().count(BAD), 8)

    def test_a_page_is_small(self) -> None:
        """Also if strangers have filled every field."""
        long = "ü" * 2000  # all that a feed says of itself has 16 KB at most
        link = f"http://a.example/{long}"
        feed = {**SAID, "title": long, "link": link, "self_link": link, "problems": [long]}
        entries = [
            entry(kind, "failed", host=long, reason=long)
            for kind in ("notification", "ping", "fetch", "fan-out", "subscription")
            for _ in range(20)
        ]
        self.log = FakeLog(entries)
        self.shown(TopicOverview(self.status(feed=feed, result=long)))
        self.assertLess(len(self.answer.body), 100_000)


class LookingUpTests(TopicPageTestCase):
    """With a whole broker behind the page."""

    def test_only_the_form(self) -> None:
        page = self.house.get("/topic").page()
        self.assertEqual(page.xpath("string(//h1)"), "Topics")
        self.assertEqual([form.get("method") for form in page.xpath("//form")], ["get"])
        self.assertEqual(page.xpath("//header//a[@aria-current]/@href"), ["/topic"])

    def test_what_cannot_be_a_topic(self) -> None:
        for url in ("javascript:alert(1)", "feeds.example", f"http://a.example/{'a' * 3000}", BAD):
            page = self.house.get("/topic", url=url).page(400)
            said = page.xpath("string(//*[@role='alert'])")
            self.assertIn("The address cannot be a topic: ", said)
            self.house.form("/topic", {"url": url}).page(400)
        self.assertEqual(self.house.topics.fetched, [])

    def test_subscriptions_are_counted_and_not_named(self) -> None:
        self.house.subscribe()
        self.house.subscribe("xml-rpc", path="/hidden")
        answer = self.house.get("/topic", url="HTTP://FEEDS.example:80/rss.xml")
        facts = self.facts(answer.page())
        self.assertEqual(facts["Subscriptions"], "1 by http-post, 1 by xml-rpc")
        for hidden in ("/hidden", "192.0.2.7"):
            self.assertNotIn(hidden, answer.text)

    def test_without_a_store(self) -> None:
        self.house.break_store()
        answer = self.house.get("/topic", url=FEED)
        self.assertEqual((answer.status, answer.headers["retry-after"]), (503, "30"))


class TryItTests(TopicPageTestCase):
    def press(self, url: str = FEED, status: int = 200) -> Any:
        return self.house.form("/topic", {"url": url}).page(status)

    def test_a_change(self) -> None:
        self.house.subscribe()
        self.house.topics.pages[FEED] = b"<rss>changed</rss>"
        self.house.get("/topic", url=FEED)
        page = self.press()
        self.assertIn("being notified", page.xpath("string(//*[@role='status'])"))
        self.assertEqual(len(self.house.subscribers.calls), 1)
        facts = self.facts(page)
        self.assertEqual(facts["Last change"], "just now")
        self.assertIn("18 bytes", facts["Last content"])

    def test_no_change(self) -> None:
        self.press()
        page = self.press()
        self.assertIn("has not changed", page.xpath("string(//*[@role='status'])"))

    def test_a_topic_that_cannot_be_read(self) -> None:
        page = self.press("http://feeds.example/missing.xml")
        said = "The broker tried to fetch it, and could not: its server answered with status 404."
        self.assertEqual(page.xpath("string(//*[@role='alert'])"), said)

    def test_a_topic_that_has_ended(self) -> None:
        self.press()
        self.house.topics.gone.add(FEED)
        page = self.press()
        self.assertIn("gone for good", page.xpath("string(//*[@role='alert'])"))
        self.assertIn("This topic has ended", page.xpath("string(//*[@class='lead'])"))

    def test_a_form_that_another_site_sends(self) -> None:
        """It costs the visitor of that site none of the pings that are allowed."""
        self.house = House(self, limits=RateLimitOptions(pings_per_source=0.1, pings_burst=1))
        headers = {"Origin": "https://evil.example"}
        page = self.house.form("/topic", {"url": FEED}, headers).page(403)
        self.assertIn("another site sent", page.xpath("string(//*[@role='alert'])"))
        self.assertEqual(self.house.topics.fetched, [])
        own = {"Sec-Fetch-Site": "same-origin", "Origin": "null"}
        self.house.form("/topic", {"url": FEED}, own).page()
        self.assertEqual(len(self.house.topics.fetched), 1)

    def test_the_limits_of_pings(self) -> None:
        self.house = House(self, limits=RateLimitOptions(pings_per_source=0.1, pings_burst=1))
        self.press()
        answer = self.house.form("/topic", {"url": FEED})
        page = answer.page(429)
        self.assertGreater(int(answer.headers["retry-after"]), 0)
        self.assertIn("has not fetched it", page.xpath("string(//*[@role='alert'])"))
        self.assertEqual(len(self.house.topics.fetched), 1)
