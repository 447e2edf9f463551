"""Tests that parts are made once, when they are needed, and that circles are found."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.composition.part import CircularParts, part


class House:
    """Some parts."""

    def __init__(self) -> None:
        self.made: list[str] = []

    @part
    def roof(self) -> str:
        """What is on top."""
        return f"roof on {self.walls}"

    @part
    def walls(self) -> str:
        self.made.append("walls")
        return "walls"

    @part
    def egg(self) -> str:
        return self.hen

    @part
    def hen(self) -> str:
        return self.nest

    @part
    def nest(self) -> str:
        return self.hen

    @part
    def broken(self) -> str:
        raise ZeroDivisionError("too small")

    @part
    def on_it(self) -> str:
        return self.broken


class PartTests(SynchronousTestCase):
    def test_made_once_when_needed(self) -> None:
        house = House()
        self.assertEqual(house.made, [])
        self.assertEqual((house.roof, house.walls), ("roof on walls", "walls"))
        self.assertEqual(house.made, ["walls"])
        self.assertEqual(House().roof, "roof on walls")

    def test_of_the_class(self) -> None:
        self.assertEqual(House.roof.__doc__, "What is on top.")

    def test_circle(self) -> None:
        """It is named without the parts that only lead to it, and again at the next attempt."""
        house = House()
        for _ in range(2):
            error = self.assertRaises(CircularParts, lambda: house.egg)
            self.assertEqual(
                str(error),
                "these parts need each other: hen -> nest -> hen; give one of them a function that "
                "returns the next one",
            )

    def test_error_names_the_parts(self) -> None:
        error = self.assertRaises(ZeroDivisionError, lambda: House().on_it)
        self.assertEqual(
            error.__notes__,
            [
                "while making the part 'broken' of House",
                "while making the part 'on_it' of House",
            ],
        )
