"""Nothing that others rely on changes by accident."""

from __future__ import annotations

from difflib import unified_diff

from twisted.trial.unittest import SynchronousTestCase

from tests.public import KINDS_OF_RECORDS, found, recorded

_RULE = """is not what tests/fixtures/public has.

If the change is meant, add a news fragment, and record it by python -m tests.public.  Once there is
a release, any version may add something, but only the next major one may rename, remove or restrict
something: see docs/operating/versions.rst.
"""


class PublicTests(SynchronousTestCase):
    maxDiff = None

    def test_nothing_has_changed(self) -> None:
        for kind in KINDS_OF_RECORDS:
            record = recorded(kind).read_text(encoding="utf-8").splitlines()
            changes = [*unified_diff(record, found(kind).splitlines(), lineterm="", n=0)]
            self.assertEqual([], changes, "\n".join([f"{kind} {_RULE}", *changes]))
