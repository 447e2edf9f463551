"""Implements ``IAccounts``: signing in and out, sessions, passwords and API tokens.

**Guessing passwords.**  Attempts are limited for each source and for each account.  Anybody could
use up the attempts of an account and so lock its owner out; so a browser in which somebody has
signed in to the account before has attempts of its own.  It proves that by a mark in a cookie (see
OWASP, "Device cookies").  And tokens come back all the time: nobody is ever locked out for good.

**Whether there is an account.**  An attempt for a name without an account takes as long, is limited
alike, and gets the same answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from attrs import define, field
from twisted.cred.credentials import UsernamePassword
from twisted.cred.error import UnauthorizedLogin
from twisted.cred.portal import Portal
from twisted.logger import Logger
from zope.interface import implementer

from rsscloud_broker.accounts.names import is_name
from rsscloud_broker.accounts.passwords import (
    CheckedPasswords,
    Passwords,
    check_password,
    is_too_long,
)
from rsscloud_broker.accounts.secrets import (
    check_token,
    csrf_of,
    digest_of,
    known_browser,
    mark_of,
    new_secret,
    new_token,
)
from rsscloud_broker.config.accounts import AccountsConfig as AccountOptions
from rsscloud_broker.errors import InvalidAccount, SignInFailed, TooMany, Unavailable
from rsscloud_broker.interfaces import (
    Account,
    Caller,
    IAccount,
    IAccounts,
    IClock,
    RefusedSignIn,
    Session,
    SignedIn,
    SignIn,
    StoredPassword,
    Token,
)
from rsscloud_broker.interfaces.accounts import OF_EVERYBODY, SCOPES
from rsscloud_broker.policy.addresses import bucket_of
from rsscloud_broker.storage import AccountStore
from rsscloud_broker.wire.text import clean
from rsscloud_broker.wire.units import DAY, HOUR

T = TypeVar("T")

#: How many sessions and API tokens an account may have.
MAX_SESSIONS, MAX_TOKENS = 50, 50

#: Why somebody who was signed out in the middle of a change changes nothing any more.
_SESSION_ENDED: Final = "your session has ended meanwhile: sign in again"

#: Seconds between two writes of when a session or a token was last used.
TOUCH_EACH: Final = 60.0


@implementer(IAccounts)
@define(eq=False)
class Accounts:
    """Signs people in and out, and manages what belongs to their accounts.

    :param portal: checks names with passwords, and hands out accounts.
    :param take_source: takes a token from the bucket of a source; returns 0, or the seconds to
        wait: see ``core.rate_limits.RateLimit.take``.
    :param take_name: the same for the name of an account, or for one browser of an account.
    :param other_checkers: whether plugins check passwords too, so that an account without a stored
        password may have one all the same.
    """

    log = Logger()

    _store: AccountStore
    _portal: Portal
    _passwords: Passwords
    _clock: IClock
    _options: AccountOptions
    _take_source: Callable[[str], int]
    _take_name: Callable[[str], int]
    _other_checkers: bool = field(default=False, kw_only=True)
    _checked_passwords: CheckedPasswords = field(init=False)
    _refused: deque[RefusedSignIn] = field(factory=lambda: deque(maxlen=1000), init=False)

    def __attrs_post_init__(self) -> None:
        self._checked_passwords = CheckedPasswords(self._options, self._clock)

    # callers

    async def caller_of_session(self, secret: str) -> Caller | None:
        """The caller with a session; None if it has ended or never was.  Notes that it was used."""
        digest = digest_of(secret)
        found = await self._store.session(digest) if digest else None
        if found is None or not self._is_alive(found[1]):
            return None
        account, session = found
        now = self._clock.wall_seconds()
        if now - session.used_at >= TOUCH_EACH:
            await _if_possible(self._store.touch_session(session.id, now))
        return self._caller(account, session, secret)

    async def caller_of_token(self, secret: str) -> Caller | None:
        """The caller with an API token, which allows no more than its account; None if invalid."""
        digest = digest_of(secret)
        found = await self._store.token(digest) if digest else None
        if found is None or not self._is_valid(found[1]):
            return None
        account, token = found
        now = self._clock.wall_seconds()
        if token.used_at is None or now - token.used_at >= TOUCH_EACH:
            await _if_possible(self._store.touch_token(token.id, now))
        withheld = frozenset() if account.is_admin else frozenset({"admin"})
        return Caller(account, (token.scopes & SCOPES.keys()) - withheld)

    async def caller_of_password(self, name: str, password: str, source: str) -> Caller:
        """The caller with a name and a password, who may only publish; see ``CheckedPasswords``."""
        name = name.strip().lower()
        stored = await self._store.stored_password(name) if is_name(name) else None
        if not self._checked_passwords.has(password, stored):
            stored = await self._check_and_record(name, password, source, mark="")
            self._checked_passwords.add(password, stored)
        assert stored is not None  # a password is right only for an account
        if stored.account.disabled:
            raise SignInFailed(stored.account.disabled)
        return Caller(stored.account, frozenset({"publish"}))

    def _caller(self, account: Account, session: Session, secret: str) -> Caller:
        return Caller(account, _scopes_of(account), csrf_of(secret), session)

    def _is_alive(self, session: Session) -> bool:
        """Whether a session has neither reached its end nor been idle for too long."""
        now = self._clock.wall_seconds()
        return now < min(session.expires_at, session.used_at + self._options.session_idle)

    def _is_valid(self, token: Token) -> bool:
        return token.expires_at is None or self._clock.wall_seconds() < token.expires_at

    # signing in and out

    async def sign_in(self, attempt: SignIn) -> SignedIn:
        """Begin a session for somebody with a right password, unless the account is disabled."""
        name = attempt.name.strip().lower()
        stored = await self._check_and_record(name, attempt.password, attempt.source, attempt.known)
        account = stored.account
        if account.disabled:
            raise SignInFailed(account.disabled)
        begin = partial(self._store.add_session, account.id, stored.hash)
        secret, expires_at, session = await self._begin_session(begin, attempt)
        if session is None:  # the account was removed, or got another password, a moment ago
            raise SignInFailed
        return self._finish_sign_in(stored, session, secret, expires_at)

    async def account_of_link(self, secret: str, kind: str = "link") -> Account | None:
        link = digest_of(secret)
        now = self._clock.wall_seconds()
        return await self._store.account_of_link(link, now, kind) if link else None

    async def sign_in_by_link(self, secret: str, attempt: SignIn, kind: str = "link") -> SignedIn:
        begin = partial(self._store.redeem_link, digest_of(secret), kind=kind)
        session_secret, expires_at, found = await self._begin_session(begin, attempt)
        if found is None:
            raise SignInFailed
        return self._finish_sign_in(*found, session_secret, expires_at)

    async def _begin_session(
        self, begin: Callable[..., Awaitable[T]], attempt: SignIn
    ) -> tuple[str, float, T]:
        """Begin a session.

        :param begin: stores it, given what ``AccountStore.add_session`` and ``redeem_link`` both
            take.
        :returns: the secret of the session, when it ends, and what ``begin`` returned.
        """
        secret, now = new_secret(), self._clock.wall_seconds()
        expires_at = now + self._options.session_life
        browser = clean(attempt.browser)[:200]  # they call themselves by long names
        former = digest_of(attempt.former)
        result = await begin(
            digest_of(secret), now, expires_at, attempt.source, browser, former, MAX_SESSIONS
        )
        return secret, expires_at, result

    def _finish_sign_in(
        self, stored: StoredPassword, session: Session, secret: str, expires_at: float
    ) -> SignedIn:
        """The result of a sign-in, with a mark for the browser if the account has a password."""
        account = stored.account
        mark = mark_of(account.name, stored.hash) if stored.hash else ""
        self.log.info("{name} signed in from {source}.", name=account.name, source=session.address)
        return SignedIn(self._caller(account, session, secret), secret, expires_at, mark)

    async def _check_and_record(
        self, name: str, password: str, source: str, mark: str
    ) -> StoredPassword:
        """Check an attempt as ``_check_attempt`` does; remember it if it is refused."""
        try:
            return await self._check_attempt(name, password, source, mark)
        except (SignInFailed, TooMany):
            shown, now = name if is_name(name) else "", self._clock.wall_seconds()
            self._refused.append(RefusedSignIn(shown, source, now))
            raise

    def refused_sign_ins(self) -> Sequence[RefusedSignIn]:
        """The refused attempts to sign in of the last hour, at most the last thousand."""
        since = self._clock.wall_seconds() - HOUR
        return [each for each in self._refused if each.at >= since]

    async def _check_attempt(
        self, name: str, password: str, source: str, mark: str
    ) -> StoredPassword:
        """Check the password of an attempt to sign in, within the limits for its source and name.

        :param mark: the mark in the cookie of the browser; see ``secrets.mark_of``.
        :returns: the account, with the hash of the password.
        :raises SignInFailed, TooMany: it is wrong, or there were too many attempts.
        """
        self._limit(self._take_source(bucket_of(source)), "from your address")
        if is_too_long(password):
            raise SignInFailed
        browser = await self._browser_of(mark, name)
        self._limit(self._take_name(f"{name[:32]} {browser}"), "for this name")
        before = await self._store.stored_password(name) if is_name(name) else None
        while True:
            try:
                account = await self._account_of(name, password)
            except UnauthorizedLogin:
                shown = name if is_name(name) else "a name that nobody can have"
                self.log.info(
                    "An attempt to sign in as {name} from {source} failed.",
                    name=shown,
                    source=source,
                )
                raise SignInFailed from None
            stored = await self._store.stored_password(account.name)
            if stored is None:  # the account was removed a moment ago
                raise SignInFailed
            if stored.hash == (before.hash if before else ""):
                return stored
            # The hash changed meanwhile: it is a better one, or that of another password.  So the
            # password is checked once more.
            before = stored

    async def _account_of(self, name: str, password: str) -> Account:
        """The account with a name and a password; raises ``UnauthorizedLogin`` if there is none."""
        sent = (text.encode("utf-8", "replace") for text in (name, password))
        credentials = UsernamePassword(*sent)
        _, account, _ = await self._portal.login(credentials, None, IAccount)
        assert isinstance(account, Account)
        return account

    async def _browser_of(self, mark: str, name: str) -> str:
        """The key of a browser in which somebody has signed in to an account; else empty.

        :param mark: the mark in the cookie of the browser; see ``secrets.mark_of``.
        """
        if not mark or not is_name(name):
            return ""
        stored = await self._store.stored_password(name)
        return known_browser(mark, name, stored.hash) if stored else ""

    def _limit(self, pause: int, where: str) -> None:
        """Raise ``TooMany`` if there is a pause to wait for, in seconds."""
        if pause:
            raise TooMany(f"there were too many attempts to sign in {where}", pause)

    def _limit_in_session(self, caller: Caller, source: str) -> None:
        """Limit how often somebody who has signed in may type the password once more."""
        session = caller.session.id if caller.session else 0
        self._limit(self._take_source(bucket_of(source)), "from your address")
        self._limit(self._take_name(f"{caller.name} in session {session}"), "in this session")

    async def sign_out(self, secret: str) -> None:
        digest = digest_of(secret)
        found = await self._store.session(digest) if digest else None
        if found is not None:
            account, session = found
            await self._store.end_session(account.id, session.id)

    # what belongs to an account

    async def sessions(self, caller: Caller) -> Sequence[Session]:
        found = await self._store.sessions(caller.account.id)
        return [each for each in found if self._is_alive(each)]

    async def end_session(self, caller: Caller, session: int) -> bool:
        return await self._store.end_session(caller.account.id, session)

    async def end_sessions(self, caller: Caller) -> int:
        return await self._store.end_sessions(caller.account.id)

    async def change_password(self, caller: Caller, old: str, new: str, source: str) -> None:
        """Set another password, if the old one is right; or a first one, soon after a sign-in."""
        name = caller.name
        check_password(new, name, self._options.min_password)
        stored = await self._store.stored_password(name)
        if stored is None or (not stored.hash and self._other_checkers):
            raise InvalidAccount(
                "the password of this account is not kept here; change it where it is kept"
            )
        keep = caller.session.id if caller.session else 0
        if not stored.hash and not self._has_just_signed_in(caller):
            raise InvalidAccount(
                "a first password is set within an hour of signing in: sign in by a new link"
            )
        self._limit_in_session(caller, source)
        if stored.hash and not await self._passwords.check(name, old):
            raise SignInFailed
        hashed, first = await self._passwords.hash(new), not stored.hash
        if not await self._store.set_password(name, hashed, keep, first=first):
            raise InvalidAccount(
                "somebody has set a password meanwhile, or your session has ended: sign in again"
                if first
                else _SESSION_ENDED
            )
        self.log.info("{name} has changed the password.", name=name)

    async def remove_account(self, caller: Caller, password: str, source: str) -> None:
        """Remove an account, if the password is right; one without needs a recent sign-in."""
        if not await self.lacks_password(caller):
            await self._check_once_more(caller, password, source)
        elif not self._has_just_signed_in(caller):
            raise InvalidAccount(
                "an account without a password is removed within an hour of signing in: sign in by "
                "a new link"
            )
        await self._store.remove(caller.name)
        self.log.info("{name} has removed the account.", name=caller.name)

    async def _check_once_more(self, caller: Caller, password: str, source: str) -> None:
        """Check the password that a signed-in person types once more; raises if it is wrong."""
        self._limit_in_session(caller, source)
        try:
            found = await self._account_of(caller.name, password)
        except UnauthorizedLogin:
            raise SignInFailed from None
        if found.id != caller.account.id:
            raise SignInFailed

    def _has_just_signed_in(self, caller: Caller) -> bool:
        """Whether a caller has proved lately who it is: a stolen cookie is no proof for long."""
        now = self._clock.wall_seconds()
        return caller.session is not None and now - caller.session.created_at < HOUR

    async def lacks_password(self, caller: Caller) -> bool:
        stored = await self._store.stored_password(caller.name)
        return stored is not None and not stored.hash and not self._other_checkers

    def scopes_for(self, caller: Caller) -> Mapping[str, str]:
        allowed = _scopes_of(caller.account)
        return {scope: help_ for scope, help_ in SCOPES.items() if scope in allowed}

    async def tokens(self, caller: Caller) -> Sequence[Token]:
        found = await self._store.tokens(caller.account.id)
        return [each for each in found if self._is_valid(each)]

    async def add_token(
        self,
        caller: Caller,
        name: str,
        scopes: Collection[str],
        days: int | None,
        password: str,
        source: str,
    ) -> tuple[Token, str]:
        """Make an API token; returns it with its secret, which nobody can show again."""
        account = caller.account
        name = check_token(name, scopes, days, is_admin=account.is_admin)
        if withheld := sorted(set(scopes) - self.scopes_for(caller).keys()):
            raise InvalidAccount(f"tokens of this account cannot have the scope {withheld[0]!r}")
        if await self.lacks_password(caller):
            raise InvalidAccount(
                "a token needs your password, and you have none yet: set one first"
            )
        await self._check_once_more(caller, password, source)
        secret, now = new_token(), self._clock.wall_seconds()
        expires_at = None if days is None else now + days * DAY
        session = caller.session.id if caller.session else 0
        token = await self._store.add_token(
            account.id, digest_of(secret), name, scopes, now, expires_at, MAX_TOKENS, session
        )
        if token is None:
            if len(await self._store.tokens(account.id)) < MAX_TOKENS:
                raise InvalidAccount(_SESSION_ENDED)
            raise InvalidAccount(f"an account has at most {MAX_TOKENS} tokens; remove one first")
        return token, secret

    async def remove_token(self, caller: Caller, token: int) -> bool:
        return await self._store.remove_token(caller.account.id, token)

    async def remove_tokens(self, caller: Caller) -> int:
        return await self._store.remove_tokens(caller.account.id)


async def _if_possible(storing: Awaitable[None]) -> None:
    """Store when something was last used, but do without if the store is unavailable."""
    with suppress(Unavailable):
        await storing


def _scopes_of(account: Account) -> frozenset[str]:
    """What a person may do who has signed in to an account."""
    return frozenset(SCOPES) if account.is_admin else OF_EVERYBODY
