"""Stores accounts, sessions, API tokens and sign-in links.

Each function runs as one step of a transaction that the caller began: ``account_store`` runs them
in the threads of the store, the commands with a connection of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, bindparam, delete, func, select, update

from rsscloud_broker.database.columns import insert_row, record_of, to_micros, with_micros
from rsscloud_broker.interfaces import Account, Session, StoredPassword, Token
from rsscloud_broker.storage.operating_schema import account, secret

_ACCOUNTS_BY_NAME = select(account).where(account.c.name.in_(bindparam("names", expanding=True)))

#: The kinds of secrets.
SESSION, TOKEN, LINK, INVITATION = "session", "token", "link", "invitation"

# --- accounts ---------------------------------------------------------------


def add_account(
    conn: Connection, name: str, password: str, is_admin: bool, at: float
) -> Account | None:
    """Store a new account.

    :param password: the hash of its password; empty for none.
    :returns: the account; None if the name is taken.
    """
    if stored_password(conn, name) is not None:
        return None
    values = {"name": name, "password": password, "is_admin": is_admin}
    insert_row(conn, account, created_at=to_micros(at), **values)
    made = stored_password(conn, name)
    return made.account if made else None


def stored_password(conn: Connection, name: str) -> StoredPassword | None:
    """An account and the hash of its password; None if there is no such account."""
    return stored_passwords(conn, [name])[0]


def stored_passwords(conn: Connection, names: Sequence[str]) -> list[StoredPassword | None]:
    """The account with each name, and the hash of its password, in the order of the names; None for
    a name without an account.  One query serves several callers: see ``Batched``.
    """
    rows = conn.execute(_ACCOUNTS_BY_NAME, {"names": names})
    found = {row.name: StoredPassword(_account(row), row.password) for row in rows}
    return [found.get(name) for name in names]


def accounts(conn: Connection) -> list[Account]:
    """All accounts, by name."""
    rows = conn.execute(select(account))
    return sorted(map(_account, rows), key=lambda each: each.name)


def set_password(
    conn: Connection, name: str, password: str, keep: int = 0, *, first: bool = False
) -> bool:
    """Store another hash of a password, and end the sessions, the link and the invitation of the
    account.

    :param keep: the id of the session that sets it, which goes on; 0 for none.
    :param first: whether the account must have no password until now.
    :returns: whether there is such an account, with that session.
    """
    matching = [account.c.name == name, *([account.c.password == ""] if first else [])]
    locked = select(account.c.id).where(*matching).with_for_update(key_share=True)
    owner = conn.execute(locked).scalar()
    if owner is None or not _goes_on(conn, owner, keep):
        return False
    conn.execute(update(account).where(account.c.id == owner).values(password=password))
    ended = secret.c.kind.in_((SESSION, LINK, INVITATION)), secret.c.id != keep
    conn.execute(delete(secret).where(secret.c.account_id == owner, *ended))
    return True


def _goes_on(conn: Connection, account_id: int, session: int) -> bool:
    """Whether a session of an account has not ended; it cannot while the transaction lasts.

    :param session: its id; 0 for somebody who needs none.
    """
    mine = *_secrets_of(account_id, SESSION), secret.c.id == session
    found = select(secret.c.id).where(*mine).with_for_update()
    return not session or conn.execute(found).first() is not None


def rehash(conn: Connection, name: str, old: str, new: str) -> bool:
    """Replace the hash of a password by another hash of the same password.

    :returns: whether the hash was still the old one; otherwise nothing is changed.
    """
    same = (account.c.name == name, account.c.password == old)
    return conn.execute(update(account).where(*same).values(password=new)).rowcount > 0


def remove_account(conn: Connection, name: str) -> bool:
    """Delete an account with its sessions and tokens.  Returns whether there was one."""
    return conn.execute(delete(account).where(account.c.name == name)).rowcount > 0


def census(conn: Connection) -> tuple[int, int]:
    """How many accounts there are, and the largest id that one of them has; 0 for none.

    After an account was removed, this is never what it was before, since ids are never used
    twice.
    """
    number, largest = conn.execute(select(func.count(), func.max(account.c.id))).one()
    return number, largest or 0


def ids_without_account(conn: Connection, column: ColumnElement[int], limit: int) -> list[int]:
    """The ids in a column that belong to no account, each once.

    :param column: an SQLAlchemy column.  Its rows with 0 or null are left out.
    :param limit: how many ids there are at most.
    """
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
    """Store a session that begins now, and when the account was signed in to.

    Returns None if the account is gone or disabled, or has another password by now.

    :param password: the hash of the password with which somebody signs in.
    :param former: the digest of a session that ends now; empty for none.
    :param limit: how many sessions an account may have.  If there are more, the ones that
        were not used for the longest time end.
    """
    same = account.c.id == account_id, account.c.password == password, account.c.disabled == ""
    if not conn.execute(update(account).where(*same).values(signed_in_at=to_micros(at))).rowcount:
        return None
    conn.execute(delete(secret).where(secret.c.kind == SESSION, secret.c.digest == former))
    # One place is for the session that begins.
    others = select(secret.c.id).where(*_secrets_of(account_id, SESSION))
    surplus = list(conn.execute(others.order_by(*_LAST_USED_FIRST).offset(limit - 1)).scalars())
    conn.execute(delete(secret).where(secret.c.id.in_(surplus)))
    times = {"created_at": at, "used_at": at, "expires_at": expires_at}
    _insert_secret(conn, account_id, SESSION, digest, name=browser, address=address, **times)
    found = session_of(conn, digest)
    return found[1] if found else None


def session_of(conn: Connection, digest: bytes) -> tuple[Account, Session] | None:
    """A session and its account, by the digest of its secret: see ``_find_with_account``."""
    found = _find_with_account(conn, SESSION, digest)
    return None if found is None else (found[0], _session(found[1]))


def touch(conn: Connection, key: int, at: float) -> None:
    """Store when a session or an API token was last used."""
    conn.execute(update(secret).where(secret.c.id == key).values(used_at=to_micros(at)))


def sessions(conn: Connection, account_id: int) -> list[Session]:
    """The sessions of an account, the last used one first."""
    mine = select(secret).where(*_secrets_of(account_id, SESSION)).order_by(*_LAST_USED_FIRST)
    return list(map(_session, conn.execute(mine)))


def end_session(conn: Connection, account_id: int, session_id: int) -> bool:
    """End a session of an account.  Returns whether the account had this session."""
    return _remove_secrets(conn, account_id, SESSION, session_id) > 0


def end_sessions(conn: Connection, account_id: int) -> int:
    """End all sessions of an account.  Returns how many there were."""
    return _remove_secrets(conn, account_id, SESSION)


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
    session: int = 0,
) -> Token | None:
    """Store an API token.

    :param limit: how many tokens an account may have.
    :param session: the id of the session that makes it; 0 for none.
    :returns: the token; None if the account has that many, or if it or the session is gone.
    """
    # Locked before the session, as in ``set_password``: so these two never wait for each other.
    owner = select(account.c.id).where(account.c.id == account_id).with_for_update(key_share=True)
    if not conn.execute(owner).first() or not _goes_on(conn, account_id, session):
        return None
    mine = select(func.count()).where(*_secrets_of(account_id, TOKEN))
    if conn.execute(mine).scalar_one() >= limit:
        return None
    values = {"name": name, "scopes": " ".join(sorted(scopes)), "created_at": at}
    _insert_secret(conn, account_id, TOKEN, digest, expires_at=expires_at, **values)
    found = token_of(conn, digest)
    return found[1] if found else None


def token_of(conn: Connection, digest: bytes) -> tuple[Account, Token] | None:
    """An API token and its account, by the digest of its secret: see ``_find_with_account``."""
    found = _find_with_account(conn, TOKEN, digest)
    return None if found is None else (found[0], _token(found[1]))


def tokens(conn: Connection, account_id: int) -> list[Token]:
    """The API tokens of an account, in the order in which they were made."""
    mine = select(secret).where(*_secrets_of(account_id, TOKEN)).order_by(secret.c.id)
    return list(map(_token, conn.execute(mine)))


def remove_token(conn: Connection, account_id: int, token_id: int) -> bool:
    """Delete an API token of an account.  Returns whether the account had this token."""
    return _remove_secrets(conn, account_id, TOKEN, token_id) > 0


def remove_tokens(conn: Connection, account_id: int) -> int:
    """Delete all API tokens of an account.  Returns how many there were."""
    return _remove_secrets(conn, account_id, TOKEN)


# --- sign-in links ----------------------------------------------------------


def add_link(
    conn: Connection, account_id: int, digest: bytes, expires_at: float, kind: str = LINK
) -> bool:
    """Store a sign-in link, in place of any other of this kind that the account has.

    :param digest: the digest of its secret.
    :param kind: ``LINK``, or ``INVITATION`` for one that works on every machine.
    :returns: whether there is such an account.
    """
    if not conn.execute(select(account.c.id).where(account.c.id == account_id)).first():
        return False
    _remove_secrets(conn, account_id, kind)
    _insert_secret(conn, account_id, kind, digest, expires_at=expires_at)
    return True


def account_of_link(conn: Connection, digest: bytes, at: float, kind: str = LINK) -> Account | None:
    """The account that a sign-in link is for; None if there is no such link, or it has expired,
    or the account is disabled.

    :param at: the present time.
    :param kind: ``LINK`` or ``INVITATION``.
    """
    owner = select(account).join(secret).where(account.c.disabled == "")
    row = conn.execute(owner.where(*_valid_link(kind, digest, at))).first()
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
    kind: str = LINK,
) -> tuple[StoredPassword, Session] | None:
    """Delete a sign-in link, and begin a session of its account.

    Returns the account and the session; None if there is no such link, or it has expired.

    :param link: the digest of the link's secret.
    :param digest, at, expires_at, address, browser, former, limit: of the session: see
        ``add_session``.
    :param kind: ``LINK`` or ``INVITATION``.
    """
    owner = account_of_link(conn, link, at, kind)
    # Another node may be redeeming it at the same time; only one of them deletes it.
    used = delete(secret).where(*_valid_link(kind, link, at))
    if owner is None or not conn.execute(used).rowcount:
        return None
    stored = stored_password(conn, owner.name)
    if stored is None:
        return None
    begun = add_session(
        conn, owner.id, stored.hash, digest, at, expires_at, address, browser, former, limit
    )
    return None if begun is None else (stored, begun)


def _valid_link(kind: str, digest: bytes, at: float) -> tuple[ColumnElement[bool], ...]:
    """The condition for the secret of a link with a digest, if it has not expired."""
    of_link = secret.c.kind == kind, secret.c.digest == digest
    return *of_link, secret.c.expires_at > to_micros(at)


# --- all --------------------------------------------------------------------


def sweep_accounts(conn: Connection, now: float, used_before: float, limit: int) -> int:
    """Delete what has expired (sessions, API tokens, sign-in links), and sessions without use.

    :param used_before: sessions that were last used before this time are deleted.
    :param limit: how many are deleted at most.
    :returns: how many were deleted.
    """
    unused = (secret.c.kind == SESSION) & (secret.c.used_at < to_micros(used_before))
    due = select(secret.c.id).where((secret.c.expires_at <= to_micros(now)) | unused)
    return conn.execute(delete(secret).where(secret.c.id.in_(due.limit(limit)))).rowcount


_LAST_USED_FIRST = secret.c.used_at.desc(), secret.c.id.desc()


def _secrets_of(account_id: int, kind: str) -> tuple[ColumnElement[bool], ...]:
    """The condition for the secrets of a kind that an account has."""
    return secret.c.account_id == account_id, secret.c.kind == kind


def _insert_secret(
    conn: Connection, account_id: int, kind: str, digest: bytes, **values: Any
) -> None:
    """Store a secret.

    :param values: further values of its row, with times in seconds.
    """
    row = {"name": "", "address": "", "scopes": "", "account_id": account_id, "kind": kind}
    insert_row(conn, secret, digest=digest, **row | with_micros(values))


def _remove_secrets(conn: Connection, account_id: int, kind: str, key: int | None = None) -> int:
    """Delete the secret with an id, or all of a kind (None), of an account; return how many."""
    removed = delete(secret).where(*_secrets_of(account_id, kind))
    if key is not None:
        removed = removed.where(secret.c.id == key)
    return conn.execute(removed).rowcount


def _find_with_account(
    conn: Connection, kind: str, digest: bytes
) -> tuple[Account, Row[Any]] | None:
    """An enabled account and its session or token with a digest; None if there is none."""
    of_digest = secret.c.kind == kind, secret.c.digest == digest
    row = conn.execute(select(secret).where(*of_digest)).first()
    if row is None:
        return None
    enabled = account.c.id == row.account_id, account.c.disabled == ""
    owner = conn.execute(select(account).where(*enabled)).first()
    return None if owner is None else (_account(owner), row)


def _account(row: Row[Any]) -> Account:
    return record_of(Account, row)


def _session(row: Row[Any]) -> Session:
    return record_of(Session, row, browser=row.name)


def _token(row: Row[Any]) -> Token:
    return record_of(Token, row, scopes=frozenset(row.scopes.split()))
