"""The contract of the store: the results of fetches, polls, and moves of topics."""

from __future__ import annotations

from attrs import evolve

from rsscloud_broker.model import (
    FetchResult,
    Ping,
    Subscription,
    Topic,
    TopicStatus,
    TopicSummary,
    Validators,
)
from rsscloud_broker.model.ways import ChangeSource, Way
from rsscloud_broker.model.work import Check, PollPlan, Swept
from rsscloud_broker.storage import moves, walks
from tests.storage.waiting import PINGED, SOME, waiting_checks
from tests.store_contract.basics import (
    DAY,
    FEED,
    OTHER_FEED,
    a_content,
    a_fetch,
    a_ping,
    a_subscription,
    asked,
    at_once,
    succeeded,
    waits,
)
from tests.store_contract.hub import HubContract

_THIRD_FEED = "http://elsewhere.example/feed"
_WEEK = 7 * DAY
_VALIDATORS = Validators('W/"1"', "Wed, 01 May 2024 11:00:00 GMT")


def a_full_fetch(at: float = 1000.0, url: str = FEED) -> FetchResult:
    """The result of a fetch with everything that a server may say."""
    return evolve(
        a_fetch(at=at, url=url),
        validators=_VALIDATORS,
        fresh_seconds=90.5,
        result="it came",
    )


def a_plan(at: float | None, url: str = FEED) -> PollPlan:
    """A plan of a poll."""
    return PollPlan(url, at, "it changes each hour", 3600.5, 1500.25)


def a_follower(topic: str) -> Subscription:
    """A subscription of which strangers may not know."""
    return a_subscription(topic, protocol="river")


