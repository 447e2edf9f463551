"""The feeds have each ping and each change once, in order, also after crashes."""

from __future__ import annotations

from functools import partial

from twisted.logger import capturedLogs
from twisted.python.filepath import FilePath
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.apps.events import cutter, rows
from rsscloud_broker.apps.events.options import EventsOptions, KeptTopics
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.model import Content, Ping
from rsscloud_broker.model.ways import Way
from rsscloud_broker.simplefeed import log, pruning
from tests.apps.events.house import FEED, URL, EventsHouse
from tests.store_contract.basics import a_subscription

DAY = 86_400.0


class CuttingTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.house = EventsHouse(self)

    def test_pings_in_their_order(self) -> None:
        self.house.ping("a", "b")
        self.house.start()
        self.assertEqual(self.house.titles("/events/pings/recent"), ["a", "b"])
        self.house.ping("c", "d")
        self.house.wait()
        self.assertEqual(self.house.all_titles("/events/pings/recent"), ["a", "b", "c", "d"])
        (entry,) = self.house.entries("/events/pings/recent")
        links = [(each.href, each.rel) for each in entry.links]
        self.assertEqual(links, [("http://d.example/4", "alternate")])

    def test_more_than_are_cut_at_once(self) -> None:
        for name in ("PINGS_AT_ONCE", "CHANGES_AT_ONCE"):
            self.patch(cutter, name, 2)
        names = [f"n{number}" for number in range(9)]
        self.house.ping(*names)
        for number in range(5):
            self.house.change(f"http://{number}.example/")
        self.house.start()
        self.assertEqual(self.house.all_titles("/events/pings/recent"), names)
        self.assertEqual(len(self.house.all_titles("/events/recent")), 5)

    def test_change_says_when_and_by_which_way(self) -> None:
        at = self.house.clock.wall_seconds() - 5
        self.house.change(way=Way.WEBSUB, at=at)
        self.house.start()
        (entry,) = self.house.entries("/events/recent")
        self.assertEqual((entry.title, entry.updated), (FEED, round(at, 6)))
        self.assertEqual([each.term for each in entry.categories], ["WebSub"])
        self.assertIn("WebSub hub", entry.summary)
        self.assertRegex(entry.id, "^urn:uuid:[0-9a-f-]{36}$")
        self.assertEqual(self.house.entries("/events/host?name=feeds.example")[0].id, entry.id)
        self.assertIn(f"{URL}/events/host?name=feeds.example", [one.href for one in entry.links])

    def test_every_way_has_a_sentence(self) -> None:
        shown = {way.shown for way in Way}
        for way in shown:
            subscription = a_subscription(f"http://{way.lower()}.example/")
            self.successResultOf(self.house.store.put_subscription(subscription))
            self.house.change(f"http://{way.lower()}.example/", way=way)
        self.house.start()
        self.assertEqual(len(self.house.all_titles("/events/recent")), len(shown))

    def test_contents_of_topics_that_are_kept(self) -> None:
        pushed = "http://pushed.example/a"
        self.house.change(pushed, Content(b"<a><b/></a>", "text/xml"))
        self.house.change(pushed, Content(b"\xff\x00", "image/png"))
        self.house.change(FEED, Content(b"not kept", "text/plain"))
        self.house.start()
        path = "/events/topic?url=http%3A%2F%2Fpushed.example%2Fa"
        first, second = (one.content for one in self.house.entries(path))
        assert first is not None and second is not None
        self.assertEqual((first.type, first.text), ("text/xml", '<a xmlns=""><b/></a>'))
        self.assertEqual((second.type, second.data), ("image/png", b"\xff\x00"))
        self.assertIn(b"sandbox", self.house.ask(path).headers["Content-Security-Policy"].encode())
        links = [one.href for one in self.house.entries("/events/recent")[0].links]
        self.assertIn(URL + path, links)
        self.assertEqual(self.house.ask(f"/events/topic?url={FEED}").status, 404)

    def test_what_is_left_out(self) -> None:
        options = EventsOptions(leave_out=("http://secret.example/",))
        house = EventsHouse(self, options)
        for url in ("http://secret.example/feed", f"{URL}/events/recent", FEED):
            house.change(url)
        house.ping("secret", "open")
        at, secret = house.clock.wall_seconds(), "http://secret.example/"
        ping = Ping("x", "http://x.example/", at, rss_url=secret)
        self.successResultOf(house.store.add_ping(ping, 0.0))
        house.start()
        self.assertEqual(house.titles("/events/recent"), [FEED])
        self.assertEqual(house.titles("/events/pings/recent"), ["open"])
        house.ping("secret")
        house.wait()
        house.ping("later")
        house.wait()
        self.assertEqual(house.titles("/events/pings/recent"), ["open", "later"])

    def test_after_a_crash_before_the_rows_were_removed(self) -> None:
        self.house.change()
        self.house.start()
        self.assertEqual(self.successResultOf(self.house.store.kept_changes(0, 10)), [])
        self.house.stop()
        self.house.change("http://b.example/")
        self.patch(type(self.house.store), "remove_kept_changes", lambda *_: 1 / 0)
        with capturedLogs():
            self.house.new_door().startService()
            self.house.wait(0)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.house.door.stopService()
        self.house.wait(0)
        self.house.start()
        self.assertEqual(len(self.house.all_titles("/events/recent")), 2)

    def test_rows_that_another_process_has_cut(self) -> None:
        self.house.start()
        self.house.ping("a")
        (ping,) = self.successResultOf(self.house.store.pings_after(0, 10))
        for before, last in ((ping.id, ping.id + 1), (0, ping.id)):  # too early, and again
            appending = partial(rows.append_pings, before=before, last=last, entries=[])
            self.assertFalse(self.house.result(self.house.database.write(appending)))
            self.house.wait()
            self.assertEqual(self.house.titles("/events/pings/recent"), ["a"])

    def test_database_that_is_away(self) -> None:
        self.house.start()
        self.house.ping("a")
        read = self.house.database.read

        def away(operation: object) -> object:
            raise Unavailable("the disk is full")

        self.house.database.read = away  # type: ignore[method-assign, assignment] # for a while
        with capturedLogs() as logs:
            self.house.wait()
            self.house.wait(cutter.UNAVAILABLE)
        said = [event for event in logs if "put off" in event["log_format"]]
        self.assertEqual(len(said), 1)
        self.house.database.read = read  # type: ignore[method-assign]
        self.house.wait(cutter.UNAVAILABLE)
        self.assertEqual(self.house.titles("/events/pings/recent"), ["a"])


