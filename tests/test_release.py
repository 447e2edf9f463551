"""Tests of what ``release`` keeps, which ``make dist`` and ``make deb`` use.

These targets try the rest themselves, for they take minutes.
"""

from __future__ import annotations

import re
from pathlib import Path

from packaging.requirements import Requirement
from twisted.trial.unittest import SynchronousTestCase

from tests import oldest

TOP = Path(__file__).parents[1]


class LockTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.text = (TOP / "release" / "requirements.txt").read_text(encoding="utf-8")
        self.versions = dict(re.findall(r"(?m)^([a-z0-9-]+)==(\S+)", self.text))

    def test_has_what_the_broker_needs(self) -> None:
        """After a change of a bound, ``make lock`` may be due."""
        needed = oldest.requirements()
        self.assertGreater(len(needed), 15)
        for line in needed:
            requirement = Requirement(line)
            version = self.versions[requirement.name.replace(".", "-")]
            self.assertIn(version, requirement.specifier, f"{line}: run make lock")

    def test_each_has_hashes_and_none_a_place(self) -> None:
        blocks = re.split(r"(?m)^(?=\S)", self.text)[1:]
        self.assertEqual(len(blocks), len(self.versions))
        for block in blocks:
            self.assertIn("--hash=sha256:", block)
        for word in ("://", "--index", "--find", "@"):
            self.assertNotIn(word, self.text)


class OldestTests(SynchronousTestCase):
    def test_each_is_one_version(self) -> None:
        found = [Requirement(line) for line in oldest.oldest()]
        self.assertEqual(len(found), len(oldest.requirements()))
        for requirement in found:
            self.assertRegex(str(requirement.specifier), r"^==[\d.]+$")
        self.assertIn("psycopg", {requirement.name for requirement in found})
