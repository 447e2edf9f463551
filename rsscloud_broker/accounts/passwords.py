"""Hashes passwords with argon2id (RFC 9106), checks them, and remembers which were right.

Hashing is slow and takes much memory on purpose, so it is done in a small pool of threads, and only
few passwords may wait for a thread.  A password is brought into Unicode's normal form NFKC first,
since keyboards produce the same character in several ways (NIST SP 800-63B, section 3.1.1.2).
"""

from __future__ import annotations

import hmac
import secrets
import unicodedata
from collections.abc import Awaitable, Callable
from functools import cached_property
from hashlib import blake2b
from typing import Any, Final

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from attrs import define, evolve, field, frozen
from zope.interface import implementer

from rsscloud_broker.accounts.names import is_name
from rsscloud_broker.config.accounts import AccountsConfig as AccountOptions
from rsscloud_broker.errors import InvalidAccount, TooMany
from rsscloud_broker.interfaces import IClock, IPasswords, StoredPassword
from rsscloud_broker.storage import AccountStore
from rsscloud_broker.util.caches import BoundedDict

#: The longest password in bytes.
MAX_BYTES: Final = 1024

#: How many passwords may be checked or wait for it; and after how many seconds somebody who is
#: refused for that may try again.
MAX_WAITING, PAUSE = 32, 5


def check_password(password: str, name: str, least: int) -> None:
    """Check whether a text can be the password of an account.

    :param least: how many characters it must have.
    :raises InvalidAccount: it is too short, too long, or contains too little but the name.
    """
    if len(password) < least:
        raise InvalidAccount(f"the password is too short: it needs at least {least} characters")
    if is_too_long(password) or len(_normal(password)) > MAX_BYTES:
        raise InvalidAccount(f"the password is too long: it may have {MAX_BYTES} bytes of UTF-8")
    if len(set(password.lower().replace(name, ""))) < 4:
        raise InvalidAccount(
            "the password is too easy to guess: beside the name of the account it needs at least "
            "four different characters"
        )


def is_too_long(password: str) -> bool:
    """Whether a text has more characters than any password has bytes.

    Check this first: normalising takes a time that grows with the square of the length.
    """
    return len(password) > MAX_BYTES


def _normal(password: str) -> bytes:
    """A password in NFKC, as bytes: what is hashed."""
    return unicodedata.normalize("NFKC", password).encode("utf-8", "replace")


#: Passes over the memory, and threads that hash one password: the second choice of RFC 9106,
#: section 4.
HASH_PASSES, HASH_LANES = 3, 4


class Hasher:
    """Hashes passwords, in the thread that calls it.  A hash tells its own parameters."""

    def __init__(self, options: AccountOptions) -> None:
        self._argon2 = PasswordHasher(
            time_cost=HASH_PASSES, memory_cost=options.hash_memory_kib, parallelism=HASH_LANES
        )

    @cached_property
    def of_nobody(self) -> str:
        """The hash of a password that nobody knows, for accounts that do not exist."""
        return self._argon2.hash(b"nobody has this password")

    def hash(self, password: str) -> str:
        """The hash of a password, with a new salt, in PHC string format."""
        return self._argon2.hash(_normal(password))

    def matches(self, stored: str, password: str) -> bool:
        """Whether a stored hash is that of a password."""
        if is_too_long(password):
            return False
        try:
            return self._argon2.verify(stored, _normal(password))
        except (VerificationError, InvalidHashError):
            return False

    def is_outdated(self, stored: str) -> bool:
        """Whether a stored hash was made with other parameters than those of the configuration."""
        return self._argon2.check_needs_rehash(stored)


