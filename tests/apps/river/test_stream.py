"""The event stream of the river: who gets which items, and what streams may cost."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.apps.river import page
from rsscloud_broker.apps.river.model import Item
from rsscloud_broker.apps.river.stream import MAX_PAGE, MOST_MISSED, NEAR, PART
from rsscloud_broker.config import Http
from rsscloud_broker.web.broadcast import CHECKED_AT_ONCE
from tests.apps.river.page_site import EventReader, RiverSite, feed, item
from tests.web.accounts_site import Browser

#: The ids of the accounts of the site.
DAVE, ANNA = 1, 2


class StreamCase(SynchronousTestCase):
    http = Http()

    def setUp(self) -> None:
        self.site = RiverSite(self, self.http)
        self.river = self.site.river
        self.dave, self.anna = (self.site.browser(name) for name in ("dave", "anna"))
        self.river.follow(DAVE, feed(1, "First"))
        self.river.follow(DAVE, feed(2, "Second"))
        self.river.follow(ANNA, feed(2, "Second"))

    def watch(
        self, browser: Browser, query: str = "", last: str = "", source: str = "192.0.2.7"
    ) -> EventReader:
        reader = EventReader(self.site, browser, query, last, source)
        self.wait(0)
        return reader

    def arrive(self, *items: Item) -> None:
        """Store items of one feed, and let all that is due at once be done."""
        self.river.arrive(*items)
        self.wait(0)

    def wait(self, seconds: float = 2.0, times: int = 1) -> None:
        """Let time pass, some times, and each time all turns that are due at once."""
        for _ in range(times):
            self.site.clock.pump([seconds, *50 * [0.0]])


class StreamTests(StreamCase):
    def test_each_gets_the_items_of_the_feeds_that_the_account_follows(self) -> None:
        dave, anna = self.watch(self.dave), self.watch(self.anna)
        self.arrive(item(1, 1))
        self.arrive(item(2, 2))
        self.assertEqual((dave.ids(), anna.ids()), ([1, 2], [2]))
        first, second = dave.sections()
        self.assertEqual(first.get("data-feed"), "1")
        self.assertEqual(first.xpath("string(.//h2)"), "First")
        self.assertEqual(second.xpath("string(.//h2)"), "Second")
        self.assertEqual(second.xpath("string(.//article/@id)"), "item-2")

    def test_who_has_not_signed_in_gets_nothing(self) -> None:
        reader = self.watch(Browser(self.site))
        self.assertEqual(reader.status, 401)
        self.assertIn("Sign in", reader.exchange.answer().text)

    def test_it_goes_on_after_a_broken_connection(self) -> None:
        reader = self.watch(self.dave)
        self.arrive(item(1))
        reader.leave()
        self.arrive(item(2))
        self.arrive(item(3))
        again = self.watch(self.dave, "?after=0", last="1")  # the header is newer than the URL
        self.assertEqual(again.ids(), [2, 3])
        self.arrive(item(4))
        self.assertEqual(again.ids(), [2, 3, 4])

    def test_many_missed_items_come_in_parts(self) -> None:
        number = NEAR + 2 * PART + 5
        self.river.add(*map(item, range(1, number + 1)))
        readers = [self.watch(self.dave, "?after=0") for _ in range(3)]
        self.assertEqual([reader.ids() for reader in readers], [[*range(1, number + 1)]] * 3)
        # Those of one account while there are many, then those of all feeds; once for all readers.
        reads = self.river.reads
        self.assertEqual((reads.count("own arrivals"), reads.count("arrivals")), (3, 5))

    def test_too_many_missed_items_are_a_gap(self) -> None:
        number = MOST_MISSED + 5
        self.river.add(*map(item, range(1, number + 1)))
        reader = self.watch(self.dave, "?after=0")
        self.assertEqual(reader.ids(), [*range(1, MOST_MISSED + 1), "gap"])
        self.assertIn(f"event: gap\nid: {number}\n", reader.text)
        self.arrive(item(number + 1))
        self.assertEqual(reader.ids()[-1], number + 1)

    def test_items_of_others_that_were_missed_are_not_read(self) -> None:
        self.river.add(*(item(key, 1 + (key % 100 == 0)) for key in range(1, 1001)))
        reader = self.watch(self.anna, "?after=0")
        self.assertEqual(reader.ids(), [*range(100, 1001, 100)])
        self.assertEqual(self.river.reads.count("own arrivals"), 1)

    def test_what_arrives_while_a_browser_catches_up_comes_once(self) -> None:
        self.river.add(item(1))
        waiting = self.river.waiting = Deferred()
        reader, other = self.watch(self.dave, "?after=0"), self.watch(self.dave, "?after=1")
        self.arrive(item(2))
        self.river.waiting = None
        waiting.callback(None)
        self.arrive(item(3))
        self.assertEqual((reader.ids(), other.ids()), ([1, 2, 3], [2, 3]))

    def test_items_that_another_process_has_stored(self) -> None:
        """Nobody announces them here, so the id of the newest item is looked at."""
        dave, anna = self.watch(self.dave), self.watch(self.anna)
        self.arrive(item(1, 1))
        self.river.add(item(2, 1), item(3, 2))
        self.wait(times=3)
        self.assertEqual((dave.ids(), anna.ids()), ([1, 2, 3], [3]))
        self.arrive(item(4, 2))
        self.assertEqual((dave.ids(), anna.ids()), ([1, 2, 3, 4], [3, 4]))

    def test_a_stream_ends_with_its_session(self) -> None:
        dave, anna = self.watch(self.dave), self.watch(self.anna)
        self.dave.get("/river/feeds")
        self.dave.send("Sign out")
        self.wait(times=31)
        self.assertEqual((dave.is_open, anna.is_open), (False, True))
        self.arrive(item(1, 2))
        self.assertEqual((dave.ids(), anna.ids()), ([], [1]))

    def test_who_has_left_a_feed_gets_nothing_of_it(self) -> None:
        reader = self.watch(self.dave)
        del self.river.lists[DAVE][1]
        self.arrive(item(1, 1))
        self.assertEqual(reader.ids(), [])

    def test_an_item_that_was_edited_comes_as_it_is_now(self) -> None:
        self.watch(self.dave)
        self.arrive(item(1, title="Before"))
        self.river.stored[0] = item(1, title="After")
        self.wait(6.0)
        again = self.watch(self.dave, last="0")
        (section,) = again.sections()
        self.assertEqual(section.xpath("string(.//h3)"), "New: After")


class TroubleTests(StreamCase):
    http = Http(idle_timeout=30.0)

    def test_who_has_signed_out_is_noticed_though_it_reads_slowly(self) -> None:
        """It is never idle: whenever it has read, something else is new."""
        reader = self.watch(self.dave)
        self.dave.get("/river/feeds")
        self.dave.send("Sign out")
        for number in range(1, 7):
            reader.pause()
            self.arrive(item(number))
            self.wait(times=7)
            reader.resume()
        self.assertFalse(reader.is_open)
        self.assertLess(len(reader.ids()), 6)

    def test_a_burst_of_large_items_comes_in_parts(self) -> None:
        """Nobody who reads is cut off for the size of what arrives, and nothing is lost."""
        reader, slow = self.watch(self.dave), self.watch(self.dave)
        slow.pause()
        before = len(slow.text)
        text = f"<p>{'word ' * 4000}</p>"
        self.arrive(*[item(key, text_html=text) for key in range(1, 31)])
        self.assertEqual(reader.ids(), list(range(1, 31)))
        self.assertLess(len(slow.text) - before, MAX_PAGE)
        self.assertTrue(slow.is_open)
        slow.resume()
        self.wait()
        self.assertEqual(slow.ids(), list(range(1, 31)))
        self.assertLess(self.river.reads.count("arrivals"), 12)  # once for both
        self.arrive(item(31))
        self.assertEqual((reader.ids()[-1], slow.ids()[-1]), (31, 31))

    def test_a_huge_item_is_shortened_in_the_stream(self) -> None:
        reader = self.watch(self.dave)
        text = f"<p>{'漢字 ' * 30_000}</p>"
        self.arrive(item(1, title="Huge", text_html=text))
        self.assertLess(len(reader.text.encode()), MAX_PAGE)
        (section,) = reader.sections()
        self.assertEqual(section.xpath("string(.//h3)"), "New: Huge")
        self.assertIn("漢字", section.text_content())
        (link,) = section.xpath(".//a[@href='/river?before=2']")
        self.assertIn("whole", link.text_content())
        page = self.dave.get("/river?before=2")
        self.assertIn(text, page.text)


class CheckTests(StreamCase):
    http = Http(max_connections=1000, max_connections_per_address=1000)

    def setUp(self) -> None:
        self.waiting: list[Deferred[bool]] = []

        async def may_watch(events: object, request: object, reader: object) -> bool:
            self.waiting.append(Deferred())
            return await self.waiting[-1]

        self.patch(page.RiverPageDoor, "_may_watch", may_watch)
        super().setUp()

    def test_few_sessions_are_looked_at_at_a_time(self) -> None:
        """Otherwise all who watch would keep everybody else from the database for a moment."""
        readers = [self.watch(self.dave) for _ in range(2 * CHECKED_AT_ONCE)]
        self.wait(times=31)
        self.assertEqual(len(self.waiting), CHECKED_AT_ONCE)
        for each in self.waiting[:]:
            each.callback(False)
        self.assertEqual(len(self.waiting), 2 * CHECKED_AT_ONCE)
        for each in self.waiting[CHECKED_AT_ONCE:]:
            each.callback(True)
        self.assertEqual(sum(reader.is_open for reader in readers), CHECKED_AT_ONCE)


class LimitTests(StreamCase):
    http = Http(max_connections=10, max_connections_per_address=12)

    def setUp(self) -> None:
        self.patch(page, "ACCOUNT_SHARE", 4)
        self.patch(page, "ADDRESS_SHARE", 3)
        super().setUp()

    def statuses(self, browser: Browser, *sources: str) -> list[int]:
        return [self.watch(browser, source=source).status for source in sources]

    def test_of_an_account(self) -> None:
        sources = [f"192.0.2.{n}" for n in range(3)]
        self.assertEqual(self.statuses(self.dave, *sources), [200, 200, 200])
        self.assertEqual(self.statuses(self.anna, "192.0.2.1"), [200])
        answer = self.watch(self.dave).exchange.answer()
        self.assertEqual((answer.status, answer.headers["retry-after"]), (503, "60"))
        self.assertIn("Close other pages of the river", answer.text)