class TopicsContract(HubContract):
    """The tests of statuses, polls and moves of topics that every store must pass."""

    async def status(self, url: str = FEED) -> TopicStatus:
        """The status of a topic, which the store must know."""
        status = await self.store.topic_status(url)
        assert status is not None
        return status

    async def polls(self, now: float = 9e9, limit: int = 10) -> list[str]:
        """The topics whose polls are due."""
        return [one.topic.url for one in await self.store.polls_due(now, limit)]

    async def moved(self, url: str = FEED, to: str = OTHER_FEED, at: float = 2000.0) -> None:
        """Move a topic, and check that the store has moved it."""
        self.assertTrue(await self.store.move_topic(url, to, at))

    # the results of fetches

    async def test_status_after_a_fetch(self) -> None:
        """Each fetch replaces what the server has said before."""
        self.assertIsNone(await self.store.topic_status(FEED))
        record = await self.store.record_fetch(evolve(a_full_fetch(), pinged=True), a_ping())
        self.assertTrue(record.changed)
        self.assertEqual(await self.store.pings(0, 9999, None, 10), [record.ping])
        self.assertEqual(record.topic, Topic(FEED, b"1" * 32, 1, 1000, 1000, "", _VALIDATORS))
        self.assertEqual(await self.known(), record.topic)
        expected = TopicStatus(record.topic, 1000, "it came", fresh_seconds=90.5, pinged_at=1000)
        self.assertEqual(await self.status(), expected)
        record = await self.store.record_fetch(a_fetch(at=2000), None)
        self.assertEqual(record.topic.validators, Validators())
        self.assertEqual(await self.status(), TopicStatus(record.topic, 2000, pinged_at=1000))

    async def test_failures_are_counted_until_it_is_read(self) -> None:
        await self.store.record_failure(FEED, 1000, "status 404")
        self.assertIsNone(await self.store.topic_status(FEED))
        await self.store.record_fetch(a_full_fetch(), None)
        for at in (2000.0, 3000.5):
            await self.store.record_failure(FEED, at, "status 404" * 100)
        status = await self.status()
        self.assertEqual((status.failures, status.asked_at), (2, 3000.5))
        self.assertIsNone(status.fresh_seconds)
        self.assertEqual(status.result, "status 404" * 30)
        self.assertEqual(status.topic.read_at, 1000)
        self.assertEqual(status.topic.validators, _VALIDATORS)
        await self.store.record_failure(FEED, 3500, "status 503", 3600.0)
        self.assertEqual((await self.status()).fresh_seconds, 3600.0)
        await self.store.record_fetch(a_full_fetch(4000), None)
        status = await self.status()
        self.assertEqual((status.failures, status.result), (0, "it came"))

    async def test_what_a_feed_says_of_itself(self) -> None:
        """The last counts, also of several that are stored at a time."""
        await self.store.record_feed(FEED, {"title": "nobody knows it"})
        self.assertIsNone(await self.store.topic_status(FEED))
        for url in (FEED, OTHER_FEED):
            await self.store.record_fetch(a_fetch(url=url), None)
        for feed in ({"title": "Ünïcode", "ttl": 60, "days": [1, 2]}, {"title": "T"}, {}):
            said = ((FEED, {"title": "earlier"}), (OTHER_FEED, {"title": "other"}), (FEED, feed))
            await at_once(self.store.record_feed(*each) for each in said)
            self.assertEqual((await self.status()).feed, feed)
        self.assertEqual((await self.status(OTHER_FEED)).feed, {"title": "other"})

    async def test_changes_are_counted_by_day(self) -> None:
        """The first fetch is none, and neither is what only private followers could see."""
        for at, content in ((1000.0, b"1"), (2 * DAY, b"2"), (2 * DAY + 1, b"3"), (3 * DAY, b"4")):
            found = a_fetch(content, at=at)
            await self.store.record_fetch(evolve(found, way=Way.RSSCLOUD), None)
        await self.store.record_fetch(evolve(a_fetch(b"5", at=4 * DAY), way=Way.FOLLOWED), None)
        self.assertEqual((await self.status()).change_days, {2: 2, 3: 1})
        await self.moved(at=5 * DAY)
        self.assertEqual((await self.status(OTHER_FEED)).change_days, {2: 2, 3: 1})
        late = evolve(a_fetch(b"6", at=32 * DAY, url=OTHER_FEED), way=Way.RSSCLOUD)
        await self.store.record_fetch(late, None)
        self.assertEqual((await self.status(OTHER_FEED)).change_days, {3: 1, 32: 1})

    async def test_pushes_are_counted_if_strangers_may_see_them(self) -> None:
        for subscription, days in ((a_follower(FEED), {}), (a_subscription(), {3: 1})):
            await self.store.put_subscription(subscription)
            await self.store.push_content(FEED, a_content(), 3 * DAY)
            self.assertEqual((await self.status()).change_days, days)

    async def test_subscriptions_are_counted_by_protocol(self) -> None:
        self.assertEqual(await self.store.subscription_counts(FEED), {})
        for number, protocol in enumerate(("http-post", "soap", "http-post")):
            await self.store.put_subscription(a_subscription(number=number, protocol=protocol))
        await self.store.put_subscription(a_subscription(OTHER_FEED))
        record = await self.store.record_fetch(a_fetch(), None)
        self.assertEqual((record.topic.subscribers, (await self.known()).subscribers), (3, 3))
        counts = {"http-post": 2, "soap": 1}
        self.assertEqual(await self.store.subscription_counts(FEED), counts)
        await self.moved(to=_THIRD_FEED)
        for url in (FEED, _THIRD_FEED):
            self.assertEqual(await self.store.subscription_counts(url), counts)

    async def test_summaries_of_topics_with_subscriptions(self) -> None:
        self.assertEqual(await self.store.topic_summaries(0, 10), [])
        await self.store.record_fetch(a_fetch(), None)  # nobody subscribes to this one
        for number, url in enumerate((OTHER_FEED, _THIRD_FEED, "http://ended.example/")):
            await self.store.put_subscription(a_subscription(url, number))
        await self.store.end_topic("http://ended.example/", "gone", 2000)
        await self.store.record_feed(OTHER_FEED, {"title": "Ünï <b>"})
        await self.store.record_feed(_THIRD_FEED, {"unreadable": "it is empty"})
        first, second = await self.store.topic_summaries(0, 10)
        counts = {a_subscription().callback.protocol: 1}
        expected = [
            TopicSummary(first.id, OTHER_FEED, "Ünï <b>", counts),
            TopicSummary(second.id, _THIRD_FEED, "", counts),
        ]
        self.assertEqual([first, second], expected)
        self.assertLess(first.id, second.id)
        self.assertEqual(await self.store.topic_summaries(0, 1), [first])
        self.assertEqual(await self.store.topic_summaries(first.id, 1), [second])
        self.assertEqual(await self.store.topic_summaries(second.id, 1), [])

    async def test_titles(self) -> None:
        """Of topics that strangers may know of, also without subscriptions."""
        await self.store.record_fetch(evolve(a_fetch(), pinged=True, way=Way.PUBLISHED), None)
        await self.store.put_subscription(a_follower(OTHER_FEED), known=b"1")
        await self.store.put_subscription(a_subscription(topic=_THIRD_FEED))
        for url in (FEED, OTHER_FEED):
            await self.store.record_feed(url, {"title": f"Title of {url}"})
        urls = {FEED, OTHER_FEED, _THIRD_FEED, "http://unknown.example/"}
        self.assertEqual(await self.store.topic_titles(urls), {FEED: f"Title of {FEED}"})

    async def test_topics_are_found_by_how_their_addresses_begin(self) -> None:
        """In the order of their URLs; those that only private followers know of are not."""
        urls = [
            "http://www.site.example/a",
            "https://site.example/A",
            "https://site.example/b",
            "http://site.example.org/",
            "http://other.example/site.example",
        ]
        for url in urls:
            await self.store.put_subscription(a_subscription(topic=url), known=b"1")
        await self.store.put_subscription(a_follower("http://site.example/private"), known=b"1")
        await self.store.request_check("http://site.example/nobody", 1000.0)

        async def found(begins: str, limit: int = 10) -> list[str]:
            overviews = await self.store.topics_beginning(begins, limit)
            return [one.status.topic.url for one in overviews]

        here = sorted(urls[:4])
        self.assertEqual(await found("site.exa"), here)
        self.assertEqual(await found("site.exa", 2), here[:2])
        self.assertEqual(await found("www.site"), [urls[0]])
        self.assertEqual(await found("https://site.example/"), [urls[1], urls[2]])
        self.assertEqual(await found("site.example/%"), [])
        self.assertEqual(await found("ite.example"), [])
        long = "http://site.example/" + "a" * 300
        await self.store.put_subscription(a_subscription(topic=long), known=b"1")
        self.assertEqual(await found(long), [long])

    async def test_validators_are_forgotten_for_content_that_is_not_kept(self) -> None:
        await self.store.record_fetch(a_full_fetch(), None)
        wanted = evolve(a_subscription(), wants_content=True)
        await self.store.put_subscription(wanted, b"1" * 32)
        await self.store.put_subscription(a_subscription(number=2), b"0" * 32)
        self.assertEqual((await self.status()).topic.validators, _VALIDATORS)
        await self.store.put_subscription(wanted, b"0" * 32)
        self.assertEqual((await self.status()).topic.validators, Validators())

    # polls

    async def test_first_subscription_lets_a_topic_be_polled(self) -> None:
        await self.store.record_fetch(a_fetch(), None)
        self.assertEqual(await self.polls(), [])
        await self.store.put_subscription(a_subscription(granted_at=1000.5))
        self.assertEqual((await self.polls(1000), await self.polls(1000.5)), ([], [FEED]))
        self.assertIsNone((await self.status()).planned_at)
        await self.store.plan_polls([a_plan(5000.5)])
        await self.store.put_subscription(a_subscription(number=2))
        status = await self.status()
        self.assertEqual(await self.store.polls_due(5000.5, 10), [status])
        self.assertEqual((status.next_poll_at, status.planned_at), (5000.5, 1500.25))
        self.assertEqual(status.poll_reason, "it changes each hour")
        self.assertEqual((status.poll_interval, status.topic.subscribers), (3600.5, 2))

    async def test_topic_that_is_not_polled_any_more(self) -> None:
        await self.store.put_subscription(a_subscription())
        await self.store.plan_polls([a_plan(None), a_plan(5000, "http://nobody.example/")])
        self.assertEqual(await self.polls(), [])
        self.assertEqual((await self.status()).planned_at, 1500.25)
        await self.store.put_subscription(a_subscription(granted_at=2000))
        self.assertEqual(await self.polls(2000), [FEED])

    async def test_plan_replaces_the_one_that_it_is_for(self) -> None:
        """Another process may have planned the poll meanwhile."""
        await self.store.put_subscription(a_subscription())
        first, second = a_plan(5000), evolve(a_plan(6000), planned_at=1600.5)
        await self.store.plan_polls([evolve(first, replaces=None)])
        await self.store.plan_polls([evolve(second, replaces=None)])
        self.assertEqual((await self.status()).next_poll_at, 5000)
        await self.store.plan_polls([evolve(second, replaces=first.planned_at)])
        self.assertEqual((await self.status()).next_poll_at, 6000)
        await self.store.plan_polls([evolve(first, replaces=first.planned_at)])
        self.assertEqual((await self.status()).next_poll_at, 6000)

    async def test_topic_whose_pings_are_forgotten(self) -> None:
        await self.store.record_fetch(evolve(a_fetch(), pinged=True), None)
        await self.store.forget_ping(FEED, 2000)
        self.assertIsNone((await self.status()).pinged_at)
        self.assertEqual(await self.polls(), [])  # nobody has subscribed to it
        await self.store.put_subscription(a_subscription())
        await self.store.record_fetch(evolve(a_fetch(), pinged=True), None)
        await self.store.plan_polls([a_plan(5000)])
        self.assertIsNotNone((await self.status()).pinged_at)
        await self.store.forget_ping(FEED, 3000)
        status = await self.status()
        self.assertEqual((status.pinged_at, status.next_poll_at), (None, 3000))
        await self.store.forget_ping("http://nobody.example/", 3000)

    async def test_polls_are_due_longest_due_first(self) -> None:
        for url in (FEED, OTHER_FEED, _THIRD_FEED):
            await self.store.put_subscription(a_subscription(url))
        plans = [a_plan(3002), a_plan(3001, OTHER_FEED), a_plan(3003, _THIRD_FEED)]
        await self.store.plan_polls(plans)
        await self.store.plan_polls([])
        self.assertEqual(await self.polls(3002), [OTHER_FEED, FEED])
        self.assertEqual(await self.polls(limit=1), [OTHER_FEED])
        await self.store.remove_subscription(OTHER_FEED, a_subscription().callback)
        self.assertEqual(await self.polls(3001), [OTHER_FEED])

    async def test_topic_that_ended_is_not_polled(self) -> None:
        await self.store.put_subscription(a_subscription())
        await self.store.end_topic(FEED, "moved away", 2000)
        await self.store.put_subscription(a_subscription(number=2))
        await self.store.plan_polls([a_plan(2000)])
        self.assertEqual(await self.polls(), [])
        await self.store.revive_topic(FEED)
        self.assertEqual(await self.polls(0), [FEED])

    # moves

    async def test_topic_is_found_by_the_urls_that_it_had(self) -> None:
        await self.store.record_fetch(a_full_fetch(), None)
        await self.moved()
        await self.moved(OTHER_FEED, _THIRD_FEED)
        topic = Topic(_THIRD_FEED, b"1" * 32, 1, 1000, 1000)  # validators are for one URL only
        for url in (FEED, OTHER_FEED, _THIRD_FEED):
            self.assertEqual(await self.store.topic(url), topic)
        status = await self.status()
        self.assertEqual(status.moved_from, (OTHER_FEED, FEED))
        self.assertEqual((status.asked_at, status.result), (1000, "it came"))

    async def test_subscription_keeps_the_url_that_it_asked_for(self) -> None:
        one = await self.store.put_subscription(a_subscription())
        await self.moved()
        at_once = await self.store.put_subscription(a_subscription(number=2))
        direct = await self.store.put_subscription(a_subscription(OTHER_FEED))
        known = [evolve(one, moved_to=OTHER_FEED), at_once, direct]
        self.assertEqual((at_once.topic, at_once.moved_to), (FEED, OTHER_FEED))
        self.assertEqual((direct.topic, direct.moved_to), (OTHER_FEED, ""))
        for url in (FEED, OTHER_FEED):
            self.assertEqual(await self.all_subscriptions(url), known)
        self.assertEqual((await self.status()).topic.subscribers, 3)
        await self.moved(OTHER_FEED, _THIRD_FEED)
        self.assertEqual(
            await self.all_subscriptions(), [evolve(one, moved_to=_THIRD_FEED) for one in known]
        )

    async def test_subscription_is_renewed_and_removed_by_the_url_that_it_asked_for(self) -> None:
        one = await self.store.put_subscription(a_subscription())
        await self.moved()
        renewed = await self.store.put_subscription(a_subscription(granted_at=2000))
        self.assertEqual(
            renewed, evolve(a_subscription(granted_at=2000), id=one.id, moved_to=OTHER_FEED)
        )
        self.assertFalse(await self.store.has_subscription(OTHER_FEED, one.callback))
        self.assertFalse(await self.store.remove_subscription(OTHER_FEED, one.callback))
        self.assertTrue(await self.store.has_subscription(FEED, one.callback))
        self.assertTrue(await self.store.remove_subscription(FEED, one.callback))
        self.assertEqual(await self.all_subscriptions(OTHER_FEED), [])

    async def test_subscription_keeps_the_url_that_was_written_last(self) -> None:
        wanted = evolve(a_subscription(), written="HTTP://Feeds.example/rss.xml")
        one = await self.store.put_subscription(wanted)
        self.assertEqual(one, evolve(wanted, id=one.id))
        await self.moved()
        (kept,) = await self.all_subscriptions(OTHER_FEED)
        self.assertEqual((kept.topic, kept.told_topic), (FEED, wanted.written))
        renewed = await self.store.put_subscription(a_subscription())
        self.assertEqual((renewed.id, renewed.told_topic), (one.id, FEED))

    async def test_ping_names_topics_in_any_spelling(self) -> None:
        await self.store.put_subscription(a_subscription())
        ping = Ping("A", "HTTP://%46eeds.example:80/./rss.xml", 1000)
        record = await self.store.add_ping(ping, 0)
        self.assertEqual((record.watched, record.ping.url), ((FEED,), ping.url))

    async def test_topics_that_stay(self) -> None:
        """They are there, came from there lately, or either has ended."""
        await self.store.record_fetch(a_full_fetch(), None)
        ended = "http://ended.example/"
        await self.store.end_topic(ended, "gone", 1000)
        for url, to in (
            (FEED, FEED),
            (_THIRD_FEED, _THIRD_FEED),
            (_THIRD_FEED, ended),
            (ended, _THIRD_FEED),
        ):
            self.assertFalse(await self.store.move_topic(url, to, 2000), (url, to))
        self.assertIsNone(await self.store.topic(_THIRD_FEED))
        await self.moved()
        self.assertFalse(await self.store.move_topic(FEED, OTHER_FEED, 2001))
        self.assertFalse(await self.store.move_topic(OTHER_FEED, FEED, 1999.0 + _WEEK))
        self.assertEqual((await self.status()).topic.url, OTHER_FEED)

    async def test_topic_moves_back_after_a_week(self) -> None:
        one = await self.store.put_subscription(a_subscription())
        await self.moved()
        other = await self.store.put_subscription(a_subscription(OTHER_FEED))
        await self.moved(OTHER_FEED, FEED, 2000 + _WEEK)
        known = [one, evolve(other, moved_to=FEED)]
        for url in (FEED, OTHER_FEED):
            self.assertEqual(await self.all_subscriptions(url), known)
        self.assertEqual((await self.status()).moved_from, (OTHER_FEED,))

    async def test_move_to_a_url_that_was_left_lately_leads_on(self) -> None:
        await self.moved(OTHER_FEED, _THIRD_FEED)
        await self.moved(FEED, OTHER_FEED, 2001)
        self.assertEqual((await self.status()).topic.url, _THIRD_FEED)
        self.assertEqual((await self.status()).moved_from, (OTHER_FEED, FEED))

    async def test_move_to_a_url_that_was_left_long_ago(self) -> None:
        """It is a topic again, with the subscriptions whose subscribers asked for it."""
        back = await self.store.put_subscription(a_subscription(OTHER_FEED))
        await self.moved(OTHER_FEED, _THIRD_FEED)
        comes = await self.store.put_subscription(a_subscription(FEED))
        stays = await self.store.put_subscription(a_subscription(_THIRD_FEED))
        await self.moved(FEED, OTHER_FEED, 2000 + _WEEK)
        here = [back, evolve(comes, moved_to=OTHER_FEED)]
        self.assertEqual(await self.all_subscriptions(OTHER_FEED), here)
        self.assertEqual(await self.all_subscriptions(_THIRD_FEED), [stays])
        self.assertEqual(set(await self.polls(2000 + _WEEK)), {OTHER_FEED, _THIRD_FEED})

    async def test_topic_that_got_its_subscribers_back_and_moves_again(self) -> None:
        """Its subscribers can still unsubscribe, and none has two subscriptions after renewing."""
        one = await self.store.put_subscription(a_subscription())
        await self.moved()
        await self.store.put_subscription(a_subscription(OTHER_FEED, number=2))
        await self.store.put_subscription(a_subscription(_THIRD_FEED, number=3))
        await self.moved(_THIRD_FEED, FEED, 2000.0 + _WEEK)
        await self.moved(at=2000.0 + 3 * _WEEK)
        self.assertTrue(await self.store.has_subscription(FEED, one.callback))
        renewed = await self.store.put_subscription(a_subscription(granted_at=3000))
        self.assertEqual((renewed.id, renewed.renewed), (one.id, True))

    async def test_topic_that_gets_its_subscribers_back_is_polled(self) -> None:
        await self.store.put_subscription(a_subscription(OTHER_FEED))
        await self.moved(OTHER_FEED, _THIRD_FEED)
        await self.moved(FEED, OTHER_FEED, 2000 + _WEEK)
        self.assertEqual(await self.polls(2000 + _WEEK), [_THIRD_FEED, OTHER_FEED])

    async def test_what_is_known_at_the_other_url_stays(self) -> None:
        for url, at in ((FEED, 1000.0), (OTHER_FEED, 1500.0)):
            await self.store.record_fetch(a_full_fetch(at, url), None)
            await self.store.record_feed(url, {"title": url})
            await self.store.plan_polls([a_plan(at, url)])
        before = await self.status(OTHER_FEED)
        await self.moved()
        self.assertEqual(await self.status(), evolve(before, moved_from=(FEED,)))

    async def test_other_content_at_the_other_url_is_a_change_for_who_comes(self) -> None:
        await self.store.put_subscription(a_subscription())
        await self.store.record_fetch(a_fetch(b"1"), None)
        (walk,) = await self.store.fanouts(10)
        await self.store.record_slice(walk, 9, [], True)
        newer = evolve(a_full_fetch(1500, OTHER_FEED), digest=b"2" * 32)
        await self.store.record_fetch(newer, None)
        await self.moved()
        self.assertEqual((await self.status()).topic.validators, Validators())
        self.assertTrue((await self.store.record_fetch(newer, None)).changed)
        (walk,) = await self.store.fanouts(10)
        self.assertEqual((walk.topic, walk.cursor), (OTHER_FEED, 0))

    async def test_what_waits_to_be_read_goes_along(self) -> None:
        await self.store.put_subscription(a_subscription())
        await self.store.request_check(FEED, 1000, True)
        await self.store.plan_polls([a_plan(5000.0)])
        await self.store.record_feed(FEED, {"title": "T"})
        before = await self.status()
        await self.moved()
        self.assertEqual(await waiting_checks(self.store, 10), [Check(OTHER_FEED, cause=PINGED)])
        topic = evolve(before.topic, url=OTHER_FEED)
        self.assertEqual(await self.status(), evolve(before, topic=topic, moved_from=(FEED,)))
        self.assertEqual(await self.polls(), [OTHER_FEED])

    async def test_why_it_waits_to_be_read_goes_along_to_a_known_url(self) -> None:
        """What only a private follower was told of stays so, and a ping keeps its origin."""
        followed = ChangeSource(Way.FOLLOWED, pinged=True)
        passed_on = ChangeSource(Way.WEBSUB, "http://other.example", pinged=True)
        number = 0
        for most in (moves.MAX_AT_ONCE, 0):  # it becomes the topic there, or that one becomes it
            self.patch(moves, "MAX_AT_ONCE", most)
            for causes, both in (
                ((followed, None), followed),
                ((None, followed), followed),
                ((passed_on, None), passed_on),
                ((followed, passed_on), passed_on),
                ((passed_on, followed), passed_on),
            ):
                number += 1
                here, there = (f"http://{name}{number}.example/" for name in ("old", "new"))
                await self.store.put_subscription(a_subscription(here))
                for url, cause in zip((here, there), causes, strict=True):
                    await self.store.record_fetch(a_fetch(url=url), None)
                    if cause is not None:
                        await self.store.request_check(url, 1500.0, True, cause=cause)
                await self.moved(here, there)
                claimed = await self.store.claim_checks(SOME)
                self.assertEqual(
                    [(each.url, each.cause) for each in claimed.checks], [(there, both)]
                )

    async def test_pings_and_checks_by_old_urls(self) -> None:
        await self.store.put_subscription(a_subscription())
        await self.moved()
        self.assertEqual(await self.store.watched_topics(0, 10), ([OTHER_FEED], None))
        ping = evolve(a_ping(3000), rss_url=FEED, changes_url=OTHER_FEED)
        self.assertEqual((await self.store.add_ping(ping, 0)).watched, (OTHER_FEED,))
        self.assertEqual(await waiting_checks(self.store, 10), asked(OTHER_FEED))
        await self.store.drop_check(FEED, 3000)
        self.assertEqual(await waiting_checks(self.store, 10), [])
        self.assertTrue(await self.store.request_check(FEED, 4000, True))
        self.assertEqual(await waiting_checks(self.store, 10), [Check(OTHER_FEED, cause=PINGED)])

    async def test_records_by_old_urls(self) -> None:
        await self.store.put_subscription(a_subscription())
        await self.moved()
        record = await self.store.record_fetch(a_full_fetch(3000), None)
        self.assertEqual((record.topic.url, record.topic.subscribers), (OTHER_FEED, 1))
        await self.store.record_failure(FEED, 4000, "status 404")
        await self.store.record_feed(FEED, {"title": "T"})
        await self.store.plan_polls([a_plan(5000)])
        status = await self.status(OTHER_FEED)
        self.assertEqual((status.failures, status.feed), (1, {"title": "T"}))
        self.assertEqual(status.next_poll_at, 5000)
        self.assertTrue(await self.store.push_content(FEED, a_content(), 6000))
        self.assertEqual(await self.store.newest_content(FEED), a_content())
        self.assertTrue(await self.store.end_topic(FEED, "gone", 7000))
        self.assertEqual((await self.status(OTHER_FEED)).topic.ended, "gone")
        self.assertTrue(await self.store.revive_topic(FEED))

    async def test_walk_that_is_under_way_goes_on(self) -> None:
        first, second = await self.wanting(1), await self.wanting(2)
        await self.read(a_content())
        walk = await self.walk_with(a_content())
        await self.store.record_slice(walk, first.id, [waits(first, 3000)], False)
        await self.moved()
        rest = await self.store.subscriptions(walk.topic, first.id, 10)
        self.assertEqual(rest, [evolve(second, moved_to=OTHER_FEED)])
        (shown,) = await self.store.fanouts(10)
        self.assertEqual(shown, evolve(walk, topic=OTHER_FEED, cursor=first.id))
        await self.store.record_slice(walk, second.id, [succeeded(second)], True)
        self.assertEqual(await self.store.newest_content(OTHER_FEED), a_content())
        (waiting,) = await self.store.claim_due(3000, 10, ())
        self.assertEqual((waiting.topic, waiting.moved_to), (FEED, OTHER_FEED))
        await self.store.record_deliveries([succeeded(waiting)])
        self.assertIsNone(await self.store.newest_content(OTHER_FEED))

    async def test_walks_of_both_reach_everybody(self) -> None:
        for url in (FEED, OTHER_FEED):
            await self.store.put_subscription(a_subscription(url))
            await self.store.record_fetch(a_fetch(url=url), None)
        older, newer = await self.store.fanouts(10)
        await self.store.record_slice(older, 3, [], False, [1])
        await self.store.record_slice(newer, 4, [], False, [2, 4])
        await self.moved()
        (both,) = await self.store.fanouts(10)
        # The new walk reaches the fourth subscription again, so that one is not in ``outstanding``.
        self.assertEqual(both, evolve(newer, id=both.id, cursor=3, outstanding=(1, 2)))
        for walk, done in ((newer, False), (older, True)):  # these do not know of the move
            await self.store.record_slice(walk, 9, [], done)
        self.assertEqual(await self.store.fanouts(10), [both])

    async def test_walk_that_was_split_does_not_pass_for_a_newer_one(self) -> None:
        """Parts of a walk are split off after the topic has changed again."""
        self.patch(walks, "PART", 2)
        self.patch(self.store, "live_nodes", 2)
        await self.store.put_subscription(a_subscription(OTHER_FEED))
        for number in range(5):
            await self.store.put_subscription(a_subscription(number=number))
        await self.store.record_fetch(a_fetch(url=OTHER_FEED), None)
        await self.store.record_fetch(a_fetch(), None)
        other, first = await self.store.fanouts(10)
        (first,) = await self.store.claim_fanouts([first.id])
        (other,) = await self.store.claim_fanouts([other.id])
        await self.store.record_slice(other, 9, [], False, [1])
        await self.store.record_fetch(a_fetch(b"2", at=2000), None)
        await self.store.record_slice(first, 3, [], True)
        (rest,) = [one for one in await self.store.fanouts(10) if one.topic == FEED]
        await self.store.claim_fanouts([rest.id])
        await self.moved()
        (both,) = await self.store.fanouts(10)
        self.assertEqual(both.cursor, 0)

    async def test_walks_that_meet_carry_what_was_read_for_either(self) -> None:
        await self.wanting()
        await self.read(a_content())
        older = await self.walk_with(a_content())
        await self.store.put_subscription(a_subscription(OTHER_FEED))
        await self.store.record_fetch(a_fetch(url=OTHER_FEED), None)
        await self.moved()
        (both,) = await self.store.fanouts(10)
        self.assertEqual(both.content_id, older.content_id)
        self.assertTrue(await self.kept(older))

    async def test_sweep_keeps_what_was_left_behind_while_there_is_a_topic(self) -> None:
        one = await self.store.put_subscription(a_subscription())
        await self.moved()
        self.assertEqual(await self.store.sweep(1000, 9999), Swept())
        self.assertEqual(await self.all_subscriptions(), [evolve(one, moved_to=OTHER_FEED)])
        await self.store.remove_subscription(FEED, one.callback)
        self.assertEqual(await self.store.sweep(1000, 9999), Swept(topics=1))
        for url in (FEED, OTHER_FEED):
            self.assertIsNone(await self.store.topic(url))
        self.assertTrue(await self.store.request_check(FEED, 9999, True))
        self.assertEqual((await self.status()).topic.url, FEED)
