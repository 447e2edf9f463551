"""Signing in and out, sessions, passwords and API tokens, and what an attacker meets."""

from __future__ import annotations

from typing import Any
from unittest import mock

from attrs import evolve
from sqlalchemy import select
from twisted.internet.defer import Deferred, fail
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from rsscloud_broker.accounts.accounts import MAX_TOKENS, TOUCH_EACH
from rsscloud_broker.accounts.secrets import digest_of
from rsscloud_broker.errors import InvalidAccount, SignInFailed, TooMany, Unavailable
from rsscloud_broker.interfaces import IAccounts, SignedIn, SignIn
from rsscloud_broker.interfaces.accounts import SCOPES
from rsscloud_broker.storage.admin_schema import secret as secret_table
from rsscloud_broker.testing.clock import About
from tests.accounts.fixture import PASSWORD, PATIENT, QUICK, AccountHouse

HOME, ATTACKER = "192.0.2.7", "198.51.100.9"


class AccountsTestCase(SynchronousTestCase):
    options = PATIENT

    def setUp(self) -> None:
        self.house = AccountHouse(self, self.options)
        self.accounts = self.house.accounts
        self.clock = self.house.clock
        self.result, self.error = self.house.result, self.house.error

    def sign_in(
        self, name: str = "dave", password: str = PASSWORD, source: str = HOME, **more: str
    ) -> SignedIn:
        signed_in: SignedIn = self.result(
            self.accounts.sign_in(SignIn(name, password, source, **more))
        )
        return signed_in

    def refused(
        self, name: str = "dave", password: str = "wrong", source: str = HOME, **more: str
    ) -> Exception:
        attempt = SignIn(name, password, source, **more)
        error: Exception = self.error(self.accounts.sign_in(attempt), SignInFailed, TooMany)
        return error

    def caller(self, secret: str) -> Any:
        return self.result(self.accounts.caller_of_session(secret))


class SigningInTests(AccountsTestCase):
    def test_interface(self) -> None:
        self.assertTrue(verifyObject(IAccounts, self.accounts))

    def test_right_password(self) -> None:
        signed_in = self.sign_in()
        caller = self.caller(signed_in.secret)
        self.assertEqual((caller.name, caller.is_admin), ("dave", True))
        self.assertEqual(caller.scopes, SCOPES.keys())
        self.assertEqual(caller.csrf, signed_in.caller.csrf)
        anna = self.sign_in("anna").caller
        self.assertEqual((anna.is_admin, anna.scopes), (False, {"publish", "river"}))

    def test_names_as_people_type_them(self) -> None:
        self.assertEqual(self.sign_in(" Dave\t").caller.name, "dave")

    def test_wrong_ones_get_the_same_answer(self) -> None:
        answers = {
            (type(error), str(error))
            for error in (
                self.refused("dave", "wrong"),
                self.refused("nobody", PASSWORD),
                self.refused("not a name", PASSWORD),
                self.refused("", ""),
                self.refused("da\0ve\udc80", PASSWORD),
            )
        }
        self.assertEqual(len(answers), 1)

    def test_secrets_are_not_stored_and_not_shown(self) -> None:
        signed_in = self.sign_in()
        _, secret = self.result(
            self.accounts.add_token(signed_in.caller, "a script", {"metrics"}, None, PASSWORD, HOME)
        )
        rows = self.successResultOf(
            self.house.store._database.read(
                lambda conn: repr(conn.execute(select(secret_table)).all())
            )
        )
        shown = rows + repr(signed_in) + repr(SignIn("dave", PASSWORD, HOME))
        for hidden in (signed_in.secret, secret, PASSWORD, signed_in.caller.csrf, signed_in.known):
            self.assertNotIn(hidden, shown)

    def test_each_sign_in_has_a_session_of_its_own(self) -> None:
        """Nobody can prepare a session for somebody else (session fixation)."""
        first, second = self.sign_in(), self.sign_in()
        self.assertNotEqual(first.secret, second.secret)
        self.assertNotEqual(first.caller.csrf, second.caller.csrf)
        third = self.sign_in(former=first.secret)
        self.assertNotEqual(third.secret, first.secret)
        self.assertIsNone(self.caller(first.secret))
        self.assertIsNotNone(self.caller(second.secret))
        chosen = "a" * 43
        self.sign_in(former=chosen)
        self.assertIsNone(self.caller(chosen))

    def test_failed_attempt_keeps_the_session(self) -> None:
        first = self.sign_in()
        self.refused(former=first.secret)
        self.assertIsNotNone(self.caller(first.secret))

    def test_account_that_is_removed_meanwhile(self) -> None:
        async def removed(*args: object) -> bool:
            await self.house.store.remove_account("dave")
            return True

        self.patch(self.house.passwords, "check", removed)
        self.assertIsInstance(self.refused(password=PASSWORD), SignInFailed)

    def test_password_that_is_changed_meanwhile(self) -> None:
        """A sign-in with the old password must not outlive the change."""
        check = self.house.passwords.check
        new = self.house.hasher.hash("another horse")

        async def changed(name: str, password: str) -> bool:
            right = await check(name, password)
            await self.house.store.set_password("dave", new)
            return right

        self.patch(self.house.passwords, "check", changed)
        self.assertIsInstance(self.refused(password=PASSWORD), SignInFailed)
        dave = self.successResultOf(self.house.store.stored_password("dave"))
        assert dave is not None
        self.assertEqual(self.successResultOf(self.house.store.sessions(dave.account.id)), [])