class BoundsTests(SynchronousTestCase):
    def house_with(self, per_document: int, options: EventsOptions | None = None) -> EventsHouse:
        house = EventsHouse(self, options, per_document=per_document)
        house.start()
        return house

    def sweep(self, house: EventsHouse) -> None:
        house.wait(3600.0)
        house.wait()

    def test_old_entries_are_removed_in_whole_documents(self) -> None:
        house = self.house_with(2, EventsOptions(days=10, pings_days=1))
        now = house.clock.wall_seconds()
        for number in range(5):
            house.change(f"http://{number}.example/", at=now - 20 * DAY)
        house.ping("a", "b", "c", at=now - 2 * DAY)
        house.wait()
        self.assertEqual(house.ask("/events/documents/1").status, 200)
        self.sweep(house)
        gone = house.ask("/events/documents/2")
        self.assertEqual(gone.status, 410)
        self.assertIn("was removed", gone.text)
        self.assertEqual(house.titles("/events/recent"), ["http://4.example/"])
        self.assertEqual(house.titles("/events/pings/recent"), ["c"])
        self.assertEqual(house.ask("/events/pings/documents/1").status, 410)
        self.assertEqual(self.files(house.directory), [])

    def test_files_of_nodes_that_did_not_remove_the_entries(self) -> None:
        """Each node has a directory of its own, and one of them is the first to sweep."""
        house = self.house_with(1, EventsOptions(pings_days=1))
        now, of_first = house.clock.wall_seconds(), house.directory
        house.ping("a", "b", at=now - DAY + 600)
        for number in (1, 2):
            house.change("http://a.example/", at=now - 30 * DAY + 600 + number)
        house.wait()
        house.directory = FilePath(self.mktemp())
        first, second = house.door, house.new_door()
        second.startService()
        self.addCleanup(first.stopService)
        paths = ("/events/pings/documents/1", "/events/host?name=a.example&document=1")
        for path in paths:
            self.assertEqual(house.ask(path).status, 200)
        self.assertNotEqual(self.files(house.directory), [])
        self.sweep(house)
        house.wait(120)
        self.assertEqual([house.ask(path).status for path in paths], [410, 404])
        self.sweep(house)
        self.assertEqual(self.files(house.directory) + self.files(of_first), [])

    def files(self, directory: FilePath[str]) -> list[str]:
        return [each.path for each in directory.walk() if each.isfile()]

    def test_nothing_is_removed_that_is_kept_for_ever(self) -> None:
        house = self.house_with(1, EventsOptions(pings_days=0))
        house.change(at=1.0)
        house.change(at=2.0)
        house.ping("a", "b", at=1.0)
        self.sweep(house)
        self.assertEqual(len(house.all_titles("/events/recent")), 2)
        self.assertEqual(len(house.all_titles("/events/pings/recent")), 2)

    def test_contents_beyond_the_number_that_is_kept(self) -> None:
        kept = (KeptTopics("http://feeds.example/", entries=3),)
        house = self.house_with(2, EventsOptions(keep=kept))
        for number in range(8):
            house.change(content=Content(b"%d" % number, "text/plain"))
            house.wait()
        self.sweep(house)
        path = f"/events/topic?url={FEED}"
        documents = [house.ask(f"{path}&document={number}").status for number in (1, 2, 3, 4)]
        self.assertEqual(documents, [410, 410, 200, 200])

    def test_feeds_of_hosts_and_topics_that_have_been_quiet_for_long(self) -> None:
        house = self.house_with(1)
        old = house.clock.wall_seconds() - 40 * DAY
        for body in (b"1", b"2", b"3", b"4"):
            house.change("http://pushed.example/a", Content(body, "text/plain"), at=old)
            house.wait()
        self.sweep(house)
        for path in ("host?name=pushed.example", "topic?url=http://pushed.example/a"):
            self.assertEqual(house.ask(f"/events/{path}").status, 404)
        self.assertEqual(house.titles("/events/recent"), ["http://pushed.example/a"])

    def test_hosts_and_topics_beyond_the_limit(self) -> None:
        for name in ("MAX_HOSTS", "MAX_TOPICS"):
            self.patch(rows, name, 2)
        house, topic = self.house_with(1), "/events/topic?url=http://pushed.example"
        for number in (1, 2, 1, 3):
            for _ in "12":
                body = Content(b"x", "text/plain")
                house.change(f"http://pushed.example/{number}", body)
                house.change(f"http://{number}.example/")
            house.wait()
            self.assertEqual(house.ask(f"{topic}/1&document=1").status, 200)
        found = [house.ask(f"{topic}/{number}").status for number in (1, 2, 3)]
        self.assertEqual(found, [200, 404, 200])
        names = self.successResultOf(house.database.read(log.logs))
        hosts = [each.name for each in names if each.name.startswith("host:")]
        self.assertEqual(len(hosts), 2)

    def test_removal_waits_while_another_process_appends(self) -> None:
        house = self.house_with(1, EventsOptions(pings_days=1))
        house.ping("a", "b", at=1.0)
        house.wait()
        self.patch(log, "lock", lambda conn, name: None)
        self.sweep(house)
        self.assertEqual(len(house.all_titles("/events/pings/recent")), 2)

    def test_the_longest_prefix_counts(self) -> None:
        a, b = "http://a.example/", "http://b.example/"
        short, long = KeptTopics(a, days=1), KeptTopics(f"{a}b/", days=2)
        options = EventsOptions(keep=(short, long))
        for url, kept in ((f"{a}b/c", long), (f"{a}c", short), (b, KeptTopics(b))):
            self.assertEqual(options.kept(url), kept)


