"""Names with passwords that programs send with each request, and registrations of strangers."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.accounts.passwords import CheckedPasswords
from rsscloud_broker.errors import SignInFailed, TooMany
from rsscloud_broker.interfaces import Account, Caller, StoredPassword
from rsscloud_broker.testing import Clock
from tests.accounts.fixture import PASSWORD, PATIENT, QUICK
from tests.accounts.test_accounts import ATTACKER, HOME, NEW, AccountsTestCase


class PasswordsTestCase(AccountsTestCase):
    def by_password(
        self, name: str = "dave", password: str = PASSWORD, source: str = HOME
    ) -> Caller:
        found: Caller = self.result(self.accounts.caller_of_password(name, password, source))
        return found

    def refused(
        self, name: str = "dave", password: str = "wrong", source: str = HOME, **more: str
    ) -> Exception:
        asked = self.accounts.caller_of_password(name, password, source)
        error: Exception = self.error(asked, SignInFailed, TooMany)
        return error

    def compared(self) -> int:
        """How many slow hashes have been compared since the last call."""
        compared = self.house.hasher.compared
        self.house.hasher.compared = 0
        return compared


class CallerOfPasswordTests(PasswordsTestCase):
    def test_may_publish_and_nothing_else(self) -> None:
        for name in ("dave", "anna"):
            caller = self.by_password(name)
            self.assertEqual((caller.name, caller.scopes), (name, {"publish"}))
            self.assertEqual((caller.is_admin, caller.csrf, caller.session), (False, "", None))

    def test_right_password_is_hashed_slowly_once(self) -> None:
        for _ in range(3):
            self.by_password(" Dave")
        self.assertEqual(self.compared(), 1)

    def test_wrong_password_is_hashed_slowly_each_time(self) -> None:
        self.by_password()
        self.compared()
        for wrong in ("wrong", "wrong", "", f"{PASSWORD} "):
            self.assertIsInstance(self.refused(password=wrong), SignInFailed)
        self.assertEqual(self.compared(), 4)
        self.by_password()
        self.assertEqual(self.compared(), 0)

    def test_wrong_ones_get_the_same_answer_and_take_the_same_time(self) -> None:
        self.by_password()
        answers = set()
        for name, password in (("dave", "wrong"), ("nobody", PASSWORD), ("not a name", PASSWORD)):
            self.compared()
            error = self.refused(name, password)
            answers.add((type(error), str(error), self.compared()))
        self.assertEqual(len(answers), 1)

    def test_password_of_somebody_else(self) -> None:
        self.successResultOf(self.house.store.set_password("anna", self.house.hasher.hash(NEW)))
        self.by_password("dave")
        self.by_password("anna", NEW)
        self.refused("anna", PASSWORD)
        self.refused("dave", NEW)

    def test_changed_password_counts_at_once(self) -> None:
        self.by_password()
        caller = self.sign_in().caller
        self.result(self.accounts.change_password(caller, PASSWORD, NEW, HOME))
        self.refused(password=PASSWORD)
        self.by_password(password=NEW)

    def test_account_that_is_removed(self) -> None:
        """Another one of that name has an id of its own, and so the password is checked again."""
        self.by_password()
        store, stored = self.house.store, self.house.stored()
        self.successResultOf(store.remove_account("dave"))
        for password in ("wrong", PASSWORD):
            self.refused(password=password)
        self.successResultOf(store.add_account("dave", stored.hash, False, 1.0))
        self.compared()
        self.assertNotEqual(self.by_password().account.id, stored.account.id)
        self.assertEqual(self.compared(), 1)

    def test_forgotten_after_a_time_without_use(self) -> None:
        idle = self.options.session_idle
        for pause, slow in ((0.0, 1), (idle - 1, 0), (idle - 1, 0), (idle + 1, 1)):
            self.clock.advance(pause)
            self.by_password()
            self.assertEqual(self.compared(), slow, pause)

    def test_forgotten_at_the_end_of_a_session(self) -> None:
        passed = 0.0
        while passed < self.options.session_life:
            self.by_password()
            self.clock.advance(self.options.session_idle / 2)
            passed += self.options.session_idle / 2
        self.compared()
        self.by_password()
        self.assertEqual(self.compared(), 1)


class GuessingTests(PasswordsTestCase):
    """Attempts are limited as those to sign in; right passwords do not count."""

    options = QUICK

    def test_guesses(self) -> None:
        self.by_password()
        errors = [self.refused(source=f"198.51.100.{number}") for number in range(12)]
        self.assertIsInstance(errors[-1], TooMany)
        self.assertIsInstance(self.refused(source=ATTACKER), TooMany)
        for _ in range(30):  # who knows the password is not locked out
            self.by_password()

    def test_guesses_from_one_address(self) -> None:
        errors = [self.refused(f"nobody-{number}", source=ATTACKER) for number in range(11)]
        self.assertIsInstance(errors[-1], TooMany)
        self.by_password()

    def test_attempts_to_sign_in_count_too(self) -> None:
        while not isinstance(self.refused(source=ATTACKER), TooMany):
            pass
        self.clock.advance(1)
        error = AccountsTestCase.refused(self, source=ATTACKER)
        self.assertIsInstance(error, TooMany)


class CheckedPasswordsTests(SynchronousTestCase):
    def stored(self, number: int = 1, hashed: str = "slow hash") -> StoredPassword:
        return StoredPassword(Account(number, f"anna-{number}", False, 1.0), hashed)

    def test_is_bounded(self) -> None:
        checked = CheckedPasswords(PATIENT, Clock(), 2)
        for number in (1, 2, 3):
            checked.add(PASSWORD, self.stored(number))
        found = [checked.has(PASSWORD, self.stored(number)) for number in (1, 2, 3)]
        self.assertEqual(found, [False, True, True])

    def test_nothing_shows_the_password(self) -> None:
        checked = CheckedPasswords(PATIENT, Clock())
        checked.add(PASSWORD, self.stored())
        self.assertNotIn(PASSWORD, repr(vars(checked)) + repr(vars(checked._by_name)))
        other = CheckedPasswords(PATIENT, Clock())
        self.assertNotEqual(checked._digest("a", PASSWORD), other._digest("a", PASSWORD))

    def test_password_that_is_kept_elsewhere(self) -> None:
        clock = Clock()
        checked, stored = CheckedPasswords(PATIENT, clock), self.stored(hashed="")
        checked.add(PASSWORD, stored)
        for _ in range(2):
            self.assertTrue(checked.has(PASSWORD, stored))
            clock.advance(300.0 / 2)
        self.assertFalse(checked.has(PASSWORD, stored))