class RefusedTests(SynchronousTestCase):
    def test_refused_attempts_of_the_last_hour(self) -> None:
        house = AccountHouse(self)
        for name, password in (("dave", PASSWORD), ("dave", "wrong"), ("no name", "x")):
            attempt = house.accounts.sign_in(SignIn(name, password, "192.0.2.7"))
            if password == PASSWORD:
                house.result(attempt)
            else:
                house.error(attempt, SignInFailed)
        found = [(each.name, each.source) for each in house.accounts.refused_sign_ins()]
        self.assertEqual(found, [("dave", "192.0.2.7"), ("", "192.0.2.7")])
        house.clock.advance(3700)
        self.assertEqual(house.accounts.refused_sign_ins(), [])


class AttackerTests(AccountsTestCase):
    """How often somebody may guess."""

    options = evolve(QUICK, attempts_per_source=0.025)

    def test_one_source(self) -> None:
        for number in range(5):
            self.assertIsInstance(self.refused(f"name-{number}"), SignInFailed)
        error = self.refused("another")
        assert isinstance(error, TooMany)
        self.assertIn("too many attempts to sign in from your address", str(error))
        self.assertIsInstance(self.refused(source=ATTACKER), SignInFailed)
        self.clock.advance(error.retry_after)
        self.assertIsInstance(self.refused("another"), SignInFailed)

    def test_one_network_of_ipv6(self) -> None:
        for number in range(5):
            self.refused(f"name-{number}", source=f"2001:db8::{number}")
        self.assertIsInstance(self.refused("another", source="2001:db8::99"), TooMany)
        self.assertIsInstance(self.refused("another", source="2001:db8:1::"), SignInFailed)

    def guess(self, name: str, number: int = 5, first: int = 0) -> list[type]:
        """Guess at an account, each time from another address."""
        return [
            type(self.refused(name, source=f"198.51.100.{first + each}")) for each in range(number)
        ]

    def test_one_account_from_many_sources(self) -> None:
        self.assertEqual(self.guess("dave", 6), [*[SignInFailed] * 5, TooMany])
        self.assertEqual(self.guess("anna", 1, first=6), [SignInFailed])

    def test_right_password_is_no_way_around(self) -> None:
        self.guess("dave")
        error = self.refused("dave", PASSWORD, HOME)
        self.assertIsInstance(error, TooMany)
        self.assertIn("for this name", str(error))

    def test_names_without_an_account_are_limited_alike(self) -> None:
        answers = []
        for first, name in ((0, "dave"), (100, "nobody")):
            self.guess(name, first=first)
            answers.append(str(self.refused(name, source=HOME)))
        self.assertEqual(*answers)

    def test_owner_signs_in_with_a_known_browser_meanwhile(self) -> None:
        known = self.sign_in().known
        session = self.sign_in(source="192.0.2.8")
        self.guess("dave", 20)
        self.assertIsInstance(self.refused("dave", PASSWORD, HOME), TooMany)
        self.assertEqual(self.sign_in(known=known).caller.name, "dave")
        self.assertIsNotNone(self.caller(session.secret))

    def test_known_browser_of_somebody_else(self) -> None:
        known = self.sign_in("anna").known
        self.guess("dave")
        self.assertIsInstance(self.refused("dave", PASSWORD, known=known), TooMany)
        self.assertIsInstance(self.refused("dave", PASSWORD, known="made.up"), TooMany)

    def test_known_browser_may_not_guess_for_ever_either(self) -> None:
        known = self.sign_in().known
        for number in range(5):
            self.refused("dave", source=f"192.0.2.{number}", known=known)
        self.assertIsInstance(self.refused("dave", source=ATTACKER, known=known), TooMany)

    def test_nobody_is_locked_out_for_good(self) -> None:
        self.guess("dave", 50)
        error = self.refused("dave", PASSWORD, HOME)
        assert isinstance(error, TooMany)
        self.assertLess(error.retry_after, 300)
        self.clock.advance(error.retry_after)
        self.assertEqual(self.sign_in().caller.name, "dave")

    def test_passwords_cannot_be_guessed_with_a_stolen_session(self) -> None:
        caller = self.sign_in().caller

        def change(old: str, source: str) -> Any:
            return self.accounts.change_password(caller, old, "a new password", source)

        for number in range(5):
            self.error(change("wrong", f"198.51.100.{number}"), SignInFailed)
        error = self.error(change(PASSWORD, "198.51.100.99"), TooMany)
        self.assertIn("in this session", str(error))
        self.assertEqual(self.sign_in().caller.name, "dave")

    def test_passwords_cannot_be_guessed_from_one_address_in_many_sessions(self) -> None:
        callers = [self.sign_in(source=f"192.0.2.{number}").caller for number in range(5)]
        new = "a new password"
        for caller in callers:
            self.error(self.accounts.change_password(caller, "x", new, ATTACKER), SignInFailed)
        work = self.accounts.change_password(callers[0], PASSWORD, new, ATTACKER)
        self.assertIn("from your address", str(self.error(work, TooMany)))