class BoundsInPortionsTests(BoundsTests):
    """What is removed is removed a row at a time."""

    def setUp(self) -> None:
        self.patch(pruning, "AT_ONCE", 1)


class NotifyingTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.house = EventsHouse(self)
        self.house.start()

    def test_subscribers_are_notified_at_most_every_few_seconds(self) -> None:
        self.house.ping("a")
        self.house.wait()
        self.assertEqual(self.house.published, ["/events/pings/recent"])
        for _ in range(4):
            self.house.change()
            self.house.wait()
        self.assertEqual(len(self.house.published), 1)
        for _ in range(13):
            self.house.wait(5)
            found = ["/events/recent", "/events/host?name=feeds.example"]
            self.assertEqual(self.house.published[1:], found)

    def test_subscribers_are_notified_of_the_last_entries_when_the_broker_stops(self) -> None:
        self.house.ping("a")
        self.house.wait()
        self.house.ping("b")
        self.house.wait()
        self.house.change()
        self.house.stop()
        self.assertEqual(self.house.published, ["/events/pings/recent"] * 2)

    def test_subscribers_get_the_recent_document(self) -> None:
        self.house.ping("a", "b", "c", "d")
        self.house.wait()
        (served,) = self.house.door.topics
        for path in ("/events/pings/recent", "/events/recent"):
            content = self.house.result(served.read(URL + path))
            self.assertEqual(content.body, self.house.ask(path).body)
            self.assertEqual(content.content_type, "application/atom+xml")
        for path in ("/events/pings/documents/1", "/events/nothing", "/events/topic?url=http://n/"):
            self.assertIsNone(self.house.result(served.read(URL + path)))

        # A document is a topic at the URL whose subscribers are notified.
        host = "/events/host?name=feeds.example"
        self.house.change()
        self.house.wait(5)
        self.assertIn(host, self.house.published)
        self.assertIsNotNone(self.house.result(served.read(URL + host)))
        others = f"{host}&x=1", "/events/host?name=FEEDS.example", "/events/x?name=feeds.example"
        for other in others:
            self.assertIsNone(self.house.result(served.read(URL + other)), other)

    def test_document_that_another_process_has_changed_is_read_anew(self) -> None:
        path = "/events/pings/recent"
        (here,) = self.house.door.topics
        self.house.stop()
        self.house.result(here.read(URL + path))
        self.house.new_door()
        self.house.ping("a")
        self.house.start()
        content = self.house.result(here.read(URL + path))
        self.assertEqual(content.body, self.house.ask(path).body)
