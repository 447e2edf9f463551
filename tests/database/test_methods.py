"""Operations that run for many callers at once."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.database.methods import in_turns


class TurnsTests(SynchronousTestCase):
    def turns(self, words: str) -> list[str]:
        return [" ".join(some) for some in in_turns(words.split(), lambda word: word.split("+"))]

    def test_what_differs_stands_together(self) -> None:
        self.assertEqual(self.turns("a b c"), ["a b c"])

    def test_what_has_a_common_key_does_not(self) -> None:
        self.assertEqual(self.turns("a b a c b a"), ["a b", "a c b", "a"])
        self.assertEqual(self.turns("a+b c b+d a"), ["a+b c", "b+d a"])

    def test_nothing(self) -> None:
        self.assertEqual(list(map(list, in_turns([], str.split))), [[]])
