"""Joins ``twisted.cred`` with accounts: the checkers that are asked, and the realm.

``twisted.cred`` separates two questions.  A *credentials checker* says whether a name and a
password belong together; checkers are plugins.  The *realm* turns the name into an *avatar*, which
here is an ``Account`` in the store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from twisted.cred.checkers import ICredentialsChecker
from twisted.cred.credentials import IUsernamePassword
from twisted.cred.error import UnauthorizedLogin
from twisted.cred.portal import IRealm
from twisted.internet.defer import maybeDeferred
from zope.interface import Interface, implementer

from rsscloud_broker.accounts.names import is_name
from rsscloud_broker.config import NoOptions
from rsscloud_broker.interfaces import CheckerParts, IAccount
from rsscloud_broker.storage import AccountStore
from rsscloud_broker.util.deferreds import returns_deferred

#: What a checker returns: the name of an account.  ``()`` would be somebody without a name.
AvatarId: TypeAlias = bytes | tuple[()]

#: What a realm returns: the interface of the avatar, the avatar, and what to call at its end.
Avatar: TypeAlias = tuple[type[Interface], object, Callable[[], None]]


@implementer(ICredentialsChecker)
class PasswordChecker:
    """Accepts the passwords that the broker stores."""

    credentialInterfaces = (IUsernamePassword,)

    def __init__(self, options: NoOptions, parts: CheckerParts) -> None:
        self._passwords = parts.passwords

    @returns_deferred
    async def requestAvatarId(self, credentials: IUsernamePassword) -> AvatarId:
        """The name of the account, if the password is right."""
        name, password = (
            bytes(part).decode("utf-8", "replace")
            for part in (credentials.username, credentials.password)
        )
        if not await self._passwords.check(name, password):
            raise UnauthorizedLogin
        return bytes(credentials.username)


@implementer(ICredentialsChecker)
class AnyOf:
    """Asks several checkers, one after the other, until one accepts.

    A portal of ``twisted.cred`` has a single checker for names with passwords.
    """

    credentialInterfaces = (IUsernamePassword,)

    def __init__(self, checkers: Sequence[ICredentialsChecker]) -> None:
        self._checkers = tuple(checkers)

    @returns_deferred
    async def requestAvatarId(self, credentials: IUsernamePassword) -> AvatarId:
        """The name of the account; raises ``UnauthorizedLogin`` if no checker accepts."""
        for checker in self._checkers:
            try:
                found = await maybeDeferred(checker.requestAvatarId, credentials)
            except UnauthorizedLogin:
                continue
            return bytes(found)
        raise UnauthorizedLogin


@implementer(IRealm)
class AccountRealm:
    """The realm of accounts: an avatar is an ``Account`` in the store."""

    def __init__(self, store: AccountStore) -> None:
        self._store = store

    @returns_deferred
    async def requestAvatar(
        self, avatarId: AvatarId, mind: object, *interfaces: type[Interface]
    ) -> Avatar:
        """The account with a name, as ``twisted.cred`` wants it."""
        if IAccount not in interfaces:
            raise NotImplementedError("the only avatars of this realm are accounts (IAccount)")
        name = bytes(avatarId).decode("ascii", "replace")
        stored = await self._store.stored_password(name) if is_name(name) else None
        if stored is None:  # a checker by others knows more people than have accounts here
            raise UnauthorizedLogin
        return IAccount, stored.account, lambda: None
