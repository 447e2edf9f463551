"""HTTP dates, and the freshness of answers by their headers."""

from __future__ import annotations

from email.utils import formatdate

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.wire.http_dates import MAX_SECONDS, freshness, http_date

NOW = 784_111_777.0  # Sun, 06 Nov 1994 08:49:37 GMT


def date(seconds: float) -> str:
    """The HTTP date this many seconds from now."""
    return formatdate(NOW + seconds, usegmt=True)


class DateTests(SynchronousTestCase):
    """The three forms of HTTP dates, and texts in none of them."""

    def test_forms(self) -> None:
        usual, old = "Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT"
        for text in (usual, old, "Sun Nov  6 08:49:37 1994"):
            self.assertEqual(http_date(text), NOW, text)
        for text in ("", "0", "-1", "now", "Sun, 99 Nov 1994", "Sun, 06 Xyz 1994 08:49:37 GMT"):
            self.assertIsNone(http_date(text), text)

    @given(st.text(max_size=60) | st.from_regex(r"\w{3}, [0-9]+ Nov [0-9]+ [0-9:]+ [+A-Z0-9]+"))
    def test_any_text_is_a_date_or_none(self, text: str) -> None:
        self.assertIsInstance(http_date(text), float | None)


class FreshnessTests(SynchronousTestCase):
    """RFC 9111, section 4.2."""

    def check(self, expected: float | None, **headers: str) -> None:
        given_headers = {name.replace("_", "-"): text for name, text in headers.items()}
        self.assertEqual(freshness(given_headers, NOW), expected, headers)

    def test_nothing_is_said(self) -> None:
        self.check(None)
        self.check(None, cache_control="public", date=date(0), age="5")
        self.check(None, cache_control="max-age=soon")
        self.check(None, cache_control="max-age=-1")
        self.check(None, cache_control="max-age")

    def test_max_age(self) -> None:
        self.check(600, cache_control="max-age=600")
        self.check(600, cache_control='public , Max-Age = "600", must-revalidate')
        self.check(600, cache_control="max-age=600, max-age=7")
        self.check(600, cache_control="max-age=600", expires=date(5))
        self.check(0, cache_control="max-age=0", expires=date(500))
        self.check(MAX_SECONDS, cache_control=f"max-age={10**40}")

    def test_a_shared_cache_has_a_number_of_its_own(self) -> None:
        self.check(60, cache_control="max-age=600, s-maxage=60")

    def test_not_to_be_kept(self) -> None:
        self.check(0, cache_control="no-store, max-age=600")
        self.check(0, cache_control="no-cache", expires=date(600))
        self.check(600, cache_control='no-cache="set-cookie, x", max-age=600')

    def test_expires(self) -> None:
        self.check(600, expires=date(600))
        self.check(600, expires=date(600), date=date(0))
        self.check(0, expires=date(-600))
        # The server's clock is an hour fast, so only the difference between its dates counts.
        self.check(600, expires=date(4200), date=date(3600))

    def test_invalid_dates(self) -> None:
        self.check(0, expires="0")
        self.check(0, expires="tomorrow")
        self.check(600, expires=date(600), date="today")
        self.check(600, cache_control="max-age=600", date="Sun, 99 Nov")

    def test_age_is_taken_off(self) -> None:
        self.check(500, cache_control="max-age=600", age="100")
        self.check(500, cache_control="max-age=600", date=date(-100))
        self.check(400, cache_control="max-age=600", date=date(-100), age="200")
        self.check(0, cache_control="max-age=600", age="9999")
        self.check(600, cache_control="max-age=600", age="young")

    @given(
        st.dictionaries(
            st.sampled_from(("cache-control", "expires", "date", "age")),
            st.text(max_size=40)
            | st.sampled_from(("max-age=5", "no-cache", date(5), date(-5), "7", 'a="\\"')),
        )
    )
    def test_any_headers(self, headers: dict[str, str]) -> None:
        seconds = freshness(headers, NOW)
        self.assertTrue(seconds is None or 0 <= seconds <= MAX_SECONDS)
