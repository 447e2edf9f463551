"""The interface of the store of accounts, with their sessions, API tokens and sign-in links."""

from __future__ import annotations

from collections.abc import Awaitable, Collection
from typing import Any

from zope.interface import Interface

from rsscloud_broker.interfaces.accounts import Account, Session, StoredPassword, Token


class IAccountStore(Interface):
    """Keeps accounts, sessions, tokens and sign-in links.

    Each method is one transaction, and raises ``Unavailable`` if the database cannot be used now.
    Secrets are never stored, but their SHA-256 digests.
    """

    def add_account(
        name: str, password: str, is_admin: bool, at: float
    ) -> Awaitable[Account | None]:
        """Store a new account.

        :param password: the hash of its password; empty for none.
        :returns: the account; None if the name is taken.
        """

    def stored_password(name: str) -> Awaitable[StoredPassword | None]:
        """An account and the hash of its password; None if there is no such account."""

    def accounts() -> Awaitable[list[Account]]:
        """All accounts, by name."""

    def set_password(name: str, password: str, keep: int = ...) -> Awaitable[bool]:
        """Store another hash of a password, and end the sessions of the account.

        :param keep: the id of a session that goes on; 0 for none.
        :returns: whether there is such an account.
        """

    def rehash(name: str, old: str, new: str) -> Awaitable[bool]:
        """Replace the hash of a password by another hash of the same password.

        :returns: whether the hash was still the old one; otherwise nothing is changed.
        """

    def remove_account(name: str) -> Awaitable[bool]:
        """Delete an account with its sessions and tokens.  Returns whether there was one."""

    def census() -> Awaitable[tuple[int, int]]:
        """How many accounts there are, and the largest id that one of them has; 0 for none.

        After an account was removed, this is never what it was before, since ids are never used
        twice.
        """

    def ids_without_account(column: Any, limit: int) -> Awaitable[list[int]]:
        """The ids in a column that belong to no account, each once.

        :param column: an SQLAlchemy column.  Its rows with 0 or null are left out.
        :param limit: how many ids there are at most.
        """

    def add_session(
        account_id: int,
        password: str,
        digest: bytes,
        at: float,
        expires_at: float,
        address: str,
        browser: str,
        former: bytes,
        limit: int,
    ) -> Awaitable[Session | None]:
        """Store a session that begins now, and when the account was signed in to.

        Returns None if the account is gone, or has another password by now.

        :param password: the hash of the password with which somebody signs in.
        :param former: the digest of a session that ends now; empty for none.
        :param limit: how many sessions an account may have.  If there are more, the ones that
            were not used for the longest time end.
        """

    def session(digest: bytes) -> Awaitable[tuple[Account, Session] | None]:
        """A session and its account, by the digest of its secret."""

    def touch_session(session_id: int, at: float) -> Awaitable[None]:
        """Store when a session was last used."""

    def sessions(account_id: int) -> Awaitable[list[Session]]:
        """The sessions of an account, the last used one first."""

    def end_session(account_id: int, session_id: int) -> Awaitable[bool]:
        """End a session of an account.  Returns whether the account had this session."""

    def end_sessions(account_id: int) -> Awaitable[int]:
        """End all sessions of an account.  Returns how many there were."""

    def add_token(
        account_id: int,
        digest: bytes,
        name: str,
        scopes: Collection[str],
        at: float,
        expires_at: float | None,
        limit: int,
    ) -> Awaitable[Token | None]:
        """Store an API token.

        :param limit: how many tokens an account may have.
        :returns: the token; None if the account has that many, or if it is gone.
        """

    def token(digest: bytes) -> Awaitable[tuple[Account, Token] | None]:
        """An API token and its account, by the digest of its secret."""

    def touch_token(token_id: int, at: float) -> Awaitable[None]:
        """Store when an API token was last used."""

    def tokens(account_id: int) -> Awaitable[list[Token]]:
        """The API tokens of an account, in the order in which they were made."""

    def remove_token(account_id: int, token_id: int) -> Awaitable[bool]:
        """Delete an API token of an account.  Returns whether the account had this token."""

    def remove_tokens(account_id: int) -> Awaitable[int]:
        """Delete all API tokens of an account.  Returns how many there were."""

    def add_link(account_id: int, digest: bytes, expires_at: float) -> Awaitable[bool]:
        """Store a sign-in link, in place of any other of the account.

        :param digest: the digest of its secret.
        :returns: whether there is such an account.
        """

    def account_of_link(digest: bytes, at: float) -> Awaitable[Account | None]:
        """The account that a sign-in link is for; None if there is no such link, or it has expired.

        :param at: the present time.
        """

    def redeem_link(
        link: bytes,
        digest: bytes,
        at: float,
        expires_at: float,
        address: str,
        browser: str,
        former: bytes,
        limit: int,
    ) -> Awaitable[tuple[StoredPassword, Session] | None]:
        """Delete a sign-in link, and begin a session of its account.

        Returns the account and the session; None if there is no such link, or it has expired.

        :param link: the digest of the link's secret.
        :param digest, at, expires_at, address, browser, former, limit: of the session: see
            ``add_session``.
        """

    def sweep_accounts(now: float, used_before: float, limit: int) -> Awaitable[int]:
        """Delete what has expired (sessions, API tokens, sign-in links), and sessions without use.

        :param used_before: sessions that were last used before this time are deleted.
        :param limit: how many of each are deleted at most.
        :returns: how many were deleted.
        """
