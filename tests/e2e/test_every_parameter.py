"""No parameter of any route makes a traceback, whatever strangers put into it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from attrs import frozen
from lxml import html

from rsscloud_broker.interfaces.accounts import SCOPES
from tests.e2e.every_route import every_route, with_applications
from tests.e2e.fixture import Broker, EndToEndTestCase
from tests.e2e.writing import Writer
from tests.postgresql import empty_database

ACCOUNT, PASSWORD = "dave", "correct horse"

#: What strangers send: NUL, half of a pair of surrogates (which UTF-8 forbids), and a URL whose
#: host does not end.
BAD: Final = (b"\x00", b"\xed\xa0\x80", b"http://[")

#: The same in JSON, which can have half of a pair.
BAD_JSON: Final = (b'"\\u0000"', b'"\\ud800"', b'"http://["', b"1e999", b"[[[[]]]]", b"null")

#: For which all parameters of a route are given at once.
MEGABYTE: Final = b"a" * 2**20

#: What other parameters have, so that a route looks at more than the first one.
PLAUSIBLE: Final = {
    "hub.mode": b"subscribe",
    "hub.topic": b"http://127.0.0.1:9/feed",
    "hub.callback": b"http://127.0.0.1:9/",
    "protocol": b"http-post",
    "port": b"9",
    "path": b"/",
    "url": b"http://127.0.0.1:9/feed",
    "name": b"A site",
    "h": b"entry",
    "q": b"source",
}

_FORM: Final = "application/x-www-form-urlencoded"
_THREADS: Final = 6

#: The media types of answers that do not end.
_ENDLESS: Final = {"text/event-stream", "application/x-ndjson", "application/jsonl"}


@frozen
class Asked:
    """A request."""

    method: str
    target: str
    body: bytes | None = None
    content_type: str = _FORM

    def __str__(self) -> str:
        return f"{self.method} {self.target[:300]} {(self.body or b'')[:300]!r}"


def _asked(method: str, path: str, fields: Mapping[str, bytes]) -> Asked:
    given = urlencode(fields)
    if method == "GET":
        return Asked(method, f"{path}?{given}")
    return Asked(method, path, given.encode())


def every_request() -> Iterator[Asked]:
    """All that is sent."""
    names: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for route in every_route(ACCOUNT):
        names[route.method, route.path.rstrip("/") or "/"] |= route.parameters
    for (method, path), known in names.items():
        yield from _with_fields(method, path, known)
        yield from (
            _in_the_path(method, path) if method == "GET" else _with_bodies(method, path, known)
        )


def _with_fields(method: str, path: str, known: Set[str]) -> Iterator[Asked]:
    for name in sorted(known):
        others = {each: PLAUSIBLE[each] for each in sorted(known & PLAUSIBLE.keys() - {name})}
        for bad in BAD:
            yield _asked(method, path, others | {name: bad})
    yield _asked(method, path, dict.fromkeys(sorted(known), b""))
    yield Asked(method, path)


def _in_the_path(method: str, path: str) -> Iterator[Asked]:
    if ACCOUNT in path:
        for bad in BAD:
            yield Asked(method, path.replace(ACCOUNT, quote(bad, safe="")))


def _with_bodies(method: str, path: str, known: Set[str]) -> Iterator[Asked]:
    for bad in (*BAD, b"{"):
        for kind in ("application/json", "text/xml", "multipart/form-data; boundary=["):
            yield Asked(method, path, bad, kind)
    for value in BAD_JSON:
        pairs = (json.dumps(name).encode() + b": " + value for name in sorted(known))
        yield Asked(method, path, b"{%s}" % b", ".join(pairs), "application/json")
    yield _asked(method, path, dict.fromkeys(sorted(known)[:1] or ["x"], MEGABYTE))
    yield Asked(method, path, b'"%s"' % MEGABYTE, "application/json")


class Client:
    """Sends requests over a connection that stays open, and keeps those that failed.

    :ivar faults: the requests that it answered with status 500, and the like.
    """

    def __init__(self, broker: Broker, headers: Mapping[str, str]) -> None:
        self._headers = headers
        self._where = urlsplit(broker.url)
        self._connection = HTTPConnection(self._where.netloc, timeout=30)
        self.faults: list[str] = []

    def send(self, asked: Asked) -> str:
        """Send a request; the text of the answer if that is a page."""
        kind = {} if asked.body is None else {"Content-Type": asked.content_type}
        try:
            self._connection.request(
                asked.method, asked.target, asked.body, {**self._headers, **kind}
            )
            answer = self._connection.getresponse()
            status, kind_of_answer = answer.status, answer.headers.get_content_type()
            if kind_of_answer in _ENDLESS:
                self._connection.close()
                return ""
            text = answer.read().decode("utf-8", "replace")
        except (HTTPException, OSError):  # it hangs up on what is too large
            self._connection.close()
            return ""
        if status in {500, 501, 502}:
            self.faults.append(f"{asked}: {status}")
        return text if kind_of_answer == "text/html" else ""

    def close(self) -> None:
        self._connection.close()


def forms_in(page: str) -> Iterator[tuple[str, str, dict[str, bytes]]]:
    """The forms of a page: the method, the path, and the fields as they are filled in."""
    document: Any = html.document_fromstring(page)
    for form in document.forms:
        path = urlsplit(form.action or "").path
        if path and not path.startswith("/sign"):  # else this client would be signed out
            fields = {name: str(value or "").encode() for name, value in form.fields.items()}
            yield form.method, path, fields


class EveryParameterTests(EndToEndTestCase):
    def test_on_sqlite(self) -> None:
        self.check("")

    def test_on_postgresql(self) -> None:
        self.check(f'database = "{empty_database()}"\n')

    def check(self, storage: str) -> None:
        """Send everything to a broker, as a program and as somebody who has signed in."""
        broker = self.own_broker(storage + with_applications())
        broker.add_account(ACCOUNT, PASSWORD, "--admin")
        token = broker.add_token(ACCOUNT, *SCOPES)
        broker.start()
        writer = Writer(broker, ACCOUNT, PASSWORD)
        writer.sign_in()
        writer.post("A message, which has forms of its own")
        headers = {"Authorization": f"Bearer {token}"}
        clients = [Client(broker, headers) for _ in range(_THREADS)]
        asked = list(every_request())
        with ThreadPoolExecutor(_THREADS) as pool:
            parts = [asked[start::_THREADS] for start in range(_THREADS)]
            list(pool.map(_send_all, clients, parts))
        browser = Client(broker, {"Cookie": writer.cookie})
        number = self.send_forms(browser)
        self.assertGreater(number, 100)
        faults = [fault for each in (*clients, browser) for fault in each.faults]
        self.assertEqual(faults, [], "\n".join(faults))
        self.assertNotIn("Traceback", broker.log)

    def send_forms(self, browser: Client) -> int:
        """Send all forms of all pages, each with something bad in one field; how many that were."""
        paths = {each.path for each in every_route(ACCOUNT) if each.method == "GET"}
        forms = {
            (method, path, tuple(sorted(fields.items())))
            for page in sorted(paths)
            if (text := browser.send(Asked("GET", page)))
            for method, path, fields in forms_in(text)
        }
        asked = [
            _asked(method, path, dict(fields) | {name: bad})
            for method, path, fields in sorted(forms)
            for name, _ in fields
            if name != "csrf"
            for bad in (*BAD, b"")
        ]
        _send_all(browser, asked)
        return len(asked)


def _send_all(client: Client, asked: list[Asked]) -> None:
    for each in asked:
        client.send(each)
    client.close()
