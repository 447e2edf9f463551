"""Signing in and out, sessions, passwords and API tokens, and what an attacker meets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import evolve
from sqlalchemy import select
from twisted.internet.defer import Deferred, fail
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from rsscloud_broker.accounts.accounts import MAX_TOKENS, TOUCH_EACH
from rsscloud_broker.accounts.secrets import digest_of
from rsscloud_broker.errors import InvalidAccount, SignInFailed, TooMany, Unavailable
from rsscloud_broker.interfaces import Caller, IAccounts, SignedIn, SignIn
from rsscloud_broker.interfaces.accounts import SCOPES
from rsscloud_broker.storage.operating_schema import secret as secret_table
from rsscloud_broker.testing.clock import About
from tests.accounts.fixture import PASSWORD, PATIENT, QUICK, AccountHouse

HOME, ATTACKER = "192.0.2.7", "198.51.100.9"
NEW = "another horse"


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
        attempt = SignIn(name, password, source, **more)
        signed_in: SignedIn = self.result(self.accounts.sign_in(attempt))
        return signed_in

    def add_token(
        self,
        caller: Caller,
        *scopes: str,
        days: int | None = None,
        password: str = PASSWORD,
    ) -> Any:
        """Make an API token: by default one for the metrics."""
        wanted = scopes or ("metrics",)
        return self.accounts.add_token(caller, "a script", wanted, days, password, HOME)

    def meanwhile(self, name: str, work: Callable[[], Any], *, first: bool = True) -> None:
        """Have something happen before or after each call of a method of the passwords."""
        call = getattr(self.house.passwords, name)

        async def slow(*args: str) -> Any:
            if first:
                await work()
            done = await call(*args)
            if not first:
                await work()
            return done

        self.patch(self.house.passwords, name, slow)

    def refused(
        self, name: str = "dave", password: str = "wrong", source: str = HOME, **more: str
    ) -> Exception:
        attempt = SignIn(name, password, source, **more)
        error: Exception = self.error(self.accounts.sign_in(attempt), SignInFailed, TooMany)
        return error

    def caller(self, secret: str) -> Any:
        return self.result(self.accounts.caller_of_session(secret))

    def change(self, caller: Any, old: str = PASSWORD, new: str = NEW, source: str = HOME) -> Any:
        return self.accounts.change_password(caller, old, new, source)


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
        names = ("dave", "nobody", "not a name", "", "da\0ve\udc80")
        errors = [self.refused(name, "wrong" if name == "dave" else PASSWORD) for name in names]
        self.assertEqual(len({(type(error), str(error)) for error in errors}), 1)

    def test_secrets_are_not_stored_and_not_shown(self) -> None:
        signed_in = self.sign_in()
        _, secret = self.result(self.add_token(signed_in.caller))
        query, database = select(secret_table), self.house.store._database
        rows = self.successResultOf(database.read(lambda conn: repr(conn.execute(query).all())))
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

    def test_account_that_changes_meanwhile(self) -> None:
        """A sign-in with the old password must not outlive the change."""
        store, new = self.house.store, self.house.hasher.hash(NEW)
        dave = self.house.stored().account
        changes: tuple[tuple[str, Callable[[], Any]], ...] = (
            ("another password", lambda: store.set_password("dave", new)),
            ("no account", lambda: store.remove_account("dave")),
        )
        for why, change in changes:
            self.meanwhile("check", change, first=False)
            self.assertIsInstance(self.refused(password=PASSWORD), SignInFailed, why)
            self.assertEqual(self.successResultOf(store.sessions(dave.id)), [], why)

    def test_refused_attempts_of_the_last_hour(self) -> None:
        self.sign_in()
        for name in ("dave", "no name"):
            self.refused(name)
        found = [(each.name, each.source) for each in self.accounts.refused_sign_ins()]
        self.assertEqual(found, [("dave", HOME), ("", HOME)])
        self.clock.advance(3700)
        self.assertEqual(self.accounts.refused_sign_ins(), [])


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
        error = self.refused("dave", PASSWORD, HOME)  # the right one is no way around
        self.assertIsInstance(error, TooMany)
        self.assertIn("for this name", str(error))
        self.assertEqual(self.sign_in(known=known).caller.name, "dave")
        self.assertIsNotNone(self.caller(session.secret))

    def test_who_is_over_the_limit_of_a_name_costs_no_read(self) -> None:
        self.guess("dave", 6)
        self.patch(self.house.store, "stored_password", None)
        self.assertIsInstance(self.refused("dave", source=HOME), TooMany)

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
        for number in range(5):
            self.error(self.change(caller, "wrong", source=f"198.51.100.{number}"), SignInFailed)
        error = self.error(self.change(caller, source="198.51.100.99"), TooMany)
        self.assertIn("in this session", str(error))
        self.assertEqual(self.sign_in().caller.name, "dave")

    def test_passwords_cannot_be_guessed_from_one_address_in_many_sessions(self) -> None:
        callers = [self.sign_in(source=f"192.0.2.{number}").caller for number in range(5)]
        for caller in callers:
            self.error(self.change(caller, "x", source=ATTACKER), SignInFailed)
        error = self.error(self.change(callers[0], source=ATTACKER), TooMany)
        self.assertIn("from your address", str(error))


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
        _, token = self.result(self.add_token(signed_in.caller))
        self.clock.advance(TOUCH_EACH + 1)
        for touch in ("touch_session", "touch_token"):
            self.patch(self.house.store, touch, lambda *_: fail(Unavailable("the disk is full")))
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
    def test_change(self) -> None:
        mine, elsewhere = self.sign_in(), self.sign_in()
        self.result(self.change(mine.caller))
        self.assertIsNotNone(self.caller(mine.secret))
        self.assertIsNone(self.caller(elsewhere.secret))
        self.assertIsInstance(self.refused(password=PASSWORD), SignInFailed)
        self.sign_in(password=NEW)

    def test_what_is_not_changed(self) -> None:
        caller = self.sign_in().caller
        self.error(self.change(caller, "wrong"), SignInFailed)
        error = self.error(self.change(caller, new="short"), InvalidAccount)
        self.assertIn("at least 10 characters", str(error))
        self.sign_in()

    def test_first_password(self) -> None:
        """Somebody who signed in by a link has no password, and sets one without an old one."""
        caller = self.sign_in().caller
        self.assertFalse(self.result(self.accounts.lacks_password(caller)))
        self.house.forget_password()
        self.assertTrue(self.result(self.accounts.lacks_password(caller)))
        add = self.add_token(caller, "publish", password="")
        self.assertIn("set one first", str(self.error(add, InvalidAccount)))
        self.error(self.change(caller, old="", new="short"), InvalidAccount)
        self.house.clock.advance(3600.0)
        self.assertIn("by a new link", str(self.error(self.change(caller, old=""), InvalidAccount)))
        assert caller.session is not None
        now = self.house.clock.wall_seconds()
        caller = evolve(caller, session=evolve(caller.session, created_at=now))
        self.result(self.change(caller, old=""))
        self.sign_in(password=NEW)
        self.error(self.change(caller, old="", new="one more horse"), SignInFailed)

    def test_first_passwords_of_two_sessions(self) -> None:
        """The first one counts, and has ended the session that sets the second one."""
        caller, other = (self.sign_in().caller for _ in range(2))
        self.house.forget_password()
        hashing, make = Deferred[None](), self.house.passwords.hash
        self.meanwhile("hash", lambda: hashing)
        late = Deferred.fromCoroutine(self.change(other, old="", new="one more horse"))
        self.patch(self.house.passwords, "hash", make)
        self.result(self.change(caller, old=""))
        hashing.callback(None)
        self.assertIn("meanwhile", str(self.failureResultOf(late, InvalidAccount).value))
        self.sign_in(password=NEW)

    def test_session_that_is_ended_meanwhile(self) -> None:
        """Whoever is signed out while the new password is hashed sets none any more."""
        caller = self.sign_in().caller
        self.meanwhile("hash", lambda: self.accounts.end_sessions(caller))
        self.error(self.change(caller), InvalidAccount)
        self.sign_in()

    def test_password_that_is_kept_elsewhere(self) -> None:
        self.accounts._other_checkers = True
        caller = self.sign_in().caller
        self.house.forget_password()
        self.assertFalse(self.result(self.accounts.lacks_password(caller)))
        error = self.error(self.change(caller), InvalidAccount)
        self.assertIn("is not kept here", str(error))


class TokenTests(AccountsTestCase):
    def add(self, name: str = "dave", *scopes: str, days: int | None = None) -> Any:
        return self.result(self.add_token(self.sign_in(name).caller, *scopes, days=days))

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
            self.error(self.add_token(anna, scope), InvalidAccount)

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
            self.error(self.add_token(caller, "admin", password=wrong), SignInFailed)
        self.assertEqual(self.result(self.accounts.tokens(caller)), [])

    def test_session_that_is_ended_meanwhile(self) -> None:
        """Whoever is signed out while the password is checked gets no token any more."""
        caller = self.sign_in().caller
        self.meanwhile("check", lambda: self.accounts.end_sessions(caller))
        error = self.error(self.add_token(caller, "publish"), InvalidAccount)
        self.assertIn("has ended", str(error))
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
            self.result(self.add_token(caller))
        error = self.error(self.add_token(caller), InvalidAccount)
        self.assertIn("at most 50 tokens", str(error))
