"""The authoring tool with its front doors for other programs, in memory.

Behind the doors are the real accounts, the real store and the real publisher.
"""

from __future__ import annotations

import json
import xmlrpc.client
from collections.abc import Mapping
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred

from tests.apps.writing.house import PROXY, QUICK, SiteTestCase
from tests.front_doors.exchange import FORM, Answer, ask, connected, request_bytes
from tests.web.file_form import MULTIPART, Part, multipart

#: What a proxy says of somebody elsewhere.
HTTPS = {"X-Forwarded-For": "192.0.2.7", "X-Forwarded-Proto": "https"}
HTTP = {"X-Forwarded-For": "192.0.2.7", "X-Forwarded-Proto": "http"}


class PostingTestCase(SiteTestCase):
    """A test case with what programs send.

    :ivar token: an API token of dave with the scope ``publish``.
    """

    options = QUICK

    def setUp(self) -> None:
        super().setUp()
        self.token = self.house.token("publish")

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send one request, by default over HTTPS through a proxy; return the answer."""
        return ask(self.factory, method, path, body, {**HTTPS, **(headers or {})}, PROXY)

    def call(self, method: str, *params: Any, headers: Mapping[str, str] | None = None) -> Any:
        """Call an XML-RPC procedure.

        :raises xmlrpc.client.Fault: the answer is a fault.
        """
        document = xmlrpc.client.dumps(params, method, allow_none=True).encode()
        return self.send_call(document, headers)

    def send_call(self, document: bytes, headers: Mapping[str, str] | None = None) -> Any:
        """Send an XML-RPC call as a client wrote it."""
        sent = {"Content-Type": "text/xml", **(headers or {})}
        answer = self.ask("POST", "/RPC2", document, sent)
        self.assertEqual(answer.status, 200, answer.text)
        return xmlrpc.client.loads(answer.body, use_builtin_types=True)[0][0]

    def fault(self, method: str, *params: Any, headers: Mapping[str, str] | None = None) -> Any:
        """Call an XML-RPC procedure; the fault that must come."""
        with self.assertRaises(xmlrpc.client.Fault) as caught:
            self.call(method, *params, headers=headers)
        self.assertRegex(caught.exception.faultString, r"^(?:[A-Z]|http:).*\.$")
        return caught.exception

    def form(self, body: str, path: str = "/micropub", token: str | None = None) -> Answer:
        """Send a form with a token."""
        headers = {"Content-Type": f"{FORM}; charset=utf-8", **self.bearer(token)}
        return self.ask("POST", path, body.encode(), headers)

    def json(self, document: Any, token: str | None = None) -> Answer:
        """Send JSON with a token."""
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        headers = {"Content-Type": "application/json", **self.bearer(token)}
        return self.ask("POST", "/micropub", body, headers)

    def files(self, *parts: Part, path: str = "/micropub", token: str | None = None) -> Answer:
        """Send a form with files and a token."""
        headers = {"Content-Type": MULTIPART, **self.bearer(token)}
        return self.ask("POST", path, multipart(*parts), headers)

    def query(self, query: str, path: str = "/micropub") -> Any:
        """The JSON that answers a query."""
        answer = self.ask("GET", f"{path}?{query}", headers=self.bearer(None))
        self.assertEqual(answer.status, 200, answer.text)
        self.assertEqual(answer.headers["content-type"], "application/json")
        return json.loads(answer.body)

    def ask_at_once(self, *requests: tuple[str, bytes, Mapping[str, str]]) -> list[Answer]:
        """Send several POST requests, each before those before it have stored anything.

        :param requests: the path, the body and the headers of each.
        """
        gate: Deferred[None] = Deferred()

        async def when_open(function: Any, *args: Any) -> Any:
            await gate
            return function(*args)

        parts = evolve(self.writing._parts, in_thread=when_open)
        self.patch(self.writing, "_parts", parts)  # with which it makes the feeds
        exchanges = []
        for path, body, headers in requests:
            exchange = connected(self.factory, PROXY)
            exchange.send(request_bytes("POST", path, body, {**HTTPS, **headers}))
            exchanges.append(exchange)
        gate.callback(None)
        return [exchange.answer("POST") for exchange in exchanges]

    def bearer(self, token: str | None) -> dict[str, str]:
        """The header with a token: dave's by default; empty for none."""
        token = self.token if token is None else token
        return {"Authorization": f"Bearer {token}"} if token else {}

    def uploads(self) -> list[str]:
        """The names of dave's files."""
        return [each.name for each in self.files_of()]
