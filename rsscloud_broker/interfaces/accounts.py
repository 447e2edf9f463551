"""The interfaces for accounts: who may do what, who signs in, and who calls.

An *account* belongs to a person or a program that the operator knows.  A person signs in with a
password and gets a *session*, whose secret is in a cookie; a *sign-in link* does the same once,
without a password.  A program sends an API *token*.  A *caller* is an account that a request was
made for, by a session or a token.

Front doors find out who calls with ``ICallers``, which reads requests.  What accounts can do is in
``IAccounts``, which knows no HTTP.  ``storage.AccountStore`` keeps all of these.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from attrs import field
from twisted.web.server import Request
from zope.interface import Attribute, Interface, implementer

from rsscloud_broker.interfaces.broker import IClock
from rsscloud_broker.model.frozen import frozen

#: The scopes, with what each allows.  A session of an administrator has all of them,
#: and other sessions have those of ``OF_EVERYBODY``.
SCOPES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "admin": "do everything that an administrator may do",
        "metrics": "read the metrics and the health of the broker",
        "publish": "save feeds and post",
        "river": "read the river of the account, and change its reading list",
    }
)

#: The scopes that each account has.
OF_EVERYBODY: Final = frozenset({"publish", "river"})


class IAccount(Interface):
    """An account, as ``twisted.cred`` hands it out: the avatar of a person who has signed in."""

    id = Attribute("A number that no other account ever has.")
    name = Attribute("The name, a str.")
    is_admin = Attribute("Whether the account is an administrator's.")


@implementer(IAccount)
@frozen
class Account:
    """An account.

    :ivar id: a number that no other account ever has.
    :ivar name: the name: 2 to 32 of ``a-z0-9-``.
    :ivar is_admin: whether it is an administrator's.
    :ivar created_at: when it was made.
    :ivar signed_in_at: when somebody last signed in; None if nobody ever did.
    :ivar disabled: why an administrator has disabled it; empty if none has.  Nobody can sign in to
        a disabled account, and its tokens do not work; what it has published stays.
    :ivar max_bytes: the most bytes that an application may store for it; None for what the
        options of the application say.
    """

    id: int
    name: str
    is_admin: bool
    created_at: float
    signed_in_at: float | None = None
    disabled: str = ""
    max_bytes: int | None = None


@frozen
class StoredPassword:
    """What is stored of an account's password.

    :ivar hash: the hash in PHC string format; empty if the account has no password here.
    """

    account: Account
    hash: str = field(repr=False)


@frozen
class Session:
    """A session: one browser in which somebody has signed in.

    :ivar id: a number; the session's secret is only in the browser.
    :ivar created_at: when somebody signed in.
    :ivar used_at: when the session was last used, to the minute.
    :ivar expires_at: when it ends even if it is used.
    :ivar address: where the sign-in came from.
    :ivar browser: what the browser called itself.
    """

    id: int
    created_at: float
    used_at: float
    expires_at: float
    address: str
    browser: str


@frozen
class Token:
    """An API token.

    :ivar id: a number; the token's secret is known only to whom it was shown.
    :ivar name: what it is for, in the words of its owner.
    :ivar scopes: what it allows, of ``SCOPES``.
    :ivar created_at: when it was made.
    :ivar expires_at: when it expires; None for never.
    :ivar used_at: when it was last used, to the minute; None if it never was.
    """

    id: int
    name: str
    scopes: frozenset[str]
    created_at: float
    expires_at: float | None = None
    used_at: float | None = None


@frozen
class Caller:
    """The account that a request was made for.

    :ivar scopes: what the caller may do, of ``SCOPES``.
    :ivar csrf: the token that each form of this session must send back; empty if the caller sent
        an API token, which no browser adds by itself.
    :ivar session: the session; None if the caller sent an API token.
    """

    account: Account
    scopes: frozenset[str]
    csrf: str = field(default="", repr=False)
    session: Session | None = None

    @property
    def name(self) -> str:
        """The name of the account."""
        return self.account.name

    @property
    def is_admin(self) -> bool:
        """Whether the caller may do what administrators do."""
        return self.account.is_admin and "admin" in self.scopes


@frozen
class SignIn:
    """An attempt to sign in.

    :ivar name: the name as it was typed.
    :ivar password: the password as it was typed.
    :ivar source: the address of the caller.
    :ivar browser: what the browser calls itself.
    :ivar known: the ``SignedIn.known`` that the browser keeps in a cookie; empty if it has none.
    :ivar former: the secret of a session that this one replaces; empty if there is none.
    """

    name: str
    password: str = field(repr=False)
    source: str
    browser: str = ""
    known: str = field(default="", repr=False)
    former: str = field(default="", repr=False)


@frozen
class SignedIn:
    """The result of a sign-in.

    :ivar caller: who has signed in.
    :ivar secret: the secret of the new session.
    :ivar expires_at: when the session ends.
    :ivar known: the mark that proves later that somebody signed in to this account in this browser.
    """

    caller: Caller
    secret: str = field(repr=False)
    expires_at: float
    known: str = field(repr=False)


@frozen
class AccountFile:
    """A file with something that an application keeps for an account, for the owner to take away.

    :ivar name: its path, of parts that are separated by slashes; no other file has it.
    :ivar pieces: the bytes, in pieces that fit into memory.
    """

    name: str
    pieces: AsyncIterator[bytes]


@frozen
class RefusedSignIn:
    """An attempt to sign in that was refused.

    :ivar name: the name that was tried; empty if no account can have it.
    :ivar source: the address of the caller.
    :ivar at: when.
    """

    name: str
    source: str
    at: float


class IPasswords(Interface):
    """Checks the passwords that the broker stores."""

    def check(name: str, password: str) -> Awaitable[bool]:
        """Whether this is the password of the account with this name.

        Takes the same time whether or not there is such an account.

        :raises TooMany: too many passwords are being checked at once.
        """


class IAccounts(Interface):
    """What accounts can do: sign in and out, and manage their sessions, tokens and passwords."""

    def caller_of_session(secret: str) -> Awaitable[Caller | None]:
        """The caller with a session; None if it has ended or there never was one."""

    def caller_of_token(secret: str) -> Awaitable[Caller | None]:
        """The caller with an API token; None if it has expired or there is no such token."""

    def caller_of_password(name: str, password: str, source: str) -> Awaitable[Caller]:
        """The caller with a name and a password, which a program sends with each request.

        The caller has the scope ``publish`` and no other.  A password that was right is
        remembered in memory for as long as a session would last, or until it is changed; such a
        request is no attempt that counts for the limits.  Otherwise it is an attempt to sign in,
        whose time and error do not tell whether there is such an account.

        :param source: the address of the caller.
        :raises SignInFailed: the name or the password is wrong.
        :raises TooMany: as for ``sign_in``.
        """

    def sign_in(attempt: SignIn) -> Awaitable[SignedIn]:
        """Check a name and a password, and begin a session.

        The time and the error do not tell whether there is an account with this name.

        :raises SignInFailed: the name or the password is wrong.
        :raises TooMany: too many attempts came from this source, or for this name.
        """

    def account_of_link(secret: str, kind: str = ...) -> Awaitable[Account | None]:
        """The account that a sign-in link is for; None if it was used or has expired.

        This does not use the link up.

        :param kind: ``link``, or ``invitation`` for one that an administrator has made.
        """

    def sign_in_by_link(secret: str, attempt: SignIn, kind: str = ...) -> Awaitable[SignedIn]:
        """Use a sign-in link up, and begin a session of its account.

        :param secret, kind: as for ``account_of_link``.
        :param attempt: who signs in; the name and the password do not matter.
        :raises SignInFailed: the link was used or has expired.
        """

    def refused_sign_ins() -> Sequence[RefusedSignIn]:
        """The attempts to sign in at this process that were refused in the last hour: the last
        thousand.
        """

    def sign_out(secret: str) -> Awaitable[None]:
        """End the session with this secret, if there is one."""

    def sessions(caller: Caller) -> Awaitable[Sequence[Session]]:
        """The sessions of a caller's account that have not ended, the last used one first."""

    def end_session(caller: Caller, session: int) -> Awaitable[bool]:
        """End one of the sessions of a caller's account.  Returns whether it had this one."""

    def end_sessions(caller: Caller) -> Awaitable[int]:
        """End all sessions of a caller's account.  Returns how many there were."""

    def change_password(caller: Caller, old: str, new: str, source: str) -> Awaitable[None]:
        """Change the password of a caller's account, and end its other sessions.

        :param old: the present password; it does not matter if the account lacks one.
        :raises SignInFailed: the old password is wrong.
        :raises InvalidAccount: the new password cannot be used, or the caller's session has ended.
        :raises TooMany: as for ``sign_in``.
        """

    def remove_account(caller: Caller, password: str, source: str) -> Awaitable[None]:
        """Remove a caller's account, with its sessions and API tokens.

        Applications delete what it has published, within seconds.

        :param password: the password of the account.  If the account lacks one, the caller must
            have signed in less than an hour ago.
        :raises SignInFailed: the password is wrong.
        :raises InvalidAccount: the caller has not signed in lately.
        :raises Unadministrable: nobody would be an administrator any more.
        :raises TooMany: as for ``sign_in``.
        """

    def lacks_password(caller: Caller) -> Awaitable[bool]:
        """Whether a caller's account has no password yet, and may get one here.

        Somebody who signs in by a link may have none.
        """

    def scopes_for(caller: Caller) -> Mapping[str, str]:
        """The scopes that the tokens of a caller may have, with what each allows."""

    def tokens(caller: Caller) -> Awaitable[Sequence[Token]]:
        """The API tokens of a caller's account that have not expired."""

    def add_token(
        caller: Caller,
        name: str,
        scopes: Collection[str],
        days: int | None,
        password: str,
        source: str,
    ) -> Awaitable[tuple[Token, str]]:
        """Make an API token for a caller's account.

        :param name: what it is for.
        :param days: after how many days it expires; None for never.
        :param password: the password of the account, so that nobody who only finds a browser
            signed in gets a token, which would outlive the session.
        :param source: the address of the caller.
        :returns: the token and its secret, which nobody can find out later.
        :raises SignInFailed: the password is wrong.
        :raises TooMany: as for ``sign_in``.
        :raises InvalidAccount: the name, the scopes or the days cannot be used, the account has
            too many tokens, or the caller's session has ended.
        """

    def remove_token(caller: Caller, token: int) -> Awaitable[bool]:
        """Delete an API token of a caller's account.  Returns whether it had this one."""

    def remove_tokens(caller: Caller) -> Awaitable[int]:
        """Delete all API tokens of a caller's account.  Returns how many there were."""


