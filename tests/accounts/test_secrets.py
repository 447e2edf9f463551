"""The secrets of sessions and API tokens, and the marks of known browsers."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.accounts.secrets import (
    check_token,
    csrf_of,
    digest_of,
    known_browser,
    mark_of,
    new_secret,
    new_token,
)
from rsscloud_broker.errors import InvalidAccount


class SecretsTests(SynchronousTestCase):
    def test_secrets_differ(self) -> None:
        self.assertEqual(len({new_secret() for _ in range(100)}), 100)
        self.assertGreaterEqual(len(new_secret()), 43)  # 256 bits
        self.assertTrue(new_token().startswith("rsb_"))

    def test_digests(self) -> None:
        self.assertEqual(len(digest_of(new_secret())), 32)
        self.assertNotEqual(digest_of("a"), digest_of("b"))
        for text in ("", "x" * 201, "ä", "\udc80"):
            self.assertEqual(digest_of(text), b"")

    def test_tokens_of_forms_belong_to_a_session(self) -> None:
        self.assertEqual(csrf_of("a"), csrf_of("a"))
        self.assertNotEqual(csrf_of("a"), csrf_of("b"))
        self.assertNotIn("a" * 43, csrf_of("a" * 43))

    def test_marks_of_browsers(self) -> None:
        mark = mark_of("dave", "hash")
        self.assertEqual(known_browser(mark, "dave", "hash"), mark.partition(".")[0])
        self.assertNotEqual(mark, mark_of("dave", "hash"))
        for other, name, stored in (
            (mark, "anna", "hash"),
            (mark, "dave", "another hash"),
            (mark, "dave", ""),
            (mark_of("dave", ""), "dave", ""),
            (f"x{mark}", "dave", "hash"),
            (f"{mark}0", "dave", "hash"),
            ("", "dave", "hash"),
            (".", "dave", "hash"),
            ("ä.ä", "dave", "hash"),
            (f"{'x' * 300}.y", "dave", "hash"),
        ):
            self.assertEqual(known_browser(other, name, stored), "", other)

    def test_tokens(self) -> None:
        self.assertEqual(check_token(" a\nscript ", {"metrics"}, None, is_admin=False), "a script")
        self.assertEqual(check_token("x", {"admin", "metrics"}, 3650, is_admin=True), "x")

    def test_bad_tokens(self) -> None:
        for name, scopes, days, said in (
            ("", {"metrics"}, None, "1 to 80 characters"),
            ("x" * 81, {"metrics"}, None, "1 to 80 characters"),
            ("x", set(), None, "a token needs a scope; the scopes are admin, metrics, river"),
            ("x", {"metrics", "everything"}, None, "'everything' is no scope"),
            ("x", {"admin"}, None, "only the account of an administrator"),
            ("x", {"metrics"}, 0, "1 to 3650 days"),
            ("x", {"metrics"}, 3651, "1 to 3650 days"),
        ):
            error = self.assertRaises(
                InvalidAccount, check_token, name, scopes, days, is_admin=False
            )
            self.assertIn(said, str(error))
