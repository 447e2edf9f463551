"""The site with accounts, and a browser that keeps cookies, without sockets."""

from __future__ import annotations

from collections.abc import Mapping, Set
from http.cookies import SimpleCookie
from typing import Any, Protocol
from urllib.parse import urlencode

from lxml import html
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.config import AccountsConfig as AccountOptions
from rsscloud_broker.config import Http, NoOptions
from rsscloud_broker.counters import Counters
from rsscloud_broker.http.limits import HTTPLimits, bounded_site
from rsscloud_broker.http.site import Root
from rsscloud_broker.interfaces.accounts import AccountFiles
from rsscloud_broker.testing import front_door_parts
from rsscloud_broker.web.callers import Callers
from rsscloud_broker.web.front_page import FrontPageDoor, FrontPageOptions
from rsscloud_broker.web.pages import PageRenderer
from rsscloud_broker.web.sign_in import AccountsDoor
from tests.accounts.fixture import PASSWORD, PATIENT, AccountHouse
from tests.front_doors.exchange import FORM, Answer, ask

PUBLIC_URL = "https://broker.example"


class AccountSite(AccountHouse):
    """Accounts, and the pages for them.

    :ivar doors: the front doors of these pages.
    """

    def __init__(
        self,
        case: SynchronousTestCase,
        options: AccountOptions = PATIENT,
        public_url: str = PUBLIC_URL,
        account_files: AccountFiles | None = None,
        running: Set[str] = frozenset(),
    ) -> None:
        super().__init__(case, options)
        self.callers = Callers(self.accounts, public_url)
        pages = PageRenderer()
        parts = front_door_parts(
            pages=pages,
            clock=self.clock,
            public_url=public_url,
            running=frozenset({"accounts", "front_page", *running}),
            accounts=self.accounts,
            callers=self.callers,
            account_files=account_files,
        )
        self.parts = parts
        self.doors = [
            AccountsDoor(NoOptions(), parts),
            FrontPageDoor(FrontPageOptions(), parts),
        ]
        limits = HTTPLimits(Http(), self.clock)
        root = Root(self.doors, public_url)
        self.factory = bounded_site(root, limits, Counters(), pages.error)


class Site(Protocol):
    """Something that takes connections."""

    factory: Any


class Browser:
    """A browser: it keeps cookies, and sends the forms of the page that it shows.

    :ivar cookies: the cookies by name.
    :ivar attributes: the attributes with which each cookie was set.
    :ivar page: the last page, parsed.
    """

    def __init__(self, site: Site, source: str = "192.0.2.7") -> None:
        self._site = site
        self._source = source
        self.cookies: dict[str, str] = {}
        self.attributes: dict[str, Any] = {}
        self.page: Any = None

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send one request with the cookies, and keep those of the answer."""
        sent = {"User-Agent": "A Browser/1", "Accept": "text/html", **(headers or {})}
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        answer = ask(self._site.factory, method, path, body, sent, self._source)
        for line in answer.headers.get_all("set-cookie") or []:
            for name, morsel in SimpleCookie(line).items():
                self.attributes[name] = morsel
                if morsel["max-age"] == "0":
                    self.cookies.pop(name, None)
                else:
                    self.cookies[name] = morsel.value
        if answer.body and answer.headers.get_content_type() == "text/html":
            self.page = html.document_fromstring(answer.text)
        return answer

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, headers={k.replace("_", "-"): v for k, v in headers.items()})

    def post(
        self, path: str, fields: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send a form, with the fields that are given and no others."""
        body = urlencode(fields, doseq=True).encode("ascii")
        return self.ask("POST", path, body, {"Content-Type": FORM, **(headers or {})})

    def send(self, button: str, headers: Mapping[str, str] | None = None, **fields: Any) -> Answer:
        """Fill in the form of a button on the page, and send it."""
        (form,) = self.page.xpath(f"//form[.//button[text()='{button}']]")
        hidden = {each.get("name"): each.get("value") for each in form.xpath(".//input[@value]")}
        ticked = {name: value for name, value in hidden.items() if name not in {"scope", "tokens"}}
        assert form.get("method") == "post"
        return self.post(form.get("action"), {**ticked, **fields}, headers)

    @property
    def csrf(self) -> str:
        """The token that the forms of the page send."""
        (token,) = self.page.xpath("//header//input[@name='csrf']/@value")
        return str(token)

    def ask_for(self, what: str, **fields: str) -> Answer:
        """Ask for something as the page of the account does, in its words."""
        return self.post("/account", {"csrf": self.csrf, "do": what, **fields})

    def sign_in(
        self, name: str = "dave", password: str = PASSWORD, path: str = "/signin"
    ) -> Answer:
        self.get(path)
        return self.send("Sign in", name=name, password=password)

    def said(self, xpath: str = "//*[@role='alert' or @role='status']") -> str:
        """The text of an element of the page."""
        return " ".join(str(self.page.xpath(f"string({xpath})")).split())

    def viewer(self) -> str:
        """Who has signed in, as the frame of the page says."""
        return str(self.page.xpath("string(//header//details[.//a[@href='/account']]/summary)"))
