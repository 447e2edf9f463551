"""Tests that the product and its manual use plain words, and one word for one thing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from lxml import html
from twisted.trial.unittest import TestCase

from rsscloud_broker.web.admin.operations import OPERATIONS

ROOT = Path(__file__).parents[1]

#: Words to avoid, and what to write instead.  Each is a pattern of whole words.
AVOIDED = {
    "at all attempts": "by any attempt",
    "for ever": "forever",
    "for want of": "for lack of",
    "heed(s|ed)?": "obey, respect",
    "its kin": "name what is meant",
    "lest": "so that ... not",
    "mend(s|ed|ing)?": "fix",
    "so many (bytes|seconds|times|characters)": "this many, or the number",
    "told|untold": "notified, answered, sent",
    "whoever": "anyone who, or the actor's name",
}


#: Words that strangers stumble over, and what pages for people say instead.
AVOIDED_ON_PAGES = {
    "breakers?": "the broker does not call a host",
    "drop(s|ped|ping)?": "remove",
    "fan-?outs?": "the subscribers are notified",
    "own topics": "feeds that are published here",
    "sinks?": "name what it does",
}


def on_pages(text: str) -> list[str]:
    """The words of a text that no page for people has."""
    pattern = re.compile(rf"\b({'|'.join(AVOIDED_ON_PAGES)})\b", re.IGNORECASE)
    return [found[0] for found in pattern.finditer(text)]


def lines() -> Iterator[tuple[str, str]]:
    """All lines of the product and of the manual, each with the place where it is."""
    paths = [ROOT / "README.rst", ROOT / "CONTRIBUTING.rst"]
    for directory, suffixes in (
        ("rsscloud_broker", {".py", ".html", ".toml", ".js"}),
        ("docs", {".rst"}),
    ):
        paths += [path for path in (ROOT / directory).rglob("*") if path.suffix in suffixes]
    for path in paths:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            yield f"{path.relative_to(ROOT)}:{number}", line


class WordsTests(TestCase):
    def test_plain_words(self) -> None:
        pattern = re.compile(rf"\b({'|'.join(AVOIDED)})\b", re.IGNORECASE)
        found = [f"{where}: {line.strip()}" for where, line in lines() if pattern.search(line)]
        advice = "; ".join(f"not {word!r}: {better}" for word, better in AVOIDED.items())
        self.assertEqual(found, [], f"Write plain words: {advice}")

    def test_templates_of_pages(self) -> None:
        for path in (ROOT / "rsscloud_broker").rglob("*.html"):
            text = " ".join(map(str, html.document_fromstring(path.read_bytes()).itertext()))
            self.assertEqual(on_pages(text), [], f"{path}: {AVOIDED_ON_PAGES}")

    def test_forms_of_administrators(self) -> None:
        for one in OPERATIONS:
            if one.form is not None:
                self.assertEqual(
                    on_pages(f"{one.form} {one.help}"), [], f"{one.name}: {AVOIDED_ON_PAGES}"
                )

    def test_lines_are_seen(self) -> None:
        self.assertGreater(sum(1 for _ in lines()), 50_000)
