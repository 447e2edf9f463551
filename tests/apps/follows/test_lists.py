"""Followed lists are read again and again; each ping is taken in once, and gaps are filled."""

from __future__ import annotations

from email.utils import formatdate
from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.apps.follows.door import FollowsDoor
from rsscloud_broker.apps.follows.options import FollowsOptions, Source
from rsscloud_broker.config import ConfigError
from rsscloud_broker.config.building import build
from rsscloud_broker.errors import OutboundError, TooLarge, Unavailable
from rsscloud_broker.interfaces import IFrontDoor, OutboundRequest
from rsscloud_broker.model import Ping
from rsscloud_broker.model.shared import FollowedList
from rsscloud_broker.testing import front_door_parts, make_front_door_tests, reply
from rsscloud_broker.wire.change_list import Unit, archive_path, closing, opening, weblogs
from tests.apps.follows.intakes import HOUR, NOON, THERE, FollowsTestCase, a_ping

LIST, SHORT = f"{THERE}/changes.xml", f"{THERE}/shortChanges.xml"


def make_door(case: SynchronousTestCase) -> FollowsDoor:
    return FollowsDoor(FollowsOptions(), front_door_parts())


class FollowsContract(make_front_door_tests(make_door)):  # type: ignore[misc] # made at run time
    """It is a front door as all others are, though it has no routes."""

    def check_offers(self, door: IFrontDoor) -> None:
        """It calls others, and offers nothing."""


def a_list(*pings: Ping, at: float, unit: Unit = "minutes", exact: bool = True) -> bytes:
    document = opening(at, len(pings)) + weblogs(pings, at, unit) + closing(len(pings))
    return document if exact else document.replace(b" ts=", b" time=")


class OptionsTests(SynchronousTestCase):
    def test_faults_are_named(self) -> None:
        for key, options, reason in (
            ("sources", {"url": "there.example"}, "must begin with http:// or https://"),
            ("sources", {"url": ""}, "must not be empty"),
            ("sources", {"url": LIST, "unit": "hours"}, "must be one of 'minutes', 'seconds'"),
            ("sources", {"url": LIST, "archives": "/archives"}, "cannot be read"),
            ("sources", {"url": LIST, "every": 0.1}, "every"),
            ("sources", {"url": LIST, "catch_up_hours": 100}, "catch_up_hours"),
            ("feeds", {"url": "there.example"}, "must begin with http:// or https://"),
            ("feeds", {"url": LIST, "begin": "yesterday"}, "must be one of 'newest', 'oldest'"),
            ("feeds", {"url": LIST, "every": 0.0}, "every"),
            ("feeds", {"url": LIST, "catch_up_hours": 1000}, "catch_up_hours"),
        ):
            for given, said in (([options], reason), ([{"url": LIST}] * 2, "name each URL once")):
                with self.assertRaises(ConfigError) as caught:
                    build(FollowsOptions, {key: given}, "")
                self.assertIn(said, str(caught.exception))