class ICallers(Interface):
    """Finds out who makes a request."""

    def caller(request: Request) -> Awaitable[Caller | None]:
        """The caller of a request, by its session cookie or by ``Authorization: Bearer TOKEN``.

        None if there is neither, or what there is has expired.  If there are both, the token
        counts, since only a program sends one.

        :raises Unavailable: the store cannot be read.
        """

    def check_form(request: Request, caller: Caller) -> None:
        """Check that a form was sent by a page of the broker and not by another site (CSRF).

        A caller with an API token needs no such check, and always passes.

        :raises ForgedForm: the form has no field ``csrf`` with the caller's ``csrf``, or the
            browser says that another site sent it.
        """

    def is_confidential(request: Request) -> bool:
        """Whether nobody on the way could read a request, and with it a password.

        It came over TLS, to the broker or to a trusted proxy, or from a program on this machine.
        """

    def sign_in_url(request: Request) -> str:
        """The path of the page to sign in, which leads back to a request's page afterwards."""


@frozen
class CheckerParts:
    """What a credentials checker may need.  Its maker is given those of these that it names in
    ``needs``.

    :ivar passwords: checks the passwords that the broker stores.
    :ivar clock: the time.
    :ivar in_thread: calls a function in a thread, for work that would block the reactor.
    """

    passwords: IPasswords
    clock: IClock
    in_thread: Callable[..., Awaitable[Any]]


#: Returns all that is kept for the account of a caller.
AccountFiles: TypeAlias = Callable[[Caller], AsyncIterator[AccountFile]]
