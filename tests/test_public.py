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

    def check(self, kind: str) -> None:
        record = recorded(kind).read_text(encoding="utf-8").splitlines()
        now = found(kind).splitlines()
        changes = [*unified_diff(record, now, "recorded", "now", lineterm="", n=0)]
        self.assertEqual([], changes, "\n".join([f"{kind} {_RULE}", *changes]))


for _kind in KINDS_OF_RECORDS:
    setattr(PublicTests, f"test_{_kind}", lambda self, kind=_kind: self.check(kind))
