"""The origin of a ping: which brokers it has passed, and what is believed of that."""

from __future__ import annotations

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.model import Ping
from rsscloud_broker.wire import origin as codec

NOON = 1_790_683_200.0
FIRST, SECOND = "http://first.example", "http://second.example:5337"


class ReadOriginTests(SynchronousTestCase):
    def test_brokers_in_their_order(self) -> None:
        self.assertEqual(codec.read_origin(""), "")
        self.assertEqual(codec.read_origin(f" {FIRST}, {SECOND} "), f"{FIRST} {SECOND}")

    def test_faults(self) -> None:
        for text, reason in (
            ("varnish", "not the URL of a broker"),
            ("javascript:alert(1)", "not the URL of a broker"),
            ("http://b\u00e4.example", "not the URL of a broker"),
            (FIRST + "/" * 2048, "characters"),
            (" ".join([FIRST] * (codec.MAX_BROKERS + 1)), "seems to go round"),
        ):
            error = self.assertRaises(codec.BadOrigin, codec.read_origin, text)
            self.assertIn(reason, str(error))
        self.assertEqual(
            len(codec.read_origin(" ".join([FIRST] * codec.MAX_BROKERS)).split()), codec.MAX_BROKERS
        )


class HasPassedTests(SynchronousTestCase):
    def test_any_url_of_the_broker_names_it(self) -> None:
        origin = f"{FIRST} {SECOND}"
        for url in (f"{FIRST}/RPC2", "https://FIRST.example./x", f"{SECOND}/RPC2"):
            self.assertTrue(codec.has_passed(origin, url), url)
        for hosts in ("second.example", "first.example:5337", "third.example"):
            self.assertFalse(codec.has_passed(origin, f"http://{hosts}/"), hosts)
        for passed, url in (("", FIRST), (FIRST, ""), ("http://x.example:99999", FIRST)):
            self.assertFalse(codec.has_passed(passed, url))

    def test_site(self) -> None:
        self.assertEqual(codec.site_of(f"{SECOND}/deep/changes.xml?a=b"), SECOND)
        self.assertEqual(codec.site_of("http://me:secret@first.example/x"), FIRST)


class PassageTests(SynchronousTestCase):
    PING = Ping("A", "http://a.example/", NOON)

    def test_headers_say_what_is_read(self) -> None:
        made = evolve(self.PING, received_at=NOON - 5.25, origin=FIRST)
        headers = codec.headers_of(made, SECOND)
        passage = codec.Passage(
            codec.read_origin(headers["ping-via"]), codec.read_time(headers["ping-time"])
        )
        self.assertEqual(passage.origin, codec.extended(FIRST, SECOND))
        self.assertEqual(passage.of(self.PING).received_at, NOON - 5.25)
        self.assertEqual(passage.of(self.PING).origin, f"{FIRST} {SECOND}")

    def test_broker_without_a_name_says_nothing(self) -> None:
        self.assertEqual(codec.headers_of(self.PING, ""), {})

    def test_only_times_of_the_last_hour_are_believed(self) -> None:
        for age, believed in ((-1, 0), (1, 1), (3600.0 - 1, 3600.0 - 1), (3600.0 + 1, 0)):
            found = codec.Passage(FIRST, NOON - age).of(self.PING)
            self.assertEqual(found.received_at, NOON - believed)

    def test_time_alone_is_not_believed(self) -> None:
        self.assertEqual(codec.Passage("", NOON - 60).of(self.PING), self.PING)

    def test_times(self) -> None:
        self.assertEqual(codec.read_time("2026-09-29T12:00:00Z"), NOON)
        self.assertEqual(codec.read_time("2026-09-29T12:00:00.5Z"), NOON + 0.5)
        for text in ("", "now", "2026-13-29T12:00:00Z", "2026-09-29T12:00:00", "2026-09-29"):
            self.assertIsNone(codec.read_time(text), text)
