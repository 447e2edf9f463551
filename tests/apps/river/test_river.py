"""Following feeds: reading them, bounds, OPML, the end."""

from __future__ import annotations

from typing import Any
from unittest import mock

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.apps.river import items_sql
from rsscloud_broker.apps.river.model import FeedRecord, ImportedFeeds, InvalidFeed
from rsscloud_broker.apps.river.opml import MAX_OUTLINES
from rsscloud_broker.apps.river.options import RiverOptions
from rsscloud_broker.apps.river.river import AT_ONCE, FIND_WITHIN, PER_HOUR
from rsscloud_broker.apps.river.tending import FIRST_PAUSE, PERIOD
from rsscloud_broker.errors import CallbackFailed, ParsingUnavailable, TooMany
from rsscloud_broker.events import TopicEnded
from rsscloud_broker.interfaces import OutboundReply
from rsscloud_broker.testing import reply
from tests.apps.river.house import BLOG, DAY, RiverCase, RiverHouse, rss
from tests.front_doors.fixture import PUBLIC_URL


class FollowingTests(RiverCase):
    def test_the_items_of_a_feed_are_there_at_once(self) -> None:
        feed = self.house.follow()
        self.assertEqual((feed.title, feed.link), ("A blog", "http://blog.example/"))
        self.assertEqual((feed.how, feed.hub, feed.renew_at), ("polled", "", None))
        self.assertEqual(feed.status, "polled, since it names no hub and no cloud")
        self.assertEqual(self.house.titles(), ["two", "one"])
        self.assertEqual([item.how for item in self.house.items()], ["polled"] * 2)

    def test_what_the_broker_finds_arrives(self) -> None:
        found: list[int] = []
        self.house.follow()
        newest_id = self.house.river.store.newest_id
        self.house.intake.on_new = lambda: found.append(self.house.result(newest_id()))
        self.house.poll(page=rss("three", "two", "one"))
        self.assertEqual(self.house.titles(), ["three", "two", "one"])
        self.assertEqual(found, [self.house.items()[0].id])

    def test_change_between_two_fetches_is_not_missed(self) -> None:
        """The feed changes after it was found and before the broker reads it."""
        self.house.web.answers[BLOG] = reply(200, self.pages[BLOG])
        self.pages[BLOG] = rss("three", "two", "one")
        self.house.follow()
        self.house.pass_time(2)
        self.assertEqual(self.house.titles(), ["three", "two", "one"])

    def test_one_feed_for_all_who_follow_it(self) -> None:
        first = self.house.follow()
        self.assertEqual(self.house.follow(), first)
        fetched = len(self.house.topics.fetched)
        self.house.follow(who=self.house.anna)
        self.assertEqual(len(self.house.topics.fetched), fetched)
        self.assertEqual(self.house.titles(self.house.anna), ["two", "one"])
        self.assertEqual(len(self.house.subscriptions(BLOG)), 1)

    def test_following_again_what_has_ended_keeps_it(self) -> None:
        """Who types its address once more is refused, and still has what has come."""
        before = self.house.follow()
        self.house.result(self.house.store.end_topic(BLOG, "it is gone", 0.0))
        self.house.bus.publish(TopicEnded(BLOG, "it is gone", 0.0))
        self.house.pass_time(60)
        self.assertIn("it has ended: it is gone", self.house.feed().status)
        self.assertIn("it is gone", str(self.house.refusal()))
        self.assertEqual(self.house.feed().id, before.id)
        self.assertEqual(self.house.titles(), ["two", "one"])

    def test_when_the_last_one_leaves_all_of_it_is_removed(self) -> None:
        """But numbers are never given twice: otherwise new items would count as seen."""
        feed = self.house.follow()
        newest = self.house.items()[0].id
        anna = self.house.anna
        self.assertFalse(self.house.unfollow(feed.id, anna))
        self.assertEqual((self.house.titles(), self.house.titles(anna)), (["two", "one"], []))
        self.house.follow(who=anna)
        self.assertTrue(self.house.unfollow(feed.id))
        self.assertEqual(len(self.house.subscriptions(BLOG)), 1)
        self.assertTrue(self.house.unfollow(feed.id, anna))
        self.assertEqual(self.house.subscriptions(BLOG), [])
        self.assertEqual(self.house.result(self.house.river.store.newest_id()), 0)
        self.assertFalse(self.house.unfollow(feed.id, anna))
        self.assertFalse(self.house.unfollow(10**30, anna))
        self.house.follow()
        self.assertEqual([item.id for item in self.house.items()], [newest + 2, newest + 1])

    def test_an_account_that_is_removed_takes_its_feeds_along(self) -> None:
        """A bug at one feed keeps no other from being removed."""
        other = f"{BLOG}?2"
        self.house.topics.pages[other] = rss("three")
        for url in (BLOG, other):
            self.house.follow(url)
        self.house.result(self.house.accounts.remove_account("dave"))

        async def leave(feed: FeedRecord) -> None:
            if feed.url == BLOG:
                raise ZeroDivisionError

        with mock.patch.object(self.house.tending._pushing, "leave", leave):
            self.house.pass_time(1200)
        self.assertTrue(self.flushLoggedErrors(ZeroDivisionError))
        left = [len(self.house.subscriptions(url)) for url in (BLOG, other)]
        self.assertEqual(left, [1, 0])
        self.house.pass_time(1200)
        self.assertEqual(self.house.subscriptions(BLOG) + self.house.subscriptions(other), [])

    def test_the_subscription_is_renewed_for_ever(self) -> None:
        self.house.follow()
        for _ in range(40):
            self.house.pass_time(DAY)
        (subscription,) = self.house.subscriptions(BLOG)
        self.assertGreater(subscription.lease.expires_at, self.house.clock.wall_seconds() + 6 * DAY)
        self.assertEqual(self.house.titles(), ["two", "one"])

    def test_a_clock_that_is_set_back_does_not_end_it(self) -> None:
        self.house.clock.set_wall(400 * DAY)
        self.house.follow()
        self.house.clock.set_wall(-400 * DAY)
        fetched = len(self.house.topics.fetched)
        self.house.pass_time(60)
        self.assertGreater(len(self.house.topics.fetched), fetched)
        self.house.pass_time(60)
        self.assertEqual(len(self.house.topics.fetched), fetched + 1)

    def test_what_is_seen_never_goes_back(self) -> None:
        self.house.follow()
        store, result = self.house.river.store, self.house.result
        dave, anna = self.house.dave.account.id, self.house.anna.account.id
        newest, oldest = (item.id for item in self.house.items())
        self.assertEqual(result(store.last_seen(dave)), 0)
        for seen in (newest, oldest):
            result(store.mark_seen(dave, seen))
            self.assertEqual(result(store.last_seen(dave)), newest)
        self.assertEqual(result(store.last_seen(anna)), 0)

    def test_not_followed_if_it_cannot_be(self) -> None:
        self.pages["http://other.example/empty"] = b""
        self.pages["http://other.example/words"] = b"<p>Hello, world"
        for url, said in (
            ("", "the URL names no host"),
            ("ftp://blog.example/", "must begin with http:// or https://"),
            ("http://other.example/none", "answered with HTTP status 404"),
            ("http://other.example/empty", "is no feed (it is empty)"),
            ("http://other.example/words", "names none that can be read"),
        ):
            self.assertIn(said, str(self.house.refusal(url)))
        self.assertEqual(self.house.feeds(), [])

    def test_not_followed_if_it_takes_too_long(self) -> None:
        self.house.web.answers[BLOG] = Deferred()
        waiting = Deferred.fromCoroutine(self.house.river.subscribe(self.house.dave, BLOG, ""))
        self.assertNoResult(waiting)
        self.house.pass_time(FIND_WITHIN + 1)
        error = self.failureResultOf(waiting, InvalidFeed).value
        self.assertIn("did not answer within 45 seconds", str(error))
        self.house.web.answers.clear()
        self.house.follow()

    def test_own_feeds_are_told_by_the_broker(self) -> None:
        own = f"{PUBLIC_URL}/feeds/joe/rss.xml"
        self.pages[own] = rss("one")
        self.house.follow(own)
        self.house.pass_time(2)
        self.assertEqual(self.house.web.requests, [])
        self.assertEqual(self.house.titles(), ["one"])
        self.pages[own] = rss("two", "one")
        self.house.result(self.house.broker.ping_topic(own, ""))
        self.house.pass_time(2)
        self.assertEqual([item.how for item in self.house.items()], ["pushed", "polled"])
        feed = self.house.feed(own)
        self.assertEqual((feed.how, feed.hub), ("own", ""))
        said = "notified by this broker itself; 1 of 1 new item was pushed"
        self.assertEqual(feed.status, said)
        self.house.refusal(f"{PUBLIC_URL}/feeds/nobody/rss.xml")
        self.assertEqual(len(self.house.feeds()), 1)
        # So are feeds of others that name the broker's hub.
        hub = f'<atom:link rel="hub" href="{PUBLIC_URL}/websub"/>'
        self.pages[BLOG] = rss("one", head=hub)
        self.assertEqual(self.house.follow().how, "own")
        self.assertEqual(self.house.hubs.requests, [])

    def test_what_is_no_feed_any_more_says_so_and_comes_back(self) -> None:
        self.house.follow()
        self.house.poll(page=b"<html><body>down for maintenance</body></html>")
        self.assertIn("cannot be read as a feed", self.house.feed().status)
        self.house.poll(page=rss("three", "two", "one"))
        self.assertEqual(self.house.titles(), ["three", "two", "one"])
        self.assertNotIn("cannot", self.house.feed().status)

    def test_nobody_else_can_subscribe_by_the_protocol_of_the_river(self) -> None:
        feed = self.house.follow()
        record = self.house.result(self.house.river.store.feed(feed.id))
        forged = evolve(self.house.intake.intent(record, 60), options={"key": "a guess"})
        for verb in (self.house.broker.subscribe, self.house.broker.unsubscribe):
            error = self.house.error(verb(forged), CallbackFailed)
            self.assertIn("only this broker's own river", str(error))


