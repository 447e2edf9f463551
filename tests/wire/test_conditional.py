"""Conditional requests, and whether a client has the present version of what it asks for."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.wire.conditional import ALWAYS, Condition, conditions, has_version

AT = 1_000_000_000
DATE = b"Sun, 09 Sep 2001 01:46:40 GMT"


def has(*tags: bytes, since: bytes | None = None, modified_at: int | None = AT) -> bool:
    """Whether a client with these headers has a version with two ETags."""
    return has_version(tags or None, since, (b'"a"', b'"a-gzip"'), modified_at)


class ConditionsTests(SynchronousTestCase):
    def test_as_they_came(self) -> None:
        self.assertEqual(conditions("", ""), {})
        both = {"if-none-match": '"a"', "if-modified-since": "yesterday"}
        self.assertEqual(conditions('"a"', "yesterday"), both)
        came = '"é"'.encode().decode("latin-1")
        self.assertEqual(conditions(came, ""), {"if-none-match": '"é"'})

    def test_what_cannot_be_sent_back(self) -> None:
        for bad in ('"\xa0"', '"\xe9"', '"\xc2\xa0"', "a\r\nb", "\x00", "x" * 1001):
            self.assertEqual(conditions(bad, "now"), {"if-modified-since": "now"}, bad)
            self.assertEqual(conditions('"a"', bad), {"if-none-match": '"a"'}, bad)


class HasVersionTests(SynchronousTestCase):
    def test_tags(self) -> None:
        for tags in ((b'"a"',), (b'W/"a-gzip"',), (b'"x", "a"',), (b'"x"', b'"a"'), (b" * ",)):
            self.assertTrue(has(*tags), tags)
        for tags in ((b'"x"',), (b"a",), (b"",), (b'"x", *',)):
            self.assertFalse(has(*tags, since=DATE), tags)

    def test_dates(self) -> None:
        self.assertTrue(has(since=DATE))
        self.assertTrue(has(since=DATE + b"; length=123"), "as browsers once sent it")
        self.assertFalse(has(since=DATE, modified_at=AT + 1))
        self.assertFalse(has(since=DATE, modified_at=None))
        for since in (b"yesterday", b"", None):
            self.assertFalse(has(since=since), since)

    def test_dates_in_the_future(self) -> None:
        for now, known in ((AT - 1, False), (AT - 0.5, True), (AT, True)):
            self.assertEqual(has_version(None, DATE, (), AT - 60, now), known)


class ConditionTests(SynchronousTestCase):
    """Of a file with the tag ``a``, or of none."""

    def test_each_header(self) -> None:
        date, before = DATE.decode(), "Sun, 09 Sep 2001 01:46:39 GMT"
        for condition, with_file, without in (
            (ALWAYS, True, True),
            (Condition(match="*"), True, False),
            (Condition(match='"x", "a"'), True, False),
            (Condition(match='W/"a-gzip"'), True, False),
            (Condition(match='"x", "-a"'), False, False),
            (Condition(match="a"), False, False),
            (Condition(none_match="*"), False, True),
            (Condition(none_match='"a-gzip"'), False, True),
            (Condition(none_match='"x"'), True, True),
            (Condition(unmodified_since=date), True, True),
            (Condition(unmodified_since=before), False, True),
            (Condition(unmodified_since="yesterday"), True, True),
            (Condition(match='"a"', unmodified_since=before), True, False),
        ):
            found = condition.holds("a", AT + 0.5), condition.holds(None, 0.0)
            self.assertEqual(found, (with_file, without), condition)
