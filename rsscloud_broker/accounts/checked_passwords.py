"""Remembers in memory which passwords were right, since checking one takes long on purpose.

A program that sends a name and a password with each request would otherwise cost the broker a
slow hash (see ``passwords``) for each of them.  Only passwords that were right are remembered, as
a hash with a key that this process made and never stores.  The hash is worthless after another
password was set, by whatever process: it counts only as long as the store has the same slow hash.
"""

from __future__ import annotations

import hmac
import secrets
import unicodedata
from hashlib import blake2b

from attrs import evolve, frozen

from rsscloud_broker.accounts.passwords import is_too_long
from rsscloud_broker.config.accounts import AccountsConfig as AccountOptions
from rsscloud_broker.interfaces import IClock, StoredPassword
from rsscloud_broker.util.caches import BoundedDict


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
    """The passwords that were right: of each account the last one.

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
        """The hash of a password with the key of this process.  ``passwords`` says why NFKC."""
        text = unicodedata.normalize("NFKC", f"{name} {password}").encode("utf-8", "replace")
        return blake2b(text, key=self._key, digest_size=32).digest()
