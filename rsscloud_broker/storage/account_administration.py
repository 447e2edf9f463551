"""What administrators see of accounts and do with them, each with the record of it.

Each function runs as one step of a transaction that the caller began.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, delete, func, or_, select, true, update
from sqlalchemy.sql.selectable import ScalarSelect

from rsscloud_broker.database.columns import record_of
from rsscloud_broker.errors import Unadministrable
from rsscloud_broker.model.administration import AccountSummary, Change
from rsscloud_broker.storage import accounts as rows
from rsscloud_broker.storage.changes import record_change
from rsscloud_broker.storage.operating_schema import account, secret


def _over_secrets(found: ColumnElement[Any], kind: str) -> ScalarSelect[Any]:
    """A subquery that computes ``found``, such as a count, over the secrets of a kind that the
    account in the row of the outer query has.
    """
    mine = secret.c.account_id == account.c.id, secret.c.kind == kind
    return select(found).where(*mine).correlate(account).scalar_subquery()


_SUMMARIES: Final = select(
    account,
    _over_secrets(func.count(), rows.SESSION).label("sessions"),
    _over_secrets(func.count(), rows.TOKEN).label("tokens"),
    _over_secrets(func.max(secret.c.expires_at), rows.INVITATION).label("invited_until"),
)


def account_summaries(conn: Connection, after: str, limit: int) -> list[AccountSummary]:
    """Some of the accounts, by name.

    :param after: the name of the last one of the page before; empty at first.
    """
    following = _SUMMARIES.where(account.c.name > after).order_by(account.c.name).limit(limit)
    return list(map(_summary, conn.execute(following)))


def account_summary(conn: Connection, name: str) -> AccountSummary | None:
    """An account by its name; None if there is none."""
    row = conn.execute(_SUMMARIES.where(account.c.name == name)).first()
    return None if row is None else _summary(row)


def invite(
    conn: Connection, name: str, is_admin: bool, digest: bytes, expires_at: float, change: Change
) -> bool:
    """Store a new account without a password, and an invitation to it.

    :param digest: the digest of the secret of the invitation.
    :returns: whether the name was free.
    """
    made = rows.add_account(conn, name, "", is_admin, change.at)
    if made is None:
        return False
    rows.add_link(conn, made.id, digest, expires_at, rows.INVITATION)
    record_change(conn, change)
    return True


def reset(conn: Connection, name: str, digest: bytes, expires_at: float, change: Change) -> bool:
    """Delete the password, the sessions and the API tokens of an account, and store an invitation
    to it.

    :returns: whether there is such an account.
    """
    found = rows.stored_password(conn, name)
    if found is None:
        return False
    conn.execute(update(account).where(account.c.name == name).values(password=""))
    conn.execute(delete(secret).where(secret.c.account_id == found.account.id))
    rows.add_link(conn, found.account.id, digest, expires_at, rows.INVITATION)
    record_change(conn, change)
    return True


def change_account(conn: Connection, name: str, values: Mapping[str, Any], change: Change) -> bool:
    """Change columns of an account.  If it is disabled now, its sessions and links end; its API
    tokens stay, and are of no use until it is enabled again.

    :returns: whether there is such an account.
    :raises Unadministrable: nobody would be an administrator any more.
    """
    if values.get("disabled") or values.get("is_admin") is False:
        check_other_administrator(conn, name)
    changed = conn.execute(update(account).where(account.c.name == name).values(dict(values)))
    if not changed.rowcount:
        return False
    if values.get("disabled"):
        key = select(account.c.id).where(account.c.name == name).scalar_subquery()
        is_no_token = secret.c.kind != rows.TOKEN
        conn.execute(delete(secret).where(secret.c.account_id == key, is_no_token))
    record_change(conn, change)
    return True


def remove(conn: Connection, name: str, change: Change | None = None) -> bool:
    """Delete an account with its sessions and tokens.

    :param change: None if its owner does it.
    :returns: whether there was such an account.
    :raises Unadministrable: nobody would be an administrator any more.
    """
    check_other_administrator(conn, name)
    removed = rows.remove_account(conn, name)
    if removed and change is not None:
        record_change(conn, change)
    return removed


def check_other_administrator(conn: Connection, name: str) -> None:
    """Raise ``Unadministrable`` if no enabled administrator would be left without this account.

    An administrator who was invited and has never signed in does not count as one who is left: the
    invitation may expire.
    """
    has_signed_in = or_(account.c.password != "", account.c.signed_in_at.is_not(None))
    able = account.c.is_admin == true(), account.c.disabled == "", has_signed_in
    # Two administrators who remove each other at the same moment wait for each other here.
    names = conn.execute(select(account.c.name).where(*able).with_for_update()).scalars().all()
    if list(names) == [name]:
        raise Unadministrable(
            f"the only administrator is {name}: make somebody else an administrator first"
        )


def _summary(row: Row[Any]) -> AccountSummary:
    return record_of(AccountSummary, row, has_password=bool(row.password))
