"""Stores accounts, sessions and API tokens.

Each function runs as one step of a transaction that the caller began.  ``AccountStore`` runs them
in the threads of the store; the commands call them with a connection of their own.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import Connection, Row, Table, delete, func, insert, or_, select, update
from twisted.internet.defer import Deferred
from zope.interface import implementer

from rsscloud_broker.interfaces import Account, IAccountStore, Session, StoredPassword, Token
from rsscloud_broker.storage.account_schema import account, session, token
from rsscloud_broker.storage.schema import (
    to_micros,
    to_micros_or_none,
    to_seconds,
    to_seconds_or_none,
)
from rsscloud_broker.storage.threads import Threads

# --- accounts ---------------------------------------------------------------


def add_account(
    conn: Connection, name: str, password: str, is_admin: bool, at: float
) -> Account | None:
    """See ``IAccountStore.add_account``."""
    if stored_password(conn, name) is not None:
        return None
    values = {"name": name, "password": password, "is_admin": is_admin}
    conn.execute(insert(account).values(created_at=to_micros(at), **values))
    made = stored_password(conn, name)
    return made.account if made else None


def stored_password(conn: Connection, name: str) -> StoredPassword | None:
    """See ``IAccountStore.stored_password``."""
    row = conn.execute(select(account).where(account.c.name == name)).first()
    return None if row is None else StoredPassword(_account(row), row.password)


def accounts(conn: Connection) -> list[Account]:
    """See ``IAccountStore.accounts``."""
    rows = conn.execute(select(account))
    return sorted(map(_account, rows), key=lambda each: each.name)


def set_password(conn: Connection, name: str, password: str, keep: int = 0) -> bool:
    """See ``IAccountStore.set_password``."""
    found = stored_password(conn, name)
    if found is None:
        return False
    conn.execute(update(account).where(account.c.name == name).values(password=password))
    of_account = session.c.account_id == found.account.id
    conn.execute(delete(session).where(of_account, session.c.id != keep))
    return True


def rehash(conn: Connection, name: str, old: str, new: str) -> bool:
    """See ``IAccountStore.rehash``."""
    same = (account.c.name == name, account.c.password == old)
    return conn.execute(update(account).where(*same).values(password=new)).rowcount > 0


def remove_account(conn: Connection, name: str) -> bool:
    """See ``IAccountStore.remove_account``."""
    return conn.execute(delete(account).where(account.c.name == name)).rowcount > 0


# --- sessions ---------------------------------------------------------------


def add_session(
    conn: Connection,
    account_id: int,
    password: str,
    digest: bytes,
    at: float,
    expires_at: float,
    address: str,
    browser: str,
    former: bytes,
    limit: int,
) -> Session | None:
    """See ``IAccountStore.add_session``."""
    now = to_micros(at)
    same = (account.c.id == account_id, account.c.password == password)
    if not conn.execute(update(account).where(*same).values(signed_in_at=now)).rowcount:
        return None
    conn.execute(delete(session).where(session.c.digest == former))
    others = select(session.c.id).where(session.c.account_id == account_id)
    by_use = others.order_by(session.c.used_at.desc(), session.c.id.desc())
    surplus = list(conn.execute(by_use.offset(limit - 1)).scalars())
    conn.execute(delete(session).where(session.c.id.in_(surplus)))
    values = {
        "account_id": account_id,
        "digest": digest,
        "created_at": now,
        "used_at": now,
        "expires_at": to_micros(expires_at),
        "address": address,
        "browser": browser,
    }
    conn.execute(insert(session).values(values))
    found = session_of(conn, digest)
    return found[1] if found else None


def session_of(conn: Connection, digest: bytes) -> tuple[Account, Session] | None:
    """See ``IAccountStore.session``."""
    found = _with_account(conn, session, digest)
    return None if found is None else (found[0], _session(found[1]))


def touch_session(conn: Connection, key: int, at: float) -> None:
    """See ``IAccountStore.touch_session``."""
    conn.execute(update(session).where(session.c.id == key).values(used_at=to_micros(at)))


def sessions(conn: Connection, account_id: int) -> list[Session]:
    """See ``IAccountStore.sessions``."""
    mine = select(session).where(session.c.account_id == account_id)
    by_use = mine.order_by(session.c.used_at.desc(), session.c.id.desc())
    return list(map(_session, conn.execute(by_use)))


def end_session(conn: Connection, account_id: int, key: int) -> bool:
    """See ``IAccountStore.end_session``."""
    return _remove(conn, session, account_id, key)


def end_sessions(conn: Connection, account_id: int) -> int:
    """See ``IAccountStore.end_sessions``."""
    return conn.execute(delete(session).where(session.c.account_id == account_id)).rowcount


# --- tokens -----------------------------------------------------------------


def add_token(
    conn: Connection,
    account_id: int,
    digest: bytes,
    name: str,
    scopes: Collection[str],
    at: float,
    expires_at: float | None,
    limit: int,
) -> Token | None:
    """See ``IAccountStore.add_token``."""
    if not conn.execute(select(account.c.id).where(account.c.id == account_id)).first():
        return None
    mine = token.c.account_id == account_id
    if conn.execute(select(func.count()).where(mine)).scalar_one() >= limit:
        return None
    values = {
        "account_id": account_id,
        "digest": digest,
        "name": name,
        "scopes": " ".join(sorted(scopes)),
        "created_at": to_micros(at),
        "expires_at": to_micros_or_none(expires_at),
    }
    conn.execute(insert(token).values(values))
    found = token_of(conn, digest)
    return found[1] if found else None


def token_of(conn: Connection, digest: bytes) -> tuple[Account, Token] | None:
    """See ``IAccountStore.token``."""
    found = _with_account(conn, token, digest)
    return None if found is None else (found[0], _token(found[1]))


def touch_token(conn: Connection, key: int, at: float) -> None:
    """See ``IAccountStore.touch_token``."""
    conn.execute(update(token).where(token.c.id == key).values(used_at=to_micros(at)))


def tokens(conn: Connection, account_id: int) -> list[Token]:
    """See ``IAccountStore.tokens``."""
    mine = select(token).where(token.c.account_id == account_id).order_by(token.c.id)
    return list(map(_token, conn.execute(mine)))


def remove_token(conn: Connection, account_id: int, key: int) -> bool:
    """See ``IAccountStore.remove_token``."""
    return _remove(conn, token, account_id, key)


def remove_tokens(conn: Connection, account_id: int) -> int:
    """See ``IAccountStore.remove_tokens``."""
    return conn.execute(delete(token).where(token.c.account_id == account_id)).rowcount


# --- both -------------------------------------------------------------------


def sweep_accounts(conn: Connection, now: float, used_before: float, limit: int) -> int:
    """See ``IAccountStore.sweep_accounts``."""
    ended = or_(session.c.expires_at <= to_micros(now), session.c.used_at < to_micros(used_before))
    expired = token.c.expires_at <= to_micros(now)
    return sum(
        conn.execute(
            delete(table).where(table.c.id.in_(select(table.c.id).where(due).limit(limit)))
        ).rowcount
        for table, due in ((session, ended), (token, expired))
    )


def _with_account(conn: Connection, table: Table, digest: bytes) -> tuple[Account, Row[Any]] | None:
    """A row of sessions or tokens by its digest, with its account; None if there is none."""
    row = conn.execute(select(table).where(table.c.digest == digest)).first()
    if row is None:
        return None
    owner = conn.execute(select(account).where(account.c.id == row.account_id)).first()
    return None if owner is None else (_account(owner), row)


def _remove(conn: Connection, table: Table, account_id: int, key: int) -> bool:
    of_account = (table.c.account_id == account_id, table.c.id == key)
    return conn.execute(delete(table).where(*of_account)).rowcount > 0


def _account(row: Row[Any]) -> Account:
    return Account(
        row.id,
        row.name,
        row.is_admin,
        to_seconds(row.created_at),
        to_seconds_or_none(row.signed_in_at),
    )


def _session(row: Row[Any]) -> Session:
    created, used, expires = map(to_seconds, (row.created_at, row.used_at, row.expires_at))
    return Session(row.id, created, used, expires, row.address, row.browser)


def _token(row: Row[Any]) -> Token:
    return Token(
        row.id,
        row.name,
        frozenset(row.scopes.split()),
        to_seconds(row.created_at),
        to_seconds_or_none(row.expires_at),
        to_seconds_or_none(row.used_at),
    )


# --- the store --------------------------------------------------------------


@implementer(IAccountStore)
class AccountStore:
    """Implements ``IAccountStore`` with the threads of a ``Store``.

    :param threads: the threads that the store was made with, which it starts and stops.
    """

    def __init__(self, threads: Threads) -> None:
        self._threads = threads

    def add_account(
        self, name: str, password: str, is_admin: bool, at: float
    ) -> Deferred[Account | None]:
        return self._threads.write(lambda conn: add_account(conn, name, password, is_admin, at))

    def stored_password(self, name: str) -> Deferred[StoredPassword | None]:
        return self._threads.read(lambda conn: stored_password(conn, name))

    def accounts(self) -> Deferred[list[Account]]:
        return self._threads.read(accounts)

    def set_password(self, name: str, password: str, keep: int = 0) -> Deferred[bool]:
        return self._threads.write(lambda conn: set_password(conn, name, password, keep))

    def rehash(self, name: str, old: str, new: str) -> Deferred[bool]:
        return self._threads.write(lambda conn: rehash(conn, name, old, new))

    def remove_account(self, name: str) -> Deferred[bool]:
        return self._threads.write(lambda conn: remove_account(conn, name))

    def add_session(
        self,
        account: int,
        password: str,
        digest: bytes,
        at: float,
        expires_at: float,
        address: str,
        browser: str,
        former: bytes,
        limit: int,
    ) -> Deferred[Session | None]:
        return self._threads.write(
            lambda conn: add_session(
                conn, account, password, digest, at, expires_at, address, browser, former, limit
            )
        )

    def session(self, digest: bytes) -> Deferred[tuple[Account, Session] | None]:
        return self._threads.read(lambda conn: session_of(conn, digest))

    def touch_session(self, session: int, at: float) -> Deferred[None]:
        return self._threads.write(lambda conn: touch_session(conn, session, at))

    def sessions(self, account: int) -> Deferred[list[Session]]:
        return self._threads.read(lambda conn: sessions(conn, account))

    def end_session(self, account: int, session: int) -> Deferred[bool]:
        return self._threads.write(lambda conn: end_session(conn, account, session))

    def end_sessions(self, account: int) -> Deferred[int]:
        return self._threads.write(lambda conn: end_sessions(conn, account))

    def add_token(
        self,
        account: int,
        digest: bytes,
        name: str,
        scopes: Collection[str],
        at: float,
        expires_at: float | None,
        limit: int,
    ) -> Deferred[Token | None]:
        return self._threads.write(
            lambda conn: add_token(conn, account, digest, name, scopes, at, expires_at, limit)
        )

    def token(self, digest: bytes) -> Deferred[tuple[Account, Token] | None]:
        return self._threads.read(lambda conn: token_of(conn, digest))

    def touch_token(self, token: int, at: float) -> Deferred[None]:
        return self._threads.write(lambda conn: touch_token(conn, token, at))

    def tokens(self, account: int) -> Deferred[list[Token]]:
        return self._threads.read(lambda conn: tokens(conn, account))

    def remove_token(self, account: int, token: int) -> Deferred[bool]:
        return self._threads.write(lambda conn: remove_token(conn, account, token))

    def remove_tokens(self, account: int) -> Deferred[int]:
        return self._threads.write(lambda conn: remove_tokens(conn, account))

    def sweep_accounts(self, now: float, used_before: float, limit: int) -> Deferred[int]:
        return self._threads.write(lambda conn: sweep_accounts(conn, now, used_before, limit))