@implementer(IPasswords)
@define(eq=False, slots=False)
class Passwords:
    """Checks passwords against the hashes in the store, and makes new hashes.

    :param in_thread: calls a function in one of the threads for hashing.
    """

    _store: AccountStore
    _hasher: Hasher
    _in_thread: Callable[..., Awaitable[Any]]
    _waiting: int = field(default=0, init=False)

    async def check(self, name: str, password: str) -> bool:
        """Whether a password is that of an account; an outdated hash of it is replaced."""
        known = await self._store.stored_password(name) if is_name(name) else None
        stored = known.hash if known else ""
        right, better = await self._call_in_thread(self._compare, stored, password)
        if better:
            await self._store.rehash(name, stored, better)
        return bool(right)

    async def hash(self, password: str) -> str:
        """The hash of a new password.

        :raises TooMany: too many passwords are being checked at once.
        """
        hashed: str = await self._call_in_thread(self._hasher.hash, password)
        return hashed

    def _compare(self, stored: str, password: str) -> tuple[bool, str]:
        """Whether a password is right, and a better hash of it if its hash is outdated.

        It is hashed in any case, so that the time tells nothing.
        """
        of_nobody = self._hasher.of_nobody  # made at the first check, whatever account it is for
        if is_too_long(password) or len(_normal(password)) > MAX_BYTES:
            password, stored = "", ""
        right = self._hasher.matches(stored or of_nobody, password)
        if not right or not stored:
            return False, ""
        return True, self._hasher.hash(password) if self._hasher.is_outdated(stored) else ""

    async def _call_in_thread(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function in a thread; raises ``TooMany`` if too many passwords wait for one."""
        if self._waiting >= MAX_WAITING:
            raise TooMany("too many people sign in at this moment", PAUSE)
        self._waiting += 1
        try:
            return await self._in_thread(work, *arguments)
        finally:
            self._waiting -= 1


@frozen
class _RightPassword:
    """A password that was right.

    :ivar digest: its hash with the key of this process.
    :ivar stored: the slow hash in the store at that time; empty if it is kept elsewhere.
    :ivar account: the id of the account.
    :ivar at, used_at: when it was checked, and when it was last sent.
    """

    digest: bytes
    stored: str
    account: int
    at: float
    used_at: float


class CheckedPasswords:
    """Remembers in memory which passwords were right, of each account the last one.

    A program that sends a name and a password with each request would otherwise cost the broker a
    slow hash for each of them.  Remembered is a hash with a key that this process made and never
    stores.  It is worthless after another password was set, by whatever process: it counts only as
    long as the store has the same slow hash.

    :param options: a password is remembered for as long as a session would last.
    :param size: of how many accounts.
    """

    def __init__(self, options: AccountOptions, clock: IClock, size: int = 50_000) -> None:
        self._options = options
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._by_name: BoundedDict[str, _RightPassword | None] = BoundedDict(size)

    def add(self, password: str, stored: StoredPassword) -> None:
        """Remember that a password was right.

        :param stored: the account, with the slow hash for which it was right.
        """
        now, account = self._clock.seconds(), stored.account
        digest = self._digest(account.name, password)
        self._by_name[account.name] = _RightPassword(digest, stored.hash, account.id, now, now)

    def has(self, password: str, stored: StoredPassword | None) -> bool:
        """Whether a password was right before, and still is.

        :param stored: the account as the store has it now; None if there is none.
        """
        if stored is None or is_too_long(password):
            return False
        name = stored.account.name
        found = self._by_name.get(name, None)
        if found is None:
            return False
        now = self._clock.seconds()
        is_same = found.account == stored.account.id and found.stored == stored.hash
        if not is_same or now >= self._ends_at(found):
            self._by_name.pop(name, None)
            return False
        if not hmac.compare_digest(found.digest, self._digest(name, password)):
            return False
        self._by_name[name] = evolve(found, used_at=now)
        return True

    def _ends_at(self, found: _RightPassword) -> float:
        """When a password is forgotten, by the monotonic clock."""
        if not found.stored:
            # The broker does not learn when a password changes that is kept elsewhere.
            return found.at + 300.0
        options = self._options
        return min(found.at + options.session_life, found.used_at + options.session_idle)

    def _digest(self, name: str, password: str) -> bytes:
        """The hash of a password with the key of this process."""
        return blake2b(_normal(f"{name} {password}"), key=self._key, digest_size=32).digest()
