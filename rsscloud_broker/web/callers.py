"""Finds out who makes a request: reads session cookies and API tokens, and checks forms.

**Cookies.**  On a broker with an HTTPS address the cookies have the prefix ``__Host-`` and the
attribute Secure, so that browsers send them over TLS only, and other hosts of the same domain can
neither read nor set them (RFC 6265bis, section 4.1.3.2).  All are HttpOnly and SameSite=Lax.

**Forms.**  A form of a signed-in person has the field ``csrf``, which other sites cannot know.  In
addition the broker looks at the headers in which browsers say which site sent the form.  The form
to sign in has such a field too, which must be equal to a cookie: otherwise another site could sign
people in to an account of its own.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import quote, urlsplit

from twisted.web.server import Request
from zope.interface import implementer

from rsscloud_broker.errors import ForgedForm
from rsscloud_broker.http.answering import Answer, Answered, Answers
from rsscloud_broker.http.requests import bearer_token, client_address, header, parameter
from rsscloud_broker.http.tracing import TracedRequest
from rsscloud_broker.interfaces import Caller, IAccounts, ICallers, SignedIn, SignIn
from rsscloud_broker.wire.web_address import MAX_URL

#: The characters of a path with a query on this broker; none that a browser would leave out, and
#: no backslash, which browsers take for a slash.
_LOCAL: Final = re.compile(r"/(?:[!-.0-\[\]-~][!-\[\]-~]*)?")

#: The token of the form to sign in, as ``form_token`` makes it.
_TOKEN: Final = re.compile("[A-Za-z0-9_-]{32}")

#: The names of the cookies: of the session, of the form to sign in, and of what proves that
#: somebody has signed in with this browser before.
SESSION, FORM, KNOWN = "session", "form", "known"

#: Pages for one person are kept by no cache.
NO_STORE: Final = {"cache-control": "no-store"}


def seems_local(request: Request) -> bool:
    """Whether a program on this machine made a request, and no page of a stranger caused it.

    A proxy on this machine that hides for whom it asks passes for such a program, so this is only
    for requests that have a secret as well.  False if the request cannot tell.
    """
    return isinstance(request, TracedRequest) and request.seems_local()


class Cookies:
    """Reads and sets the cookies of this broker.

    :param public_url: the broker's own URL.
    """

    def __init__(self, public_url: str) -> None:
        self._is_secure = public_url.startswith("https:")
        self._prefix = "__Host-rsscloud-" if self._is_secure else "rsscloud-"

    def get(self, request: Request, name: str) -> str:
        """The value of a cookie; empty if the browser has none."""
        value: bytes | None = request.getCookie(f"{self._prefix}{name}".encode("ascii"))
        return (value or b"").decode("latin-1")

    def put(self, request: Request, name: str, value: str, seconds: float | None = None) -> None:
        """Set a cookie.

        :param seconds: how long the browser keeps it; None for until the browser is closed.
        """
        request.addCookie(
            f"{self._prefix}{name}",
            value,
            path="/",
            max_age=None if seconds is None else str(int(seconds)),
            secure=self._is_secure,
            httpOnly=True,
            sameSite="lax",
        )

    def remove(self, request: Request, name: str) -> None:
        """Have the browser forget a cookie."""
        self.put(request, name, "", 0)


@implementer(ICallers)
class Callers:
    """Implements ``ICallers`` for the pages and the other front doors.

    :param public_url: the broker's own URL.
    """

    def __init__(self, accounts: IAccounts, public_url: str) -> None:
        self._accounts = accounts
        self._cookies = Cookies(public_url)
        self._origin = origin_of(public_url)
        self._is_secure = public_url.startswith("https:")

    async def caller(self, request: Request) -> Caller | None:
        """Who makes the request, by its token or its cookie; None for a stranger."""
        if token := bearer_token(request):
            return await self._accounts.caller_of_token(token)
        secret = self._cookies.get(request, SESSION)
        return await self._accounts.caller_of_session(secret) if secret else None

    def check_form(self, request: Request, caller: Caller) -> None:
        """Raise ForgedForm unless a form of a session came from a page of the broker."""
        if caller.session is None:
            return
        check_sender(request, self._origin)
        if not hmac.compare_digest(_sent_token(request), caller.csrf.encode("ascii")):
            raise ForgedForm(
                "the form does not belong to your session: you may have signed in anew meanwhile; "
                "load its page again, and send it from there"
            )

    def is_confidential(self, request: Request) -> bool:
        """Whether nobody else can read the request: it came over TLS, or from this machine."""
        if not isinstance(request, TracedRequest):
            return bool(request.isSecure())
        # A proxy that does not say how it was called is called by the broker's own URL.
        sent_by = request.sent_by()
        return sent_by == "https" or (not sent_by and self._is_secure) or request.is_local()

    def sign_in_url(self, request: Request) -> str:
        target = request.uri if request.method in {b"GET", b"HEAD"} else request.path
        return f"/signin?next={quote(local_path(target.decode('latin-1')), safe='/')}"


def for_signed_in(
    callers: ICallers, respond: Callable[[Request, Caller], Awaitable[Answered]]
) -> Answers:
    """A resource for who has signed in with a browser; who has not is led to the form for that.

    :param respond: takes a request and who makes it, and returns the answer.
    """

    async def answer(request: Request) -> Answered:
        caller = await callers.caller(request)
        if caller is None or caller.session is None:
            return redirect(callers.sign_in_url(request))
        return await respond(request, caller)

    return Answers(answer)


def attempt_of(request: Request, cookies: Cookies, name: str = "", password: str = "") -> SignIn:
    """An attempt to sign in; by a link it has neither a name nor a password."""
    return SignIn(
        name=name,
        password=password,
        source=client_address(request),
        browser=header(request, "user-agent"),
        known=cookies.get(request, KNOWN),
        former=cookies.get(request, SESSION),
    )


def begin_session(request: Request, cookies: Cookies, signed_in: SignedIn, now: float) -> None:
    """Have a browser keep the secret of a session, and proof that somebody has signed in with it.

    :param now: the present time, in seconds since the epoch.
    """
    cookies.put(request, SESSION, signed_in.secret, signed_in.expires_at - now)
    if signed_in.known:
        # A browser keeps it for a year.
        cookies.put(request, KNOWN, signed_in.known, 365 * 86_400)


def form_token(request: Request, cookies: Cookies) -> str:
    """The token for a form of somebody who has not signed in; sets its cookie if need be."""
    token = cookies.get(request, FORM)
    if not _TOKEN.fullmatch(token):
        token = secrets.token_urlsafe(24)
        cookies.put(request, FORM, token)
    return token


def check_first_form(request: Request, cookies: Cookies, public_url: str) -> None:
    """Check a form of somebody who has not signed in, for which ``form_token`` made a token.

    :raises ForgedForm: it did not come from a page of the broker.
    """
    check_sender(request, origin_of(public_url))
    token = cookies.get(request, FORM)
    if not _TOKEN.fullmatch(token) or not hmac.compare_digest(
        _sent_token(request), token.encode("ascii")
    ):
        raise ForgedForm(
            "your browser did not send the cookie that belongs to this form: allow cookies for "
            "this site, load the page again, and send the form from there"
        )


def check_sender(request: Request, origin: str) -> None:
    """Check that a browser does not say that another site sent a form.

    Pages of the broker send no referrer, so browsers send their forms with ``Origin: null``.

    :param origin: the origin of the broker's own URL.
    :raises ForgedForm: another site sent it.
    """
    site = header(request, "sec-fetch-site")
    said = header(request, "origin")
    # Behind a proxy the broker may be reached by a URL that it does not know.
    host = header(request, "host").lower()
    own = {"", "null", origin, f"http://{host}", f"https://{host}"}
    if site not in {"", "same-origin", "none"} or said.lower() not in own:
        raise ForgedForm(
            "another site sent this form; open the page of this broker, and send it from there"
        )


def origin_of(url: str) -> str:
    """The origin of a URL as browsers write it (RFC 6454, section 6.2)."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}".lower()


def local_path(text: str, otherwise: str = "/") -> str:
    """A path on this broker with its query; another one if the text is not such a path.

    Nobody can use it to lead people to another site.
    """
    is_local = len(text) <= MAX_URL and _LOCAL.fullmatch(text) is not None
    return text if is_local else otherwise


def redirect(path: str) -> Answer:
    """An answer that leads a browser to a path on this broker, by GET."""
    return Answer(b"", status=303, headers={"location": path, **NO_STORE})


def _sent_token(request: Request) -> bytes:
    """The token that came with a form, in its field ``csrf``."""
    return parameter(request, "csrf").encode("utf-8", "replace")
