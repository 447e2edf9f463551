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

    def test_seconds(self) -> None:
        table: tuple[tuple[str, float | None, dict[str, str]], ...] = (
            ("nothing is said", None, {}),
            ("nothing of that", None, {"cache-control": "public", "date": date(0), "age": "5"}),
            ("no number", None, {"cache-control": "max-age=soon"}),
            ("less than none", None, {"cache-control": "max-age=-1"}),
            ("without a number", None, {"cache-control": "max-age"}),
            ("a number of seconds", 600, {"cache-control": "max-age=600"}),
            ("in capitals", 600, {"cache-control": 'public , Max-Age = "600", must-revalidate'}),
            ("the first counts", 600, {"cache-control": "max-age=600, max-age=7"}),
            ("rather than a date", 600, {"cache-control": "max-age=600", "expires": date(5)}),
            ("none, too", 0, {"cache-control": "max-age=0", "expires": date(500)}),
            ("very many", MAX_SECONDS, {"cache-control": f"max-age={10**40}"}),
            ("a shared cache has its own", 60, {"cache-control": "max-age=600, s-maxage=60"}),
            ("not to be kept", 0, {"cache-control": "no-store, max-age=600"}),
            ("not without asking", 0, {"cache-control": "no-cache", "expires": date(600)}),
            ("but a header", 600, {"cache-control": 'no-cache="set-cookie, x", max-age=600'}),
            ("until a date", 600, {"expires": date(600)}),
            ("from now", 600, {"expires": date(600), "date": date(0)}),
            ("it has passed", 0, {"expires": date(-600)}),
            # Only the difference between the dates of the server counts.
            ("its clock is an hour fast", 600, {"expires": date(4200), "date": date(3600)}),
            ("no date", 0, {"expires": "0"}),
            ("another", 0, {"expires": "tomorrow"}),
            ("no date of the answer", 600, {"expires": date(600), "date": "today"}),
            ("it does not matter", 600, {"cache-control": "max-age=600", "date": "Sun, 99 Nov"}),
            ("its age is taken off", 500, {"cache-control": "max-age=600", "age": "100"}),
            ("by its date", 500, {"cache-control": "max-age=600", "date": date(-100)}),
            (
                *("the greater one", 400),
                {"cache-control": "max-age=600", "date": date(-100), "age": "200"},
            ),
            ("it is too old", 0, {"cache-control": "max-age=600", "age": "9999"}),
            ("no age", 600, {"cache-control": "max-age=600", "age": "young"}),
        )
        for why, seconds, headers in table:
            self.assertEqual(freshness(headers, NOW), seconds, why)

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