class ManyTests(SynchronousTestCase):
    """How much an account may have."""

    def setUp(self) -> None:
        self.patch(items_sql, "ITEMS_PER_FEED", 3)
        self.house = RiverHouse(self, RiverOptions(max_feeds=3, days=30))
        self.urls = [f"http://blog{number}.example/rss.xml" for number in range(6)]
        self.house.topics.pages |= dict.fromkeys(self.urls, rss("one"))

    def test_feeds(self) -> None:
        for url in self.urls[:3]:
            self.house.follow(url)
        requests = len(self.house.web.requests)
        said = "you follow 3 feeds, as many as an account may; end one of them first"
        self.assertEqual(str(self.house.refusal(self.urls[3])), said)
        self.assertEqual(len(self.house.web.requests), requests)
        self.house.follow(self.urls[3], self.house.anna)
        self.house.refusal(self.urls[3])

    def test_old_items_that_are_still_in_the_feed_stay(self) -> None:
        """Otherwise they would come back as new ones."""
        self.house.topics.pages[BLOG] = rss("two", "one")
        self.house.follow()
        self.house.pass_time(40 * DAY)
        self.house.poll(page=rss("three", "two"))
        self.assertEqual(self.house.titles(), ["three", "two"])

    def test_addresses_in_an_hour(self) -> None:
        url = "http://none.example/"
        for _ in range(PER_HOUR):
            self.house.refusal(url)
        error = self.house.refusal(url, kind=TooMany)
        self.assertLessEqual(error.retry_after, 3600)
        self.house.refusal(url, self.house.anna)
        self.house.pass_time(error.retry_after)
        self.house.refusal(url)

    def test_addresses_at_the_same_time(self) -> None:
        gates: list[Deferred[OutboundReply]] = [Deferred() for _ in range(AT_ONCE)]
        self.house.web.answers |= dict(zip(self.urls, gates, strict=False))
        waiting = [
            Deferred.fromCoroutine(self.house.river.subscribe(self.house.dave, url, ""))
            for url in self.urls[:AT_ONCE]
        ]
        self.house.refusal(self.urls[5], kind=TooMany)
        for gate, each in zip(gates, waiting, strict=True):
            gate.callback(reply(200, rss("one")))
            self.successResultOf(each)
        self.house.follow(self.urls[2])


