"""The front door for signing in and out: ``/signin``, ``/signout`` and ``/account``.

``GET /signin`` shows the form, and ``POST /signin`` with ``name``, ``password`` and ``csrf`` begins
a session and leads to the path in ``next``, which must be on this broker.  ``POST /signout`` ends
the session.  ``/account`` is the page of the person who has signed in: see ``account_page``.
``/signin/once`` and ``/signin/invited`` sign in by a link: see ``sign_in_link``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from ipaddress import ip_address
from typing import Final
from urllib.parse import quote, urlsplit

from twisted.web.server import Request
from zope.interface import implementer

from rsscloud_broker.accounts.administration import INVITED_PATH
from rsscloud_broker.config import NoOptions
from rsscloud_broker.errors import ForgedForm, SignInFailed, TooMany
from rsscloud_broker.http.answering import Answer, Answers
from rsscloud_broker.http.requests import parameter
from rsscloud_broker.interfaces import FrontDoorParts, IFrontDoor, Route, RoutesOnly
from rsscloud_broker.web import callers
from rsscloud_broker.web.account_page import AccountPage
from rsscloud_broker.web.sign_in_link import LINK_PATH, SignInLink
from rsscloud_broker.wire.text import sentence

#: What people with an account can do, by the application that must run for it.
_USES: Final = {
    "writing": "write here",
    "river": "read the feeds that you follow",
    "hosting": "keep files",
}


@implementer(IFrontDoor)
class AccountsDoor(RoutesOnly):
    """The front door for ``/signin``, ``/signout`` and ``/account``."""

    name = "accounts"

    def __init__(self, options: NoOptions, parts: FrontDoorParts) -> None:
        if parts.accounts is None or parts.callers is None:
            raise ValueError("this front door needs accounts, and the broker has none")
        self._parts = parts
        self._accounts = parts.accounts
        self._callers = parts.callers
        self._cookies = cookies = callers.Cookies(parts.public_url)
        account = AccountPage(parts, parts.accounts, parts.callers, cookies)
        link = SignInLink(parts, parts.accounts, cookies)
        invitation = SignInLink(parts, parts.accounts, cookies, "invitation")
        self._routes = [
            Route("/signin", "GET", Answers(self._show)),
            Route("/signin", "POST", Answers(self._sign_in)),
            Route(LINK_PATH, "GET", Answers(link.show)),
            Route(LINK_PATH, "POST", Answers(link.use)),
            Route(INVITED_PATH, "GET", Answers(invitation.show)),
            Route(INVITED_PATH, "POST", Answers(invitation.use)),
            Route("/signout", "POST", Answers(self._sign_out)),
            Route("/account", "GET", callers.for_signed_in(parts.callers, account.show)),
            Route("/account", "POST", callers.for_signed_in(parts.callers, account.act)),
            Route("/account/export", "GET", callers.for_signed_in(parts.callers, account.export)),
        ]

    def routes(self) -> Sequence[Route]:
        return self._routes

    async def _show(self, request: Request) -> Answer:
        """The form to sign in; who has signed in already is led on."""
        if await self._callers.caller(request) is not None:
            return callers.redirect(_path_in_next(request))
        return await self._form(request, 200)

    async def _sign_in(self, request: Request) -> Answer:
        """Begin a session, and lead on; or the form with what was wrong."""
        name, password = parameter(request, "name"), parameter(request, "password")
        attempt = callers.attempt_of(request, self._cookies, name, password)
        try:
            callers.check_first_form(request, self._cookies, self._parts.public_url)
            signed_in = await self._accounts.sign_in(attempt)
        except TooMany as error:
            later = {"retry-after": str(error.retry_after)}
            return await self._form(request, 429, str(error), later)
        except (ForgedForm, SignInFailed) as error:
            return await self._form(request, 403, str(error))
        callers.begin_session(request, self._cookies, signed_in, self._parts.clock.wall_seconds())
        return callers.redirect(_path_in_next(request))

    async def _sign_out(self, request: Request) -> Answer:
        """End the session, and lead to the front page.

        A browser sends no cookie with a form of another site.  It would obey an answer that
        removes the cookie all the same, so only a form that has passed the check gets that.
        """
        caller = await self._callers.caller(request)
        if caller is None or caller.session is None:
            return callers.redirect("/")
        self._callers.check_form(request, caller)
        await self._accounts.sign_out(self._cookies.get(request, callers.SESSION))
        self._cookies.remove(request, callers.SESSION)
        return callers.redirect("/")

    async def _form(
        self, request: Request, status: int, message: str = "", headers: Mapping[str, str] = {}
    ) -> Answer:
        page = await self._parts.pages.render(
            "Sign in",
            "sign_in.html",
            message=sentence(message) if message else "",
            removed="removed" if parameter(request, "done") == "removed" else "",
            name=parameter(request, "name"),
            uses=_uses_sentence(self._parts.running),
            next=_path_in_next(request),
            csrf=callers.form_token(request, self._cookies),
            # A warning, about the password.
            open="open" if _others_can_read(self._parts.public_url) else "",
        )
        return Answer(page, status=status, headers={**callers.NO_STORE, **headers})


def _path_in_next(request: Request) -> str:
    """The path to which a sign-in leads."""
    text = quote(parameter(request, "next"), safe="!#$%&'()*+,/:;=?@[]~")
    path = callers.local_path(text, "/account")
    return "/account" if urlsplit(path).path in {"/signin", "/signout"} else path


def _uses_sentence(running: Set[str]) -> str:
    """What an account is for, in a sentence."""
    *some, last = [text for name, text in _USES.items() if name in running] or [
        "look after this broker, if you are one of its administrators"
    ]
    return f"With an account you {', '.join(some)}{' and ' if some else ''}{last}."


def _others_can_read(public_url: str) -> bool:
    """Whether others can read what is sent to a URL: it is not HTTPS, and not of this machine."""
    parts = urlsplit(public_url)
    host = parts.hostname or ""
    try:
        is_here = ip_address(host).is_loopback
    except ValueError:
        is_here = host == "localhost"
    return parts.scheme != "https" and not is_here
