"""Signs a browser in by a link that works once, without a password: ``/signin/once``.

A broker that was started with ``--local`` prints such a link, and so does the command
``rsscloud-broker account link``::

    http://localhost:5337/signin/once?key=SECRET&next=/write

**GET shows a page with a button, and POST uses the link up.**  Programs that look at a link before
a person does, to show a preview or to scan it, send GET or HEAD, and must not use it up.  A script
on the page presses the button, so a person clicks only once, in the terminal; without scripts the
person presses it.  Such programs run no scripts, and a browser that prepares a page in the
background runs this one when the person looks at it.

**Only browsers on the machine of the broker** may use a link: who can read the terminal there, or
the database, could sign in anyway.  ``Host`` must name this machine, so that no page of a stranger
can ask in its own name (DNS rebinding).

**An invitation**, which an administrator makes, works in every browser: ``/signin/invited``.  It
leads to the page on which its owner chooses a password.  Programs that look at mail before people
do run scripts too, so there a person presses the button.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, urlencode

from attrs import define
from twisted.web.server import Request

from rsscloud_broker.accounts.administration import INVITED_PATH
from rsscloud_broker.errors import SignInFailed
from rsscloud_broker.http.answering import PLAIN, Answer
from rsscloud_broker.http.requests import parameter
from rsscloud_broker.interfaces import FrontDoorParts, IAccounts
from rsscloud_broker.web import callers

LINK_PATH: Final = "/signin/once"

_NOT_HERE: Final = (
    "This link works only in a browser on the machine that the broker runs on, at an address such "
    "as http://localhost:5337. Open it there, or sign in with a password at /signin.\n"
)


def link_to(broker: str, secret: str, next_path: str = "/") -> str:
    """A sign-in link.

    :param broker: the URL of the broker for a browser on its machine, without a slash at the end.
    :param secret: the secret of the link.
    :param next_path: where the link leads after signing in.
    """
    fields = {"key": secret} | ({"next": next_path} if next_path != "/" else {})
    return f"{broker}{LINK_PATH}?{urlencode(fields, quote_via=quote, safe='/')}"


@define(eq=False)
class SignInLink:
    """Answers requests for ``/signin/once`` or ``/signin/invited``.

    :param kind: ``link`` or ``invitation``.
    """

    _parts: FrontDoorParts
    _accounts: IAccounts
    _cookies: callers.Cookies
    _kind: str = "link"

    @property
    def _is_invitation(self) -> bool:
        return self._kind == "invitation"

    async def show(self, request: Request) -> Answer:
        """The page with the button, or what is wrong with the link."""
        if not (self._is_invitation or callers.seems_local(request)):
            return Answer(_NOT_HERE.encode(), PLAIN, 403, callers.NO_STORE)
        account = await self._accounts.account_of_link(parameter(request, "key"), self._kind)
        return await self._page(request, account.name if account else "")

    async def use(self, request: Request) -> Answer:
        """Use the link up, begin a session, and lead on; or say what is wrong with the link."""
        if not (self._is_invitation or callers.seems_local(request)):
            return Answer(_NOT_HERE.encode(), PLAIN, 403, callers.NO_STORE)
        callers.check_first_form(request, self._cookies, self._parts.public_url)
        key, attempt = parameter(request, "key"), callers.attempt_of(request, self._cookies)
        try:
            signed_in = await self._accounts.sign_in_by_link(key, attempt, self._kind)
        except SignInFailed:
            return await self._page(request, "")
        callers.begin_session(request, self._cookies, signed_in, self._parts.clock.wall_seconds())
        if self._is_invitation:
            return callers.redirect("/account?done=invited#password")
        return callers.redirect(callers.local_path(parameter(request, "next")))

    async def _page(self, request: Request, name: str) -> Answer:
        """The page; ``name`` is that of the account, and empty if the link is not valid."""
        page = await self._parts.pages.render(
            "Sign in",
            "sign_in_link.html",
            name=name,
            action=INVITED_PATH if self._is_invitation else LINK_PATH,
            link="" if self._is_invitation or not name else "yes",
            invited="yes" if self._is_invitation and name else "",
            void_link="" if self._is_invitation or name else "yes",
            void_invitation="yes" if self._is_invitation and not name else "",
            key=parameter(request, "key"),
            next=callers.local_path(parameter(request, "next")),
            csrf=callers.form_token(request, self._cookies),
        )
        return Answer(page, status=200 if name else 410, headers=callers.NO_STORE)
