"""Accounts in memory for tests, with hashes that are quick to make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from argon2 import PasswordHasher
from attrs import evolve
from twisted.cred.checkers import ICredentialsChecker
from twisted.cred.portal import Portal
from twisted.internet.defer import execute
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.accounts import (
    AccountRealm,
    Accounts,
    AnyOf,
    Hasher,
    PasswordChecker,
    Passwords,
    digest_of,
    new_token,
)
from rsscloud_broker.config import AccountsConfig as AccountOptions
from rsscloud_broker.config import NoOptions
from rsscloud_broker.interfaces import Caller, CheckerParts, StoredPassword
from rsscloud_broker.policy.rate_limits import RateLimit
from rsscloud_broker.storage import AccountStore
from rsscloud_broker.testing import Clock
from rsscloud_broker.testing.memory import memory_accounts

#: Options with which a hash is made in some milliseconds.
QUICK = AccountOptions(hash_memory_kib=8192)

PASSWORD = "correct horse"


class CountingHasher(Hasher):
    """A hasher that counts the hashes that it compares; each is as quick as argon2id can be."""

    compared = 0

    def __init__(self) -> None:
        self._argon2 = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)

    def matches(self, stored: str, password: str) -> bool:
        self.compared += 1
        return super().matches(stored, password)


class AccountHouse:
    """Accounts with a store in memory, and a clock that the test moves.

    :param checkers: the checkers to ask; by default the one of the broker.
    :param store: by default one of its own.
    :ivar dave: an administrator's account.
    :ivar anna: another account.  Both have ``PASSWORD``.
    """

    def __init__(
        self,
        case: SynchronousTestCase,
        options: AccountOptions = QUICK,
        checkers: Sequence[ICredentialsChecker] | None = None,
        store: AccountStore | None = None,
    ) -> None:
        self._case = case
        self.options = options
        self.clock = Clock()
        self.store = store or memory_accounts()
        self.hasher = CountingHasher()
        self.passwords = Passwords(self.store, self.hasher, execute)
        parts = CheckerParts(self.passwords, self.clock, execute)
        own = [PasswordChecker(NoOptions(), parts)]
        realm = AccountRealm(self.store)
        burst = options.attempts_burst
        self.accounts = Accounts(
            self.store,
            Portal(realm, [AnyOf(own if checkers is None else checkers)]),
            self.passwords,
            self.clock,
            options,
            RateLimit(options.attempts_per_source, burst, self.clock).take,
            RateLimit(options.attempts_per_name, burst, self.clock).take,
        )
        now = self.clock.wall_seconds()
        for name, is_admin in (("dave", True), ("anna", False)):
            hashed = self.hasher.hash(PASSWORD)
            case.successResultOf(self.store.add_account(name, hashed, is_admin, now))

    def caller(self, name: str = "dave") -> Caller:
        """Somebody who has an account, and who may publish."""
        return Caller(self.stored(name).account, frozenset({"publish"}))

    def stored(self, name: str = "dave") -> StoredPassword:
        """An account, with the hash of its password."""
        stored = self._case.successResultOf(self.store.stored_password(name))
        assert stored is not None
        return stored

    def forget_password(self, name: str = "dave") -> None:
        """Leave an account without a password."""
        self._case.successResultOf(self.store.rehash(name, self.stored(name).hash, ""))

    def token(self, *scopes: str, name: str = "dave") -> str:
        """The secret of a new API token."""
        secret, now, owner = new_token(), self.clock.wall_seconds(), self.caller(name).account.id
        adding = self.store.add_token(owner, digest_of(secret), "a tool", scopes, now, None, 50)
        assert self._case.successResultOf(adding) is not None
        return secret

    def result(self, work: Any) -> Any:
        """The result of a coroutine that has nothing to wait for."""
        return self._case.successResultOf(work)

    def error(self, work: Any, *kinds: type[Exception]) -> Any:
        """The error that a coroutine raises."""
        return self._case.failureResultOf(work, *kinds).value


#: Options with which nobody has to wait after a few attempts.
PATIENT = evolve(QUICK, attempts_per_source=5.0)
