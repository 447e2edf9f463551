"""Implements ``IAccountAdministration``: what administrators do with accounts.

**Invitations.**  An invitation is a link that signs a browser in once, wherever it is.  The account
has no password then, so its owner chooses one within the hour (``Accounts.change_password``).  Who
has lost the password gets such a link too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlencode

from zope.interface import implementer

from rsscloud_broker.accounts.names import check_name
from rsscloud_broker.accounts.secrets import digest_of, new_secret
from rsscloud_broker.errors import InvalidAccount, Unadministrable
from rsscloud_broker.interfaces import IAccountAdministration, IClock
from rsscloud_broker.model.administration import AccountSummary, Change, Invitation
from rsscloud_broker.policy.changes import change_by, needed
from rsscloud_broker.storage import AccountStore
from rsscloud_broker.wire.text import sentence
from rsscloud_broker.wire.units import DAY

#: The path of invitations.
INVITED_PATH: Final = "/signin/invited"


@implementer(IAccountAdministration)
class AccountAdministration:
    """Lists, invites, changes and removes accounts for administrators, and records each change.

    :param public_url: the broker's own URL, without a slash at the end.
    """

    def __init__(self, store: AccountStore, clock: IClock, public_url: str) -> None:
        self._store = store
        self._clock = clock
        self._public_url = public_url

    async def accounts(self, after: str = "", limit: int = 50) -> Sequence[AccountSummary]:
        return await self._store.account_summaries(after, limit)

    async def account(self, name: str) -> AccountSummary:
        found = await self._store.account_summary(_normal_name(name))
        if found is None:
            raise _no_such_account(name)
        return found

    async def invite(self, account: str, name: str, is_admin: bool, reason: str = "") -> Invitation:
        name = _normal_name(name)
        try:
            check_name(name)
        except InvalidAccount as error:
            raise Unadministrable(str(error)) from error
        made, digest = self._make_invitation(name)
        change = self._record_of(account, "invite", name, reason)
        if not await self._store.invite(name, is_admin, digest, made.expires_at, change):
            raise Unadministrable(f"there is an account {name} already; choose another name")
        return made

    async def reset(self, account: str, name: str, reason: str = "") -> Invitation:
        """Make a link by which the owner of an account, who has lost the password, signs in."""
        name = _normal_name(name)
        _check_other(account, name)
        made, digest = self._make_invitation(name)
        change = self._record_of(account, "reset", name, reason)
        if not await self._store.reset(name, digest, made.expires_at, change):
            raise _no_such_account(name)
        return made

    def _make_invitation(self, name: str) -> tuple[Invitation, bytes]:
        """A new invitation, and the digest of its secret."""
        secret = new_secret()
        link = f"{self._public_url}{INVITED_PATH}?{urlencode({'key': secret})}"
        return Invitation(name, link, self._clock.wall_seconds() + 7 * DAY), digest_of(secret)

    async def disable(self, account: str, name: str, reason: str) -> None:
        change = self._record_of(account, "disable", name, needed(reason))
        await self._change_account(change, disabled=sentence(change.reason))

    async def enable(self, account: str, name: str, reason: str = "") -> None:
        await self._change_account(self._record_of(account, "enable", name, reason), disabled="")

    async def set_role(self, account: str, name: str, is_admin: bool, reason: str = "") -> None:
        change = self._record_of(account, "promote" if is_admin else "demote", name, reason)
        await self._change_account(change, is_admin=is_admin)

    async def set_limit(
        self, account: str, name: str, max_bytes: int | None, reason: str = ""
    ) -> None:
        change = self._record_of(account, "set limit", name, reason)
        await self._change_account(change, max_bytes=max_bytes)

    async def remove(self, account: str, name: str, reason: str = "") -> None:
        """Remove an account of somebody else; raises ``Unadministrable`` if there is none."""
        _check_other(account, _normal_name(name))
        change = self._record_of(account, "remove account", name, reason)
        if not await self._store.remove(change.object, change):
            raise _no_such_account(name)

    def _record_of(self, account: str, verb: str, name: str, reason: str) -> Change:
        """The record of what the administrator ``account`` did with the account ``name``."""
        return change_by(account, verb, _normal_name(name), reason, self._clock.wall_seconds())

    async def _change_account(self, change: Change, **values: Any) -> None:
        """Store new values of an account, with the record of the change; raises if it is gone."""
        if not await self._store.change_account(change.object, values, change):
            raise _no_such_account(change.object)


def _check_other(account: str, name: str) -> None:
    """Raise if administrators mean their own account."""
    if name == account:  # its page asks for the password, which a thief of a session lacks
        raise Unadministrable(
            "this is your own account: change its password, or remove it, at /account"
        )


def _normal_name(name: str) -> str:
    return name.strip().lower()


def _no_such_account(name: str) -> Unadministrable:
    return Unadministrable(f"there is no account {name}", missing=True)