class SessionsTests(AccountsTestCase):
    def test_what_is_no_secret(self) -> None:
        for secret in ("", "x", "x" * 10_000, "ä", "\0"):
            self.assertIsNone(self.caller(secret))

    def test_ends_when_not_used(self) -> None:
        secret = self.sign_in().secret
        for _ in range(3):
            self.clock.advance(self.options.session_idle - 60)
            self.assertIsNotNone(self.caller(secret))
        self.clock.advance(self.options.session_idle)
        self.assertIsNone(self.caller(secret))

    def test_ends_in_any_case(self) -> None:
        signed_in = self.sign_in()
        steps = int(self.options.session_life / self.options.session_idle) * 2
        for _ in range(steps):
            self.assertIsNotNone(self.caller(signed_in.secret))
            self.clock.advance(self.options.session_idle / 2)
        self.clock.advance(self.options.session_idle / 2)
        self.assertIsNone(self.caller(signed_in.secret))
        self.assertGreaterEqual(self.clock.wall_seconds(), signed_in.expires_at)

    def test_use_is_stored_once_a_minute(self) -> None:
        signed_in = self.sign_in()
        used = []
        for _ in range(3):
            self.clock.advance(TOUCH_EACH / 2 + 1)
            self.caller(signed_in.secret)
            used.append(self.result(self.accounts.sessions(signed_in.caller))[0].used_at)
        self.assertEqual(len(set(used)), 2)

    def test_goes_on_while_nothing_can_be_stored(self) -> None:
        """That it was used is not worth an error."""
        signed_in = self.sign_in()
        _, token = self.result(
            self.accounts.add_token(signed_in.caller, "x", {"metrics"}, None, PASSWORD, HOME)
        )
        self.clock.advance(TOUCH_EACH + 1)
        for touch in ("touch_session", "touch_token"):
            self.patch(
                self.house.store, touch, lambda *arguments: fail(Unavailable("the disk is full"))
            )
        self.assertIsNotNone(self.caller(signed_in.secret))
        self.assertIsNotNone(self.result(self.accounts.caller_of_token(token)))

    def test_signing_out(self) -> None:
        first, second = self.sign_in(), self.sign_in()
        self.result(self.accounts.sign_out(first.secret))
        self.result(self.accounts.sign_out(first.secret))
        self.result(self.accounts.sign_out("no such secret"))
        self.assertIsNone(self.caller(first.secret))
        self.assertIsNotNone(self.caller(second.secret))

    def test_own_sessions(self) -> None:
        first = self.sign_in(browser="A\nBrowser" + "!" * 1000)
        self.clock.advance(self.options.session_idle + 1)
        second, other = self.sign_in(browser="B"), self.sign_in("anna")
        (listed,) = self.result(self.accounts.sessions(second.caller))
        self.assertEqual((listed.browser, listed.address), ("B", HOME))
        assert other.caller.session is not None
        end = self.accounts.end_session
        self.assertFalse(self.result(end(second.caller, other.caller.session.id)))
        self.assertTrue(self.result(end(second.caller, listed.id)))
        self.assertIsNone(self.caller(second.secret))
        self.assertIsNotNone(self.caller(other.secret))
        assert first.caller.session is not None
        self.assertEqual(first.caller.session.browser, ("A Browser" + "!" * 1000)[:200])

    def test_everywhere(self) -> None:
        signed_in = [self.sign_in() for _ in range(3)]
        other = self.sign_in("anna")
        self.assertEqual(self.result(self.accounts.end_sessions(signed_in[0].caller)), 3)
        self.assertEqual([self.caller(each.secret) for each in signed_in], [None] * 3)
        self.assertIsNotNone(self.caller(other.secret))


