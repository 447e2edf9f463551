"""The page ``/account``: the sessions, the password and the API tokens of who has signed in.

Each form on it is sent by ``POST /account`` with ``csrf`` and ``do``, which says what to do:
``end-session``, ``end-sessions``, ``change-password``, ``add-token``, ``remove-token`` or
``remove-account``.  ``GET /account/export`` sends all that belongs to the account, as an archive.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from attrs import define, evolve, field
from twisted.web.server import Request
from twisted.web.template import Flattenable, Tag, tags

from rsscloud_broker.errors import InvalidAccount, SignInFailed, TooMany, Unadministrable
from rsscloud_broker.http.answering import Answer
from rsscloud_broker.http.requests import client_address, number_parameter, parameter
from rsscloud_broker.interfaces import Caller, FrontDoorParts, IAccounts, ICallers, Session, Token
from rsscloud_broker.model.administration import Change
from rsscloud_broker.web.archive import send_archive
from rsscloud_broker.web.callers import NO_STORE, SESSION, Cookies, redirect
from rsscloud_broker.web.words import one_button, strangers_text
from rsscloud_broker.wire.text import parse_number, sentence
from rsscloud_broker.wire.times import iso_time

#: The ids of the headings of the forms, by what the forms do.
_PLACES: Final = {
    "change-password": "password",
    "add-token": "tokens",
    "remove-account": "remove",
}

#: To how many accounts their archives are sent at the same time.
MAX_EXPORTS: Final = 5

#: What browsers and systems are called in what browsers call themselves; the first that is there.
_BROWSERS: Final = {
    "Firefox/": "Firefox",
    "Edg/": "Edge",
    "OPR/": "Opera",
    "Chrome/": "Chrome",
    "Safari/": "Safari",
}
_SYSTEMS: Final = {
    "Android": "Android",
    "iPhone": "an iPhone",
    "iPad": "an iPad",
    "Windows": "Windows",
    "Mac OS X": "macOS",
    "Linux": "Linux",
}

#: What the page says after something was done, by the word in the address to which it leads.
_DONE: Final = {
    "session": "The session has ended.",
    "invited": "Welcome. Choose a password now: the link that brought you here works no more.",
    "password": "Your new password is set, and all your other sessions have ended.",
    "token": "The token has been removed: programs that have it get no access with it any more.",
}


@define(eq=False)
class AccountPage:
    """Shows the page, and does what its forms ask for."""

    _parts: FrontDoorParts
    _accounts: IAccounts
    _callers: ICallers
    _cookies: Cookies
    # The ids of accounts to which archives are being sent.
    _exporting: set[int] = field(factory=set, init=False)

    async def show(self, request: Request, caller: Caller) -> Answer:
        """The page."""
        return await self._page(caller, done=_DONE.get(parameter(request, "done"), ""))

    async def export(self, request: Request, caller: Caller) -> Answer | None:
        """Send all that belongs to the account as an archive; None when it is sent."""
        if self._parts.account_files is None:
            return redirect(self._callers.sign_in_url(request))
        if request.channel is None:
            return None  # the client has hung up
        key = caller.account.id
        if key in self._exporting or len(self._exporting) >= MAX_EXPORTS:
            raise TooMany("such a file is being sent already: wait until it is there", 60)
        self._exporting.add(key)
        try:
            name = {"content-disposition": f'attachment; filename="{caller.name}.zip"'}
            files, now = self._parts.account_files(caller), self._parts.clock.wall_seconds()
            await send_archive(request, files, {**NO_STORE, **name}, now)
        finally:
            self._exporting.discard(key)
        return None

    async def act(self, request: Request, caller: Caller) -> Answer:
        """Do what the field ``do`` of a form asks for; the page says what was wrong with it."""
        actions: dict[str, Callable[[Request, Caller], Awaitable[Answer]]] = {
            "end-session": self._end_session,
            "end-sessions": self._end_sessions,
            "change-password": self._change_password,
            "add-token": self._add_token,
            "remove-token": self._remove_token,
            "remove-account": self._remove_account,
        }
        action = actions.get(parameter(request, "do"))
        self._callers.check_form(request, caller)
        try:
            if action is None:
                return await self._page(caller, problem="This form asks for nothing known here.")
            return await action(request, caller)
        except TooMany as error:
            page = await self._page(caller, request, problem=sentence(str(error)), status=429)
            return evolve(page, headers={**NO_STORE, "retry-after": str(error.retry_after)})
        except (InvalidAccount, SignInFailed, Unadministrable) as error:
            # The error would speak of the name too, which nobody types here.
            problem = "the password is wrong" if isinstance(error, SignInFailed) else str(error)
            return await self._page(caller, request, problem=sentence(problem))

    async def _end_session(self, request: Request, caller: Caller) -> Answer:
        """End one session of the account, and lead back to the page; or to the form to sign
        in, if it is that of this browser.
        """
        session = number_parameter(request, "id")
        if session:
            await self._accounts.end_session(caller, session)
        if caller.session is not None and session == caller.session.id:
            self._cookies.remove(request, SESSION)
            return redirect("/signin")
        return redirect("/account?done=session")

    async def _end_sessions(self, request: Request, caller: Caller) -> Answer:
        """End all sessions, and all tokens if that box is ticked; then lead to the sign-in form."""
        if parameter(request, "tokens"):
            await self._accounts.remove_tokens(caller)  # first: afterwards nobody could try again
        await self._accounts.end_sessions(caller)
        if parameter(request, "tokens"):
            await self._accounts.remove_tokens(caller)  # another session may have made one since
        self._cookies.remove(request, SESSION)
        return redirect("/signin")

    async def _change_password(self, request: Request, caller: Caller) -> Answer:
        """Replace the password; InvalidAccount if the second one differs."""
        new = parameter(request, "new")
        if new != parameter(request, "again"):
            raise InvalidAccount("the new password was typed differently the second time")
        source = client_address(request)
        await self._accounts.change_password(caller, parameter(request, "old"), new, source)
        if parameter(request, "tokens"):
            await self._accounts.remove_tokens(caller)
        return redirect("/account?done=password")

    async def _add_token(self, request: Request, caller: Caller) -> Answer:
        """Make an API token, and show its secret this once."""
        sent = (request.args or {}).get(b"scope", [])
        scopes = {value.decode("utf-8", "replace") for value in sent}
        days, typed = None, parameter(request, "days").strip()
        if typed:
            days = parse_number(typed)
            if days is None:
                raise InvalidAccount("the days are no whole number; leave them empty for no end")
        name = parameter(request, "name")
        password, source = parameter(request, "password"), client_address(request)
        token, secret = await self._accounts.add_token(caller, name, scopes, days, password, source)
        return await self._page(caller, made=token.name, secret=secret)

    async def _remove_token(self, request: Request, caller: Caller) -> Answer:
        token = number_parameter(request, "id")
        if token:
            await self._accounts.remove_token(caller, token)
        return redirect("/account?done=token")

    async def _remove_account(self, request: Request, caller: Caller) -> Answer:
        """Remove the account if the box is ticked and the password is right."""
        if not parameter(request, "sure"):
            raise InvalidAccount("tick that you are sure: nobody can undo this")
        source = client_address(request)
        await self._accounts.remove_account(caller, parameter(request, "password"), source)
        self._cookies.remove(request, SESSION)
        return redirect("/signin?done=removed")

    async def _page(
        self,
        caller: Caller,
        sent: Request | None = None,
        *,
        problem: str = "",
        done: str = "",
        made: str = "",
        secret: str = "",
        status: int = 400,
    ) -> Answer:
        """The page, with status 200 unless there is a problem.

        :param sent: the request with the form that had a problem: its fields are filled in again.
        :param made, secret: the name and the secret of a token that was made just now.
        """
        sessions = await self._accounts.sessions(caller)
        tokens = await self._accounts.tokens(caller)
        scopes = self._accounts.scopes_for(caller)
        lacks_password = await self._accounts.lacks_password(caller)
        place = _PLACES.get(parameter(sent, "do"), "") if sent else ""
        is_token = sent if place == "tokens" else None
        chosen = (is_token.args or {}).get(b"scope", []) if is_token else []
        page = await self._parts.pages.render(
            "Your account",
            "account.html",
            caller,
            name=caller.name,
            role="an administrator's account" if caller.account.is_admin else "an account",
            csrf=caller.csrf,
            problem=tags.a(problem, href=f"#{place}") if place else problem,
            **{f"problem_{each}": problem if each == place else "" for each in _PLACES.values()},
            token_name=parameter(is_token, "name") if is_token else "",
            token_days=parameter(is_token, "days") if is_token else "",
            done=done,
            made=made,
            secret=secret,
            sessions=[_session_item(each, caller) for each in sessions],
            taken_down=[
                tags.li(*_taken_down_item(each)) for each in await self._find_taken_down(caller)
            ],
            tokens=[_token_item(each, caller) for each in tokens] or tags.li("There is none yet."),
            scopes=[
                _scope_box(*each, is_chosen=each[0].encode() in chosen) for each in scopes.items()
            ],
            has_password="" if lacks_password else "yes",
            lacks_password="yes" if lacks_password else "",
        )
        return Answer(page, status=status if problem else 200, headers=NO_STORE)

    async def _find_taken_down(self, caller: Caller) -> Sequence[Change]:
        """What administrators have taken down of the account, since it was made."""
        if self._parts.administration is None:
            return ()
        return await self._parts.administration.taken_down(caller.name, caller.account.created_at)


def _taken_down_item(change: Change) -> Iterator[Flattenable]:
    """The content of an item about something that an administrator has taken down."""
    yield tags.span(strangers_text(change.title or change.object, 200))
    why = strangers_text(sentence(change.reason), 500)
    yield tags.span(_time_element(change.at), ": ", why, class_="where")


def _session_item(session: Session, caller: Caller) -> Tag:
    is_this = caller.session is not None and session.id == caller.session.id
    button = "Sign out" if is_this else "End this session"
    return tags.li(
        tags.span(tags.bdi(browser_name(session.browser), title=session.browser)),
        tags.span(
            "This browser. " if is_this else "",
            "Signed in ",
            _time_element(session.created_at),
            f" from {session.address}, last used ",
            _time_element(session.used_at),
            ".",
            class_="where",
        ),
        one_button(button, "/account", caller.csrf, do="end-session", id=str(session.id)),
    )


def browser_name(text: str) -> str:
    """What people call a browser, such as "Firefox on Linux".

    :param text: what it calls itself.
    """
    browser, system = (
        next((name for part, name in names.items() if part in text), "")
        for names in (_BROWSERS, _SYSTEMS)
    )
    return f"{browser} on {system}" if browser and system else text or "A browser without a name"


def _token_item(token: Token, caller: Caller) -> Tag:
    never: Flattenable = "never"
    return tags.li(
        tags.span(tags.bdi(token.name)),
        tags.span(
            f"Allows {', '.join(sorted(token.scopes))}. Made ",
            _time_element(token.created_at),
            ", last used ",
            never if token.used_at is None else _time_element(token.used_at),
            ", expires ",
            never if token.expires_at is None else _time_element(token.expires_at),
            ".",
            class_="where",
        ),
        one_button("Remove", "/account", caller.csrf, do="remove-token", id=str(token.id)),
    )


def _scope_box(scope: str, help_: str, *, is_chosen: bool) -> Tag:
    ticked = {"checked": "checked"} if is_chosen else {}
    box = tags.input(type="checkbox", name="scope", value=scope, **ticked)
    return tags.label(box, tags.span(tags.code(scope), f": {help_}"), class_="tick")


def _time_element(seconds: float) -> Tag:
    """A time for people, in UTC."""
    when = datetime.fromtimestamp(int(seconds), UTC)
    return tags.time(when.strftime("%Y-%m-%d %H:%M"), datetime=iso_time(seconds))
