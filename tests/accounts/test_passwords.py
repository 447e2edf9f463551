"""The hashing and checking of passwords."""

from __future__ import annotations

from attrs import evolve
from twisted.internet.defer import Deferred, execute
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from rsscloud_broker.accounts import Hasher, Passwords, check_password, passwords
from rsscloud_broker.accounts.passwords import MAX_BYTES, MAX_WAITING, is_too_long
from rsscloud_broker.config import AccountsConfig as AccountOptions
from rsscloud_broker.errors import InvalidAccount, TooMany
from rsscloud_broker.interfaces import IPasswords
from tests.accounts.fixture import PASSWORD, QUICK, AccountHouse


class RulesTests(SynchronousTestCase):
    def refused(self, password: str) -> str:
        return str(self.assertRaises(InvalidAccount, check_password, password, "dave", 10))

    def test_good_passwords(self) -> None:
        for password in (PASSWORD, "пароль-пароль", "🐴🔋🖇✅🐎🔩🌲🏔🗝🧭", "1234567890"):
            check_password(password, "dave", 10)

    def test_bad_passwords(self) -> None:
        self.assertIn("at least 10 characters", self.refused("ninechars"))
        self.assertIn("1024 bytes", self.refused("a b c d" * MAX_BYTES))
        for password in ("aaaaaaaaaaaaaaa", "davedavedave", "Dave-Dave-Dave", "dave123dave1"):
            self.assertIn("too easy to guess", self.refused(password))


class HasherTests(SynchronousTestCase):
    hasher = Hasher(QUICK)

    def test_argon2id_with_the_parameters_of_the_configuration(self) -> None:
        for options, said in (
            (QUICK, "$argon2id$v=19$m=8192,t=3,p=4$"),
            (AccountOptions(), "$argon2id$v=19$m=65536,t=3,p=4$"),
        ):
            self.assertTrue(Hasher(options).hash(PASSWORD).startswith(said))

    def test_a_password_of_a_megabyte_is_wrong_at_once(self) -> None:
        """To normalise it would take minutes, while nothing else in the process goes on."""
        self.assertFalse(
            self.hasher.matches(self.hasher.hash(PASSWORD), "a" + "\u0301\u0316" * 500_000)
        )
        self.assertTrue(is_too_long("x" * (MAX_BYTES + 1)))

    def test_whether_one_is_too_long_is_asked_before_any_limit_and_normalises_nothing(self) -> None:
        self.patch(passwords, "_normal", None)
        self.assertFalse(is_too_long("\u0301\u0316" * (MAX_BYTES // 2)))

    def test_each_hash_has_a_salt_of_its_own(self) -> None:
        self.assertNotEqual(self.hasher.hash(PASSWORD), self.hasher.hash(PASSWORD))

    def test_matches(self) -> None:
        stored = self.hasher.hash(PASSWORD)
        self.assertFalse(self.hasher.matches(stored, PASSWORD + " "))
        for broken in ("", "x", stored[:-3], "$argon2id$", "\0"):
            self.assertFalse(self.hasher.matches(broken, PASSWORD), broken)
        for why, typed, typed_again in (
            ("the same", PASSWORD, PASSWORD),
            ("the same characters, in other ways", "cafe\u0301 au lait", "café au lait"),
            ("NULs", "\0" * 12, "\0" * 12),
            ("a replacement", "\ufffd", "\ufffd"),
            ("a lone surrogate", "\udc80 lone", "\udc80 lone"),
        ):
            self.assertTrue(self.hasher.matches(self.hasher.hash(typed), typed_again), why)


class PasswordsTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.house = AccountHouse(self)

    def check(self, name: str, password: str) -> bool:
        right: bool = self.house.result(self.house.passwords.check(name, password))
        return right

    def test_interface(self) -> None:
        self.assertTrue(verifyObject(IPasswords, self.house.passwords))

    def test_right_and_wrong(self) -> None:
        """One hash is compared for each attempt, so that the time tells nothing."""
        self.successResultOf(self.house.store.add_account("robot", "", False, 1.0))
        for name, password in (
            ("dave", PASSWORD),
            ("robot", ""),
            ("robot", "nobody has this password"),
            ("robot", PASSWORD),
            ("dave", "wrong"),
            ("dave", ""),
            ("nobody", PASSWORD),
            ("nobody", "nobody has this password"),
            ("not a name", "wrong"),
            ("", ""),
            ("da\0ve", PASSWORD),
            ("dave", "x" * 100_000),
        ):
            before = self.house.hasher.compared
            right = (name, password) == ("dave", PASSWORD)
            self.assertIs(self.check(name, password), right, name)
            self.assertEqual(self.house.hasher.compared - before, 1, name)

    def test_hashed_again_when_the_parameters_have_changed(self) -> None:
        before = self.house.stored().hash
        self.assertTrue(self.check("dave", PASSWORD))
        self.assertEqual(self.house.stored().hash, before)
        hasher = Hasher(evolve(QUICK, hash_memory_kib=16_384))
        stronger = Passwords(self.house.store, hasher, execute)
        self.assertFalse(self.house.result(stronger.check("dave", "wrong")))
        self.assertEqual(self.house.stored().hash, before)
        self.assertTrue(self.house.result(stronger.check("dave", PASSWORD)))
        self.assertIn("m=16384", self.house.stored().hash)
        self.assertTrue(self.check("dave", PASSWORD))

    def test_only_so_many_wait(self) -> None:
        waiting: list[Deferred[tuple[bool, str]]] = []

        def in_thread(*arguments: object) -> Deferred[tuple[bool, str]]:
            waiting.append(Deferred())
            return waiting[-1]

        passwords = Passwords(self.house.store, Hasher(QUICK), in_thread)
        checks = [Deferred.fromCoroutine(passwords.check("dave", "x")) for _ in range(MAX_WAITING)]
        error = self.house.error(passwords.check("dave", "x"), TooMany)
        self.assertIn("too many people sign in at this moment", str(error))
        for one in waiting[:]:
            one.callback((False, ""))
        self.assertEqual([self.successResultOf(one) for one in checks], [False] * MAX_WAITING)
        self.assertNoResult(passwords.check("dave", "x"))
