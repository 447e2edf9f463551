"""Tests how the HTML of items is cleaned."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.apps.river.cleaning import MAX_CLEANED, MAX_HTML, safe_html


class SafeHTMLTests(SynchronousTestCase):
    def test_links_become_absolute(self) -> None:
        self.assertIn('src="http://a.example/b"', safe_html("<img src=b>", "http://a.example/"))

    def test_links_that_would_fill_the_memory_are_left_out(self) -> None:
        base = f"http://a.example/{'x' * 1990}/"
        html = "<p>Hi</p>" + "<img src=a>" * (MAX_HTML // 11)
        self.assertEqual(safe_html(html, base), "Hi")
        self.assertLessEqual(len(safe_html("<a href=b>x</a>" * 10_000, base)), MAX_CLEANED)
