"""Stores accounts, sessions, API tokens and sign-in links.

Each function runs as one step of a transaction that the caller began: ``account_store`` runs them
in the threads of the store, the commands with a connection of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Table,
    bindparam,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)

from rsscloud_broker.database.columns import (
    to_micros,
    to_micros_or_none,
    to_seconds,
    to_seconds_or_none,
)
from rsscloud_broker.interfaces import Account, Session, StoredPassword, Token
from rsscloud_broker.storage.account_schema import account, session, sign_in_link, token

_ACCOUNTS_BY_NAME = select(account).where(account.c.name.in_(bindparam("names", expanding=True)))

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
    return stored_passwords(conn, [name])[0]


def stored_passwords(conn: Connection, names: Sequence[str]) -> list[StoredPassword | None]:
    """See ``IAccountStore.stored_password``, for several accounts."""
    rows = conn.execute(_ACCOUNTS_BY_NAME, {"names": names})
    found = {row.name: StoredPassword(_account(row), row.password) for row in rows}
    return [found.get(name) for name in names]


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
    conn.execute(delete(sign_in_link).where(sign_in_link.c.account_id == found.account.id))
    return True


def rehash(conn: Connection, name: str, old: str, new: str) -> bool:
    """See ``IAccountStore.rehash``."""
    same = (account.c.name == name, account.c.password == old)
    return conn.execute(update(account).where(*same).values(password=new)).rowcount > 0


def remove_account(conn: Connection, name: str) -> bool:
    """See ``IAccountStore.remove_account``."""
    return conn.execute(delete(account).where(account.c.name == name)).rowcount > 0


def census(conn: Connection) -> tuple[int, int]:
    """See ``IAccountStore.census``."""
    number, largest = conn.execute(select(func.count(), func.max(account.c.id))).one()
    return number, largest or 0


def ids_without_account(conn: Connection, column: ColumnElement[int], limit: int) -> list[int]:
    """See ``IAccountStore.ids_without_account``."""
    has_account = select(account.c.id).where(account.c.id == column).exists()
    found = select(column).where(column > 0, ~has_account).distinct().limit(limit)
    return list(conn.execute(found).scalars())


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


def touch_session(conn: Connection, session_id: int, at: float) -> None:
    """See ``IAccountStore.touch_session``."""
    conn.execute(update(session).where(session.c.id == session_id).values(used_at=to_micros(at)))


def sessions(conn: Connection, account_id: int) -> list[Session]:
    """See ``IAccountStore.sessions``."""
    mine = select(session).where(session.c.account_id == account_id)
    by_use = mine.order_by(session.c.used_at.desc(), session.c.id.desc())
    return list(map(_session, conn.execute(by_use)))


def end_session(conn: Connection, account_id: int, session_id: int) -> bool:
    """See ``IAccountStore.end_session``."""
    return _remove(conn, session, account_id, session_id)


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


def touch_token(conn: Connection, token_id: int, at: float) -> None:
    """See ``IAccountStore.touch_token``."""
    conn.execute(update(token).where(token.c.id == token_id).values(used_at=to_micros(at)))


def tokens(conn: Connection, account_id: int) -> list[Token]:
    """See ``IAccountStore.tokens``."""
    mine = select(token).where(token.c.account_id == account_id).order_by(token.c.id)
    return list(map(_token, conn.execute(mine)))


def remove_token(conn: Connection, account_id: int, token_id: int) -> bool:
    """See ``IAccountStore.remove_token``."""
    return _remove(conn, token, account_id, token_id)


def remove_tokens(conn: Connection, account_id: int) -> int:
    """See ``IAccountStore.remove_tokens``."""
    return conn.execute(delete(token).where(token.c.account_id == account_id)).rowcount


# --- sign-in links ----------------------------------------------------------


def add_link(conn: Connection, account_id: int, digest: bytes, expires_at: float) -> bool:
    """See ``IAccountStore.add_link``."""
    if not conn.execute(select(account.c.id).where(account.c.id == account_id)).first():
        return False
    conn.execute(delete(sign_in_link).where(sign_in_link.c.account_id == account_id))
    values = {"account_id": account_id, "digest": digest, "expires_at": to_micros(expires_at)}
    conn.execute(insert(sign_in_link).values(values))
    return True


def account_of_link(conn: Connection, digest: bytes, at: float) -> Account | None:
    """See ``IAccountStore.account_of_link``."""
    owner = select(account).join(sign_in_link)
    row = conn.execute(owner.where(*_valid_link(digest, at))).first()
    return None if row is None else _account(row)


def redeem_link(
    conn: Connection,
    link: bytes,
    digest: bytes,
    at: float,
    expires_at: float,
    address: str,
    browser: str,
    former: bytes,
    limit: int,
) -> tuple[StoredPassword, Session] | None:
    """See ``IAccountStore.redeem_link``."""
    owner = account_of_link(conn, link, at)
    # Another node may be redeeming it at the same time; only one of them deletes it.
    if (
        owner is None
        or not conn.execute(delete(sign_in_link).where(*_valid_link(link, at))).rowcount
    ):
        return None
    stored = stored_password(conn, owner.name)
    if stored is None:
        return None
    begun = add_session(
        conn, owner.id, stored.hash, digest, at, expires_at, address, browser, former, limit
    )
    return None if begun is None else (stored, begun)


def _valid_link(digest: bytes, at: float) -> tuple[ColumnElement[bool], ...]:
    """The condition for the link with a digest, if it has not expired."""
    return sign_in_link.c.digest == digest, sign_in_link.c.expires_at > to_micros(at)


# --- all --------------------------------------------------------------------


def sweep_accounts(conn: Connection, now: float, used_before: float, limit: int) -> int:
    """See ``IAccountStore.sweep_accounts``."""
    ended = or_(session.c.expires_at <= to_micros(now), session.c.used_at < to_micros(used_before))
    keys = (
        (session.c.id, ended),
        (token.c.id, token.c.expires_at <= to_micros(now)),
        (sign_in_link.c.account_id, sign_in_link.c.expires_at <= to_micros(now)),
    )
    return sum(
        conn.execute(delete(key.table).where(key.in_(select(key).where(due).limit(limit)))).rowcount
        for key, due in keys
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