class ListTests(SynchronousTestCase):
    """Import and export of OPML."""

    def setUp(self) -> None:
        self.house = RiverHouse(self, RiverOptions(max_feeds=5))
        self.river, self.dave = self.house.river, self.house.dave
        self.urls = [f"http://blog{number}.example/rss.xml" for number in range(6)]
        self.house.topics.pages |= dict.fromkeys(self.urls, rss("one"))

    def load(self, body: str) -> ImportedFeeds:
        opml = f'<opml version="2.0"><head/><body>{body}</body></opml>'
        imported = self.house.result(self.river.import_opml(self.dave, opml.encode(), ""))
        self.house.pass_time(2)
        assert isinstance(imported, ImportedFeeds)
        return imported

    def refused(self, data: bytes) -> str:
        error = self.house.error(self.river.import_opml(self.dave, data, ""), InvalidFeed)
        self.assertEqual(self.house.feeds(), [])
        return str(error)

    def test_nested_outlines(self) -> None:
        imported = self.load(
            f'<outline text="folder"><outline text="deeper"><outline type="rss" text="A blog"'
            f' xmlUrl="{self.urls[0]}"/></outline></outline>'
            f'<outline type="RSS" text="Another" xmlurl="{self.urls[1]}"/>'
            f'<outline type="rss" text="The same" xmlUrl="HTTP://BLOG1.example:80/rss.xml"/>'
            f'<outline type="rss" text="Old" url="{self.urls[2]}"/>'
            '<outline type="rss" text="Wrong" xmlUrl="javascript:alert(1)"/>'
            '<outline type="include" text="Itself" url="http://blog0.example/list.opml"/>'
        )
        self.assertEqual(imported.added, 3)
        failed = ["http://blog0.example/list.opml", "javascript:alert(1)"]
        self.assertEqual([url for url, _ in imported.failed], failed)
        self.assertEqual([feed.url for feed in self.house.feeds()], self.urls[:3])
        self.assertEqual(len(self.house.items()), 3)
        asked = [request.url for request in self.house.web.requests]
        self.assertNotIn("http://blog0.example/list.opml", asked)
        self.assertEqual(self.load(f'<outline xmlUrl="{self.urls[0]}"/>').added, 0)

    def test_the_export_can_be_imported(self) -> None:
        self.load("".join(f'<outline text="&lt;{url}" xmlUrl="{url}"/>' for url in self.urls[:2]))
        exported = self.house.result(self.river.export_opml(self.dave))
        self.assertIn(b'title="A blog"', exported)
        imported = self.house.result(self.river.import_opml(self.house.anna, exported, ""))
        self.assertEqual((imported.added, imported.failed), (2, ()))

    def test_a_page_becomes_its_feed(self) -> None:
        page = '<head><link rel="alternate" type="application/atom+xml" href="{}"></head>'
        self.house.topics.pages["http://page.example/"] = page.format(self.urls[0]).encode()
        self.load(f'<outline xmlUrl="http://page.example/"/><outline xmlUrl="{self.urls[0]}"/>')
        self.assertEqual([feed.url for feed in self.house.feeds()], [self.urls[0]])
        self.assertEqual(len(self.house.items()), 1)

    def test_a_feed_is_put_off_while_nothing_can_be_parsed(self) -> None:
        async def unavailable(*args: Any, **more: Any) -> Any:
            raise ParsingUnavailable("no process can be started")

        parsing = self.house.tending._discovery._parse
        self.house.tending._discovery._parse = unavailable
        self.load(f'<outline text="Waits" xmlUrl="{self.urls[0]}"/>')
        self.assertIn("no process can be started", self.house.feed(self.urls[0]).status)
        self.house.tending._discovery._parse = parsing
        self.house.pass_time(FIRST_PAUSE + PERIOD)
        self.assertEqual(len(self.house.items()), 1)

    def test_what_cannot_be_read_now_is_tried_again(self) -> None:
        page = self.house.topics.pages.pop(self.urls[0])
        self.load(f'<outline text="Down" xmlUrl="{self.urls[0]}"/>')
        feed = self.house.feed(self.urls[0])
        self.assertEqual(feed.title, "Down")
        self.assertIn("cannot be read now", feed.status)
        self.assertIn("404", feed.status)
        self.house.topics.pages[self.urls[0]] = page
        self.house.pass_time(3700)
        self.assertEqual(len(self.house.items()), 1)
        self.assertEqual(self.house.feed(self.urls[0]).title, "A blog")

    def test_more_than_an_account_may_have(self) -> None:
        outlines = "".join(f'<outline xmlUrl="http://x{n}.example/"/>' for n in range(1000))
        opml = f"<opml><body>{outlines}</body></opml>".encode()
        self.assertIn("names 1000 feeds, and an account may follow 5", self.refused(opml))
        self.load("".join(f'<outline xmlUrl="{url}"/>' for url in self.urls[:3]))
        imported = self.load("".join(f'<outline xmlUrl="{url}"/>' for url in self.urls[2:]))
        self.assertEqual(imported.added, 2)
        ((url, reason),) = imported.failed
        self.assertEqual(url, self.urls[5])
        self.assertIn("you follow 5 feeds", reason)

    def test_bad_lists(self) -> None:
        deep = b"<outline>" * 100_000 + b"</outline>" * 100_000
        many = b'<outline xmlUrl="http://x.example/"/>' * (MAX_OUTLINES + 1)
        bomb = b'<!DOCTYPE opml [<!ENTITY a "aaaa">]><opml><body>&a;</body></opml>'
        for data, said in (
            (b"", "the list cannot be read"),
            (b"<opml><body>", "the list cannot be read"),
            (b"<html/>", "no OPML, since its root element is html"),
            (b"<opml><body/></opml>", "names no feed"),
            (bomb, "DOCTYPE"),
            (b"<opml><body>%b</body></opml>" % deep, "the list cannot be read"),
            (b"<opml><body>%b</body></opml>" % many, "more than 20000 elements; split it"),
            (
                b'<opml><body><outline type="include" url="http://x.example/a"/></body></opml>',
                "it only includes other lists, which are not read, such as http://x.example/a",
            ),
            (b" " * (6 * 1024 * 1024), "more than"),
        ):
            self.assertIn(said, self.refused(data))