class PasswordTests(AccountsTestCase):
    NEW = "another horse"

    def change(self, caller: Any, old: str = PASSWORD, new: str = NEW) -> Any:
        return self.accounts.change_password(caller, old, new, HOME)

    def test_change(self) -> None:
        mine, elsewhere = self.sign_in(), self.sign_in()
        self.result(self.change(mine.caller))
        self.assertIsNotNone(self.caller(mine.secret))
        self.assertIsNone(self.caller(elsewhere.secret))
        self.assertIsInstance(self.refused(password=PASSWORD), SignInFailed)
        self.sign_in(password=self.NEW)

    def test_wrong_old_password(self) -> None:
        caller = self.sign_in().caller
        self.error(self.change(caller, "wrong"), SignInFailed)
        self.sign_in()

    def test_bad_new_password(self) -> None:
        caller = self.sign_in().caller
        error = self.error(self.change(caller, new="short"), InvalidAccount)
        self.assertIn("at least 10 characters", str(error))

    def test_first_password(self) -> None:
        """Somebody who signed in by a link has no password, and sets one without an old one."""
        caller = self.sign_in().caller
        self.assertFalse(self.result(self.accounts.lacks_password(caller)))
        self.successResultOf(self.house.store.rehash("dave", self.stored(), ""))
        self.assertTrue(self.result(self.accounts.lacks_password(caller)))
        add = self.accounts.add_token(caller, "x", {"publish"}, None, "", HOME)
        self.assertIn("set one first", str(self.error(add, InvalidAccount)))
        self.error(self.change(caller, old="", new="short"), InvalidAccount)
        self.house.clock.advance(3600.0)
        self.assertIn("by a new link", str(self.error(self.change(caller, old=""), InvalidAccount)))
        assert caller.session is not None
        now = self.house.clock.wall_seconds()
        caller = evolve(caller, session=evolve(caller.session, created_at=now))
        self.result(self.change(caller, old=""))
        self.sign_in(password=self.NEW)
        self.error(self.change(caller, old="", new="one more horse"), SignInFailed)

    def test_first_passwords_of_two_sessions(self) -> None:
        """The first one counts, and has ended the session that sets the second one."""
        caller, other = (self.sign_in().caller for _ in range(2))
        self.successResultOf(self.house.store.rehash("dave", self.stored(), ""))
        hashing, passwords = Deferred[None](), self.house.passwords
        make = passwords.hash

        async def slow(password: str) -> str:
            await hashing
            return await make(password)

        with mock.patch.object(passwords, "hash", slow):
            late = Deferred.fromCoroutine(self.change(other, old="", new="one more horse"))
        self.result(self.change(caller, old=""))
        hashing.callback(None)
        self.assertIn("meanwhile", str(self.failureResultOf(late, InvalidAccount).value))
        self.sign_in(password=self.NEW)

    def test_session_that_is_ended_meanwhile(self) -> None:
        """Whoever is signed out while the new password is hashed sets none any more."""
        caller, passwords = self.sign_in().caller, self.house.passwords
        make = passwords.hash

        async def slow(password: str) -> str:
            await self.accounts.end_sessions(caller)
            return await make(password)

        with mock.patch.object(passwords, "hash", slow):
            self.error(self.change(caller), InvalidAccount)
        self.sign_in()

    def test_password_that_is_kept_elsewhere(self) -> None:
        self.accounts._other_checkers = True
        caller = self.sign_in().caller
        self.successResultOf(self.house.store.rehash("dave", self.stored(), ""))
        self.assertFalse(self.result(self.accounts.lacks_password(caller)))
        error = self.error(self.change(caller), InvalidAccount)
        self.assertIn("is not kept here", str(error))

    def stored(self) -> str:
        stored = self.successResultOf(self.house.store.stored_password("dave"))
        assert stored is not None
        return stored.hash