class FollowsTests(FollowsTestCase):
    def start(self, url: str = LIST, **options: Any) -> FollowsDoor:
        return self.follow(FollowsOptions((Source(url, **options),)))

    def serve(self, url: str, *pings: Ping, **options: Any) -> None:
        at = options.pop("at", self.now())
        self.web.answers[url] = reply(200, a_list(*pings, at=at, **options), etag=f'"{at}"')

    def archive(self, hour: int, *pings: Ping) -> str:
        url = "/".join((THERE, *archive_path(hour)))
        self.serve(url, *pings, at=(hour + 1) * HOUR)
        return url

    def asked(self, url: str) -> list[OutboundRequest]:
        return [request for request in self.web.requests if request.url == url]

    def state(self, url: str = LIST) -> FollowedList:
        (found,) = self.successResultOf(self.store.followed_lists([url], 0.0))
        return found

    def test_pings_are_taken_in_once_with_their_origin(self) -> None:
        self.serve(LIST, a_ping(2, NOON - 60), a_ping(1, NOON - 120))
        self.start()
        self.assertEqual(self.intake.names, ["Blog 2", "Blog 1"])
        self.assertEqual(self.intake.pings[0][0].origin, THERE)
        self.serve(LIST, a_ping(3, NOON), a_ping(2, NOON - 60), a_ping(1, NOON - 120))
        self.clock.advance(70)
        self.assertEqual(self.intake.names, ["Blog 2", "Blog 1", "Blog 3"])
        self.assertEqual((self.counted("taken"), self.counted("known")), (3, 0))

    def test_charset_of_the_answer(self) -> None:
        """Old ping servers declare it there, and not in the list."""
        document = '<weblogUpdates><weblog name="Caf\xe9" url="http://a.example/" when="0"/>'
        self.web.answers[LIST] = reply(
            200,
            f"{document}</weblogUpdates>".encode("latin-1"),
            content_type="text/xml; charset=ISO-8859-1",
        )
        self.start()
        self.assertEqual(self.intake.names, ["Caf\xe9"])

    def test_restart_repeats_nothing(self) -> None:
        self.serve(LIST, a_ping(1, NOON - 60))
        self.start().stopService()
        self.start()
        self.assertEqual(self.intake.names, ["Blog 1"])
        self.assertIn("if-none-match", self.asked(LIST)[1].headers)

    def test_lists_without_exact_times(self) -> None:
        for unit, seconds in (("minutes", 60), ("seconds", 1)):
            self.intake.pings.clear()
            url = f"{THERE}/{unit}.xml"
            ping = a_ping(1, NOON - 130)
            self.serve(url, ping, at=NOON, unit=unit, exact=False)
            self.start(url, unit=unit)
            ((found, precision),) = self.intake.pings
            self.assertEqual(precision, seconds + 1)
            self.assertLess(abs(found.received_at - ping.received_at), seconds)
            for later in range(1, 5):  # the estimate moves, and the ping is the same
                self.serve(url, ping, at=NOON + later * 41, unit=unit, exact=False)
                self.clock.advance(70)
            self.assertEqual(self.intake.names, ["Blog 1"], unit)

    def test_archives_fill_a_gap(self) -> None:
        first = self.down_for(4, 0, 1, 2)
        with self.logged() as lines:
            self.start(archives=f"{THERE}/")
        self.assertEqual(self.intake.names, ["Blog 0", "Blog 99", "Blog 1", "Blog 2", "Blog 3"])
        expected = f"{LIST} was not read from 2026-09-29 12:00 to 15:16 UTC: its archives"
        self.assertIn(expected, "\n".join(lines))
        self.assertIsNone(self.state().missing_from)
        self.clock.advance(70)
        self.assertEqual(len(self.asked("/".join((THERE, *archive_path(first))))), 1)

    def test_hours_that_are_not_archived_yet_are_read_later(self) -> None:
        self.serve(SHORT, a_ping(0, NOON))
        self.start(SHORT, archives=THERE).stopService()
        self.clock.advance(1800)  # in the same hour
        self.serve(SHORT, a_ping(2, self.now()))
        self.serve(LIST, a_ping(2, self.now()), at=self.now())
        self.start(SHORT, archives=THERE)
        self.assertEqual(len(self.asked(LIST)), 1, "the longer list covers the gap")
        self.assertIsNone(self.state(SHORT).missing_from)
        self.stop()
        self.clock.advance(HOUR + 2400)  # to ten past two
        hour = int(NOON // HOUR)
        self.serve(SHORT, a_ping(5, self.now()))
        self.serve(LIST, a_ping(5, self.now()))
        self.archive(hour, a_ping(3, NOON + 3500))
        self.start(SHORT, archives=THERE)
        self.assertIn("Blog 3", self.intake.names)
        self.assertEqual(self.state(SHORT).missing_from, hour + 1, "it has no archive yet")
        self.archive(hour + 1, a_ping(4, NOON + HOUR + 5))
        self.clock.advance(70)
        self.assertIn("Blog 4", self.intake.names)
        self.assertIsNone(self.state(SHORT).missing_from)

    def test_hour_without_pings_has_no_archive(self) -> None:
        self.down_for(3)
        self.start(archives=THERE)
        self.assertEqual((self.state().missing_from, self.state().failures), (None, 0))

    def test_gap_without_archives_is_told(self) -> None:
        """As for a short list without a longer one."""
        for url, seconds in ((LIST, 3 * HOUR), (SHORT, 1800)):
            self.web.answers.clear()
            self.serve(url, a_ping(0, self.now()))
            self.start(url).stopService()
            self.clock.advance(seconds)
            self.serve(url, a_ping(1, self.now()))
            with self.logged() as lines:
                self.start(url)
            self.assertIn("may be missing", lines[-1])
            self.assertIn("no archives are configured for it", lines[-1])
            self.assertEqual(self.state(url).failures, 0)
            self.stop()

    def down_for(self, hours: int, *archived: int, **options: Any) -> int:
        """Read the list, and again after some hours, of which some have archives with a ping.

        :returns: the first of the hours.
        """
        first = int(NOON // HOUR)
        self.serve(LIST, a_ping(0, NOON - 60))
        self.start(archives=THERE, **options).stopService()
        self.clock.advance(hours * HOUR + 1000)
        for number in archived:
            self.archive(first + number, a_ping(number + 1, NOON + number * HOUR + 5))
        self.serve(LIST, a_ping(99, self.now() - 60))
        return first

    def pass_minutes(self, minutes: int) -> None:
        """Let time pass, while the list is new each minute."""
        for _ in range(minutes):
            self.serve(LIST, a_ping(99, self.now() - 60))
            self.clock.advance(60)

    def test_archive_that_cannot_be_read_holds_up_nothing_else(self) -> None:
        first = self.down_for(8, *range(1, 8))
        broken = "/".join((THERE, *archive_path(first)))
        self.web.answers[broken] = reply(500)
        with self.logged() as lines:
            self.start(archives=THERE)
            self.pass_minutes(120)
        self.assertEqual(len({name for name in self.intake.names if name[-2:] != "99"}), 8)
        self.assertIn(len(self.asked(LIST)), range(75, 130))
        self.assertIn(len(self.asked(broken)), range(4, 10), "its own pauses grow")
        (line,) = [line for line in lines if "cannot be read" in line]
        self.assertIn("the archive 2026/09/29/13.xml cannot be read: its server answered", line)
        self.assertEqual((self.state().failures, self.state().missing_from), (0, first))
        self.archive(first, a_ping(1, NOON + 5))
        self.pass_minutes(70)
        self.assertIn("Blog 1", self.intake.names)
        self.assertIsNone(self.state().missing_from)

    def test_archives_are_read_once_more_as_the_other_may_catch_up_too(self) -> None:
        first = self.down_for(4, 0)
        self.start(archives=THERE)
        self.assertIsNone(self.state().missing_from)
        self.assertEqual(self.intake.names, ["Blog 0", "Blog 99", "Blog 1"])
        late = [self.archive(first + n, a_ping(50 + n, NOON + n * HOUR + 9)) for n in range(3)]
        self.pass_minutes(14)
        self.assertNotIn("Blog 51", self.intake.names)
        self.pass_minutes(60)
        self.assertEqual({"Blog 50", "Blog 51", "Blog 52"} - set(self.intake.names), set())
        self.assertEqual([len(self.asked(url)) for url in late], [2, 2, 2], "and then no more")
        self.assertIsNone(self.state().missing_from)

    def test_hour_that_is_too_old_is_given_up(self) -> None:
        first = self.down_for(3, 1, 2, catch_up_hours=5)
        self.web.answers["/".join((THERE, *archive_path(first)))] = reply(200, b"<html/>")
        with self.logged() as lines:
            self.start(archives=THERE, catch_up_hours=5)
            self.pass_minutes(180)
        self.assertIsNone(self.state().missing_from)
        (line,) = [line for line in lines if "too old" in line]
        self.assertIn("archives could not be read until they were too old (1)", line)

    def test_archives_wait_for_as_long_as_their_server_asks(self) -> None:
        first = self.down_for(2)
        busy = "/".join((THERE, *archive_path(first)))
        self.web.answers[busy] = reply(503, b"", retry_after="3000")
        self.start(archives=THERE)
        self.pass_minutes(45)
        self.assertEqual(len(self.asked(busy)), 1)
        self.pass_minutes(10)
        self.assertEqual(len(self.asked(busy)), 2)

    def test_missing_hours_end_when_archives_are_configured_no_more(self) -> None:
        self.down_for(3)
        self.web.otherwise = reply(500)
        self.start(archives=THERE).stopService()
        self.assertIsNotNone(self.state().missing_from)
        self.start()
        self.assertIsNone(self.state().missing_from)

    def test_list_that_stayed_the_same_for_hours_has_no_gap(self) -> None:
        self.serve(LIST, a_ping(1, NOON))
        self.start(archives=THERE)
        self.web.answers[LIST] = reply(304)
        self.clock.pump([60.0] * 180)
        self.serve(LIST, a_ping(2, self.now()))
        self.clock.advance(70)
        self.assertEqual({request.url for request in self.web.requests}, {LIST})
        self.assertEqual(self.intake.names, ["Blog 1", "Blog 2"])

    def test_clock_that_is_set_back_hides_no_pings(self) -> None:
        self.serve(LIST, a_ping(1, NOON - 5), exact=False)
        self.start()
        self.clock.advance(70)
        back = self.now() - 3000
        self.serve(LIST, a_ping(2, back - 5), at=back, exact=False)
        self.clock.advance(70)
        self.assertEqual(self.intake.names, ["Blog 1", "Blog 2"])

    def test_server_whose_clock_is_ahead_is_told_once(self) -> None:
        ahead = 2.0 * HOUR
        with self.logged() as lines:
            for number in range(3):
                at = self.now() + ahead
                document = a_list(a_ping(number, at - 5), at=at)
                headers = {"date": formatdate(at, usegmt=True)}
                self.web.answers[LIST] = reply(200, document, **headers)
                if number:
                    self.clock.advance(70)
                else:
                    self.start()
        self.assertEqual(self.intake.names, ["Blog 0", "Blog 1", "Blog 2"])
        self.assertLess(max(ping.received_at for ping, _ in self.intake.pings), self.now())
        (line,) = lines
        self.assertIn("the clock of its server is 7200 s ahead of this one", line)

    def test_quiet_list_is_no_gap(self) -> None:
        self.serve(SHORT, a_ping(0, NOON))
        self.start(SHORT, archives=THERE)
        for _ in range(10):
            self.serve(SHORT)
            self.clock.advance(70)
        self.assertEqual({request.url for request in self.web.requests}, {SHORT})

    def test_nothing_older_than_allowed_is_taken_in(self) -> None:
        self.serve(LIST, a_ping(1, NOON - 60), a_ping(2, NOON - 2 * HOUR - 5))
        self.start(catch_up_hours=2)
        self.assertEqual(self.intake.names, ["Blog 1"])
        self.assertEqual(self.counted("too_old"), 1)

    def test_failures_are_told_once_and_the_pauses_grow(self) -> None:
        self.web.answers[LIST] = OutboundError("nobody is there")
        with self.logged() as lines:
            self.start()
            self.clock.pump([60.0] * 60)
        self.assertIn(len(self.asked(LIST)), range(5, 8))
        (line,) = lines
        self.assertIn(f"{LIST} cannot be followed: nobody is there; it is tried again", line)
        self.serve(LIST, a_ping(1, self.now()))
        with self.logged() as lines:
            self.clock.pump([60.0] * 70)
        self.assertEqual(lines[0], f"{LIST} can be read again.")
        self.assertEqual(self.intake.names, ["Blog 1"])
        self.assertEqual((self.state().failures, self.state().retry_at), (0, None))

    def test_retry_after_is_obeyed_after_a_restart_too(self) -> None:
        self.web.answers[LIST] = reply(503, b"", retry_after="1800")
        self.start().stopService()
        self.start()
        self.clock.advance(1700)
        self.assertEqual(len(self.asked(LIST)), 1)
        self.clock.advance(200)
        self.assertEqual(len(self.asked(LIST)), 2)

    def test_hostile_documents(self) -> None:
        for answer, reason in (
            (TooLarge("it has more than 5,242,880 bytes"), "follow shortChanges.xml instead"),
            (reply(200, b"<rss/>"), "its root element is 'rss'"),
            (reply(404), "status 404"),
        ):
            self.web.answers[LIST] = answer
            with self.logged() as lines:
                self.start().stopService()
            self.assertIn(reason, lines[0])
            self.successResultOf(self.store.record_followed(FollowedList(LIST), self.now()))
        self.assertEqual(self.intake.pings, [])

    def test_faulty_records_are_told_once(self) -> None:
        document = a_list(a_ping(1, NOON), at=NOON).replace(
            b"</weblogUpdates>", b'<weblog url="mailto:a" when="0"/></weblogUpdates>'
        )
        self.web.answers[LIST] = reply(200, document)
        with self.logged() as lines:
            self.start()
            self.clock.advance(70)
        (line,) = lines
        self.assertIn("1 of 2 records are left out; the first: line", line)
        self.assertEqual(self.intake.names, ["Blog 1"])

    def test_full_disk_loses_nothing(self) -> None:
        self.serve(LIST, a_ping(1, NOON))
        self.intake.failure = Unavailable("the disk is full")
        with self.logged() as lines:
            self.start()
        self.assertIn("cannot be followed: the disk is full", lines[0])
        self.intake.failure = None
        self.clock.advance(80)
        self.assertEqual(self.intake.names, ["Blog 1"])

    def test_goes_on_if_what_it_learned_cannot_be_stored(self) -> None:
        """Whatever the reason, and at whichever statement."""
        self.serve(LIST, a_ping(1, self.now()))
        self.start(every=10.0)
        real = self.store.record_followed
        for error in (Unavailable("no disk"), ZeroDivisionError()):
            self.web.answers[LIST] = reply(500)
            self.clock.pump([1.0] * 60)
            self.serve(LIST, a_ping(1, self.now()))
            self.patch(self.store, "record_followed", lambda *args, error=error: fail(error))
            self.clock.pump([1.0] * 900)
            self.patch(self.store, "record_followed", real)
            self.clock.pump([1.0] * 900)
            self.assertEqual(self.state().failures, 0)
            before = len(self.asked(LIST))
            self.clock.pump([1.0] * 60)
            self.assertGreater(len(self.asked(LIST)), before)
        self.flushLoggedErrors(ZeroDivisionError)

    def test_bug_at_the_start_is_not_the_end(self) -> None:
        self.serve(LIST, a_ping(1, self.now()))
        real = self.store.followed_lists
        self.patch(self.store, "followed_lists", lambda *args: fail(ZeroDivisionError()))
        self.start()
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.patch(self.store, "followed_lists", real)
        self.clock.pump([1.0] * 20)
        self.assertEqual(len(self.asked(LIST)), 1)

    def test_stops_in_the_middle_of_a_read(self) -> None:
        self.web.answers[LIST] = waiting = Deferred[Any]()
        door = self.start()
        door.stopService()
        self.assertTrue(waiting.called)
        self.clock.advance(1000)
        self.assertEqual(len(self.asked(LIST)), 1)
