"""The secrets of sessions and API tokens, and the marks of known browsers."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.accounts import secrets
from rsscloud_broker.errors import InvalidAccount


class SecretsTests(SynchronousTestCase):
    def test_secrets_differ(self) -> None:
        self.assertEqual(len({secrets.new_secret() for _ in range(100)}), 100)
        self.assertGreaterEqual(len(secrets.new_secret()), 43)  # 256 bits
        self.assertTrue(secrets.new_token().startswith("rsb_"))

    def test_digests(self) -> None:
        self.assertEqual(len(secrets.digest_of(secrets.new_secret())), 32)
        self.assertNotEqual(secrets.digest_of("a"), secrets.digest_of("b"))
        for text in ("", "x" * 201, "ä", "\udc80"):
            self.assertEqual(secrets.digest_of(text), b"")

    def test_tokens_of_forms_belong_to_a_session(self) -> None:
        self.assertEqual(secrets.csrf_of("a"), secrets.csrf_of("a"))
        self.assertNotEqual(secrets.csrf_of("a"), secrets.csrf_of("b"))
        self.assertNotIn("a" * 43, secrets.csrf_of("a" * 43))

    def test_marks_of_browsers(self) -> None:
        mark = secrets.mark_of("dave", "hash")
        self.assertEqual(secrets.known_browser(mark, "dave", "hash"), mark.partition(".")[0])
        self.assertNotEqual(mark, secrets.mark_of("dave", "hash"))
        for other, name, stored in (
            (mark, "anna", "hash"),
            (mark, "dave", "another hash"),
            (mark, "dave", ""),
            (secrets.mark_of("dave", ""), "dave", ""),
            (f"x{mark}", "dave", "hash"),
            (f"{mark}0", "dave", "hash"),
            ("", "dave", "hash"),
            (".", "dave", "hash"),
            ("ä.ä", "dave", "hash"),
            (f"{'x' * 300}.y", "dave", "hash"),
        ):
            self.assertEqual(secrets.known_browser(other, name, stored), "", other)

    def test_tokens(self) -> None:
        self.assertEqual(
            secrets.check_token(" a\nscript ", {"metrics"}, None, is_admin=False), "a script"
        )
        self.assertEqual(secrets.check_token("x", {"admin", "metrics"}, 3650, is_admin=True), "x")

    def test_bad_tokens(self) -> None:
        for name, scopes, days, said in (
            ("", {"metrics"}, None, "1 to 80 characters"),
            ("x" * 81, {"metrics"}, None, "1 to 80 characters"),
            ("x", set(), None, "needs a scope; the scopes are admin, metrics, publish, river"),
            ("x", {"metrics", "everything"}, None, "'everything' is no scope"),
            ("x", {"admin"}, None, "only the account of an administrator"),
            ("x", {"metrics"}, 0, "1 to 3650 days"),
            ("x", {"metrics"}, 3651, "1 to 3650 days"),
        ):
            error = self.assertRaises(
                InvalidAccount, secrets.check_token, name, scopes, days, is_admin=False
            )
            self.assertIn(said, str(error))
