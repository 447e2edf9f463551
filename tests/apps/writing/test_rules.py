"""What a message may be."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.apps.writing.model import InvalidPost, NewPost, OutlineItem
from rsscloud_broker.apps.writing.rules import MAX_DEPTH, MAX_ITEMS, check_and_tidy, graphemes, tidy

FAMILY = "👨‍👩‍👧‍👦"


def chain(depth: int) -> tuple[OutlineItem, ...]:
    """An outline with one item on each level."""
    items: tuple[OutlineItem, ...] = ()
    for number in range(depth):
        items = (OutlineItem(str(number), items=items),)
    return items


class RulesTests(SynchronousTestCase):
    def refusal(self, *args: object, most: int = 140, **more: object) -> str:
        new = NewPost(*args, **more)  # type: ignore[arg-type] # the test knows what it gives
        return str(self.assertRaises(InvalidPost, check_and_tidy, new, most))

    def test_characters_are_counted_as_people_do(self) -> None:
        for text, length in (
            *(("", 0), ("abc", 3), ("a\nb", 3), ("naïve", 5), ("nai\u0308ve", 5)),
            *(("🇩🇪🇫🇷", 2), (FAMILY, 1), ("นี่", 1)),
        ):
            self.assertEqual(graphemes(text), length, text)

    def test_the_longest_message(self) -> None:
        self.assertEqual(check_and_tidy(NewPost("x" * 140), 140).text, "x" * 140)
        self.assertEqual(check_and_tidy(NewPost(FAMILY * 140), 140).text, FAMILY * 140)
        said = "the message has one character too many: it has 141 and may have 140"
        self.assertIn(said, self.refusal("x" * 141))
        self.assertIn("has 2 characters too many", self.refusal(FAMILY * 142))
        self.assertIn("much too long", self.refusal("a" + "\u0301" * 100_000))
        self.assertIn("the title has 60 characters too many", self.refusal("", "t" * 200))

    def test_texts_are_tidied(self) -> None:
        self.assertEqual(tidy(" a\r\nb\rc\x00\ud800\x07 \n"), "a\nb\nc")
        self.assertEqual(tidy("a\n\n\n\n\nb\u2028c\td"), "a\n\nb\nc d")
        self.assertEqual(check_and_tidy(NewPost("  x ", " a\nb "), 9), NewPost("x", "a b"))

    def test_an_empty_message(self) -> None:
        self.assertIn("is empty", self.refusal(" \n", categories=("a",)))
        for new in (
            NewPost("", title="t"),
            NewPost("", link="http://a.example/"),
            NewPost("", items=(OutlineItem("x"),)),
        ):
            self.assertEqual(check_and_tidy(new, 140), new)

    def test_links_are_web_addresses(self) -> None:
        spaced = NewPost("x", link=" https://a.example/b ")
        self.assertEqual(check_and_tidy(spaced, 9).link, "https://a.example/b")
        for url in (
            *("javascript:alert(1)", "JAVASCRIPT:alert(1)", "java\tscript:alert(1)"),
            *("data:text/html,x", "//a.example/", "a.example", "http://", "http://a b/"),
        ):
            self.assertIn("the link is ", self.refusal("x", link=url))
            self.assertIn("the address of the enclosure", self.refusal("x", enclosure_url=url))
            items = (OutlineItem("y", link=url),)
            self.assertIn("the link of the item 'y'", self.refusal("x", items=items))
        self.assertIn("too long", self.refusal("x", link=f"http://a.example/{'x' * 2048}"))

    def test_categories(self) -> None:
        given = NewPost("x", categories=(" news ", "", "news", "a b", "ü"))
        self.assertEqual(check_and_tidy(given, 9).categories, ("news", "a b", "ü"))
        many = tuple(map(str, range(21)))
        self.assertIn("has 21 categories; it may have 20", self.refusal("x", categories=many))
        self.assertIn("60 characters", self.refusal("x", categories=("c" * 61,)))

    def test_outlines(self) -> None:
        given = (
            OutlineItem(" a ", items=(OutlineItem(""), OutlineItem("", items=(OutlineItem("b"),)))),
            OutlineItem("\n"),
        )
        expected = (OutlineItem("a", items=(OutlineItem("", items=(OutlineItem("b"),)),)),)
        self.assertEqual(check_and_tidy(NewPost("x", items=given), 9).items, expected)
        said = self.refusal("x", items=(OutlineItem("x" * 141),))
        self.assertIn(f"the item '{'x' * 30}' has one character too many", said)

    def test_the_deepest_and_the_largest_outline(self) -> None:
        deepest, largest = chain(MAX_DEPTH), tuple([OutlineItem("x")] * MAX_ITEMS)
        self.assertEqual(check_and_tidy(NewPost("x", items=deepest), 9).items, deepest)
        self.assertEqual(check_and_tidy(NewPost("x", items=largest), 9).items, largest)
        self.assertIn("too deep", self.refusal("x", items=chain(MAX_DEPTH + 1)))
        self.assertIn("too deep", self.refusal("x", items=chain(100_000)))
        self.assertIn("too many items", self.refusal("x", items=(*largest, OutlineItem("x"))))
