"""A writer: signs in to a broker and publishes messages by its forms, as a browser does."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import (
    HTTPCookieProcessor,
    HTTPRedirectHandler,
    ProxyHandler,
    Request,
    build_opener,
)

from lxml import html

from tests.e2e.fixture import TIMEOUT, Answer, Broker


def multipart(fields: Mapping[str, str], file: tuple[str, bytes] | None = None) -> bytes:
    """A form with a file, in its encoding."""
    head = '--b0undary\r\nContent-Disposition: form-data; name="{}"{}\r\n\r\n'
    pieces = [f"{head.format(name, '')}{value}\r\n".encode() for name, value in fields.items()]
    name, data = file or ("", b"")
    pieces.append(head.format("file", f'; filename="{name}"').encode() + data + b"\r\n")
    return b"".join([*pieces, b"--b0undary--\r\n"])


class _NoRedirects(HTTPRedirectHandler):
    """Leaves redirections to the caller."""

    def redirect_request(self, *args: object, **kwargs: object) -> None:
        return None


class Writer:
    """Somebody with an account at a broker, in a browser that keeps cookies."""

    def __init__(self, broker: Broker, name: str, password: str) -> None:
        self._broker = broker
        self._name = name
        self._password = password
        self._cookies = HTTPCookieProcessor()
        self._opener = build_opener(ProxyHandler({}), self._cookies, _NoRedirects)

    @property
    def cookie(self) -> str:
        """The value of the Cookie header that the browser sends."""
        return "; ".join(f"{each.name}={each.value}" for each in self._cookies.cookiejar)

    def sign_in(self) -> None:
        """Sign in; the account must be there."""
        fields = {"csrf": self._csrf("/signin"), "name": self._name, "password": self._password}
        answer = self._ask("/signin", urlencode(fields).encode())
        assert answer.status == 303, answer.text

    def post(self, text: str, file: tuple[str, bytes] | None = None, **more: str) -> Answer:
        """Publish a message; the answer of the broker, which is a redirection if it worked."""
        fields = {"csrf": self._csrf("/write"), "do": "post", "id": "", "text": text, **more}
        kind = "multipart/form-data; boundary=b0undary"
        return self._ask("/write", multipart(fields, file), {"content-type": kind})

    def _csrf(self, path: str) -> str:
        page = html.document_fromstring(self._ask(path).text)
        return str(page.xpath("string(//main//input[@name='csrf']/@value)"))

    def _ask(
        self, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        asked = Request(f"{self._broker.url}{path}", body, dict(headers or {}))
        try:
            answer = self._opener.open(asked, timeout=TIMEOUT)
        except HTTPError as error:
            answer = error  # which is the answer, too
        with answer:
            named = {name.lower(): value for name, value in answer.headers.items()}
            return Answer(answer.status, named, answer.read())
