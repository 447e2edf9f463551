"""Outlines as people type them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.apps.writing.model import InvalidPost, OutlineItem
from rsscloud_broker.apps.writing.outline import parse, write
from rsscloud_broker.apps.writing.rules import MAX_DEPTH, MAX_ITEMS

TYPED = """\
Three things about boats
  They float
    Most of them <https://example.org/sinking>
  They are expensive
Nothing else
"""
FLOAT = OutlineItem(
    "They float", items=(OutlineItem("Most of them", link="https://example.org/sinking"),)
)
READ = (
    OutlineItem("Three things about boats", items=(FLOAT, OutlineItem("They are expensive"))),
    OutlineItem("Nothing else"),
)

_words = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S"]), min_size=1).filter(
    lambda text: "<" not in text
)
_items = st.recursive(
    st.builds(OutlineItem, _words),
    lambda below: st.builds(OutlineItem, _words, items=st.lists(below, max_size=3).map(tuple)),
    max_leaves=20,
)


class OutlineTests(SynchronousTestCase):
    def test_lines_become_items(self) -> None:
        self.assertEqual(parse(TYPED), READ)
        self.assertEqual(write(READ), TYPED)

    def test_other_ways_to_indent(self) -> None:
        for text in (
            "a\n\tb\n\t\tc",
            "a\r\n  b\r\n    c\r\n",
            "a\n       b\n\n\n        c",
            "a\n b\n  c",
        ):
            self.assertEqual(write(parse(text)), "a\n  b\n    c\n", repr(text))
        # Back to a level that no line had: below the nearest line that is less indented.
        self.assertEqual(write(parse("a\n    b\n  c")), "a\n  b\n  c\n")
        self.assertEqual(write(parse("    a\nb")), "a\nb\n")
        self.assertEqual(parse(" \n\t\n"), ())

    def test_links(self) -> None:
        self.assertEqual(parse("<http://a.example/>"), (OutlineItem("", link="http://a.example/"),))
        for text in ("a <b>", "<javascript:alert(1)>", "x<http://a.example/>", "a <http://a b>"):
            self.assertEqual(parse(text), (OutlineItem(text),))

    def test_limits(self) -> None:
        stairs = "\n".join("  " * level + "x" for level in range(MAX_DEPTH))
        self.assertEqual(write(parse(stairs)), f"{stairs}\n")
        deeper = f"{stairs}\n{'  ' * MAX_DEPTH}x"
        self.assertIn("too deep", str(self.assertRaises(InvalidPost, parse, deeper)))
        deep = "\n".join(" " * level + "x" for level in range(4000))
        self.assertIn("too", str(self.assertRaises(InvalidPost, parse, deep)))
        many = "x\n" * (MAX_ITEMS + 1)
        self.assertIn("too many", str(self.assertRaises(InvalidPost, parse, many)))

    @given(st.lists(_items, max_size=4).map(tuple))
    def test_what_is_written_is_read_again(self, items: tuple[OutlineItem, ...]) -> None:
        self.assertEqual(parse(write(items)), items)