class TokenTests(AccountsTestCase):
    def add(self, name: str = "dave", *scopes: str, days: int | None = None) -> Any:
        caller = self.sign_in(name).caller
        return self.result(
            self.accounts.add_token(
                caller, "a script", scopes or ("metrics",), days, PASSWORD, HOME
            )
        )

    def by_token(self, secret: str) -> Any:
        return self.result(self.accounts.caller_of_token(secret))

    def test_allows_what_its_scopes_say(self) -> None:
        _, secret = self.add("dave", "metrics")
        caller = self.by_token(secret)
        self.assertEqual((caller.name, caller.scopes), ("dave", {"metrics"}))
        self.assertEqual((caller.is_admin, caller.csrf, caller.session), (False, "", None))
        _, secret = self.add("dave", "admin")
        self.assertTrue(self.by_token(secret).is_admin)

    def test_is_no_session_and_the_other_way_round(self) -> None:
        _, secret = self.add()
        self.assertIsNone(self.caller(secret))
        self.assertIsNone(self.by_token(self.sign_in().secret))
        for nothing in ("", "rsb_", "x" * 10_000):
            self.assertIsNone(self.by_token(nothing))

    def test_others_get_fewer_scopes(self) -> None:
        anna = self.sign_in("anna").caller
        self.assertEqual(list(self.accounts.scopes_for(anna)), ["publish", "river"])
        self.assertEqual(self.accounts.scopes_for(self.sign_in().caller), SCOPES)
        for scope in ("admin", "metrics"):
            self.error(
                self.accounts.add_token(anna, "x", {scope}, None, PASSWORD, HOME), InvalidAccount
            )

    def test_scope_of_somebody_who_was_an_administrator(self) -> None:
        """A token that is stored with this scope gives nothing to an account without it."""
        store = self.house.store
        anna = self.sign_in("anna").caller.account
        digest = digest_of("rsb_x")
        self.successResultOf(store.add_token(anna.id, digest, "x", {"admin", "old"}, 1, None, 9))
        self.assertEqual(self.by_token("rsb_x").scopes, frozenset())

    def test_needs_the_password(self) -> None:
        caller = self.sign_in().caller
        for wrong in ("", "wrong"):
            add = self.accounts.add_token(caller, "x", {"admin"}, None, wrong, HOME)
            self.error(add, SignInFailed)
        self.assertEqual(self.result(self.accounts.tokens(caller)), [])

    def test_session_that_is_ended_meanwhile(self) -> None:
        """Whoever is signed out while the password is checked gets no token any more."""
        caller, passwords = self.sign_in().caller, self.house.passwords
        check = passwords.check

        async def slow(name: str, password: str) -> bool:
            await self.accounts.remove_tokens(caller)
            await self.accounts.end_sessions(caller)
            return await check(name, password)

        with mock.patch.object(passwords, "check", slow):
            add = self.accounts.add_token(caller, "x", {"publish"}, None, PASSWORD, HOME)
            self.assertIn("has ended", str(self.error(add, InvalidAccount)))
        self.assertEqual(self.result(self.accounts.tokens(caller)), [])

    def test_expires(self) -> None:
        token, secret = self.add(days=2)
        self.assertIsNotNone(self.by_token(secret))
        self.clock.advance(2 * 86_400)
        self.assertIsNone(self.by_token(secret))
        self.assertEqual(self.result(self.accounts.tokens(self.sign_in().caller)), [])
        self.assertIsNotNone(token.expires_at)

    def test_last_use_is_known(self) -> None:
        _, secret = self.add()
        caller = self.sign_in().caller
        (before,) = self.result(self.accounts.tokens(caller))
        self.by_token(secret)
        (after,) = self.result(self.accounts.tokens(caller))
        self.assertIsNone(before.used_at)
        self.assertEqual(About(self.clock.wall_seconds()), after.used_at)

    def test_removed(self) -> None:
        token, secret = self.add()
        remove = self.accounts.remove_token
        self.assertFalse(self.result(remove(self.sign_in("anna").caller, token.id)))
        self.assertIsNotNone(self.by_token(secret))
        self.assertTrue(self.result(remove(self.sign_in().caller, token.id)))
        self.assertIsNone(self.by_token(secret))

    def test_so_many(self) -> None:
        caller = self.sign_in().caller
        for _ in range(MAX_TOKENS):
            self.result(self.accounts.add_token(caller, "x", {"metrics"}, None, PASSWORD, HOME))
        error = self.error(
            self.accounts.add_token(caller, "x", {"metrics"}, None, PASSWORD, HOME), InvalidAccount
        )
        self.assertIn("at most 50 tokens", str(error))
