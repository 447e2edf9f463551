"""The commands ``admin ...``: what they send to the API, print and refuse."""

from __future__ import annotations

import json
import os
from typing import Any

from twisted.web.resource import Resource
from twisted.web.server import Request

from rsscloud_broker.commands.admin import TOKEN
from rsscloud_broker.web.admin.operations import OPERATIONS
from tests.commands.cases import Command, CommandTests, ProcessTests


class UsageTests(CommandTests):
    def test_there_is_a_command_for_each_operation(self) -> None:
        said = self.output_of("admin", "--help")
        for each in OPERATIONS:
            self.assertIn(f"  {each.name} ", said)
            self.assertIn(each.help.split()[0], self.output_of("admin", each.name, "--help"))

    def test_a_token_is_needed(self) -> None:
        file = self.directory / "token"
        for content in (b"", b"a b", b"rsb_\xc3\xa9", b"rsb_\xff"):
            file.write_bytes(content)
            told = self.misuse_of("admin", "state", "--token-file", str(file))
            for part in ("an API token is needed", "--token-file", TOKEN):
                self.assertIn(part, told)

    def test_wrong_command_lines(self) -> None:
        token = ("--token-file", self.written("token", "rsb_x"))
        for arguments in (
            ("subscription", "x"),
            ("subscription", "-1"),
            ("block", "dog", "x", "--reason", "x"),
            ("block", "host", "a.example"),
            ("subscriptions", "--state", "x"),
            ("subscriptions", "--limit", "501"),
            ("end", "http://feeds.example/"),
        ):
            self.misuse_of("admin", *arguments, *token)

    def test_what_is_final_is_asked_once_more(self) -> None:
        token = ("--token-file", self.written("token", "rsb_x"))
        for each in OPERATIONS:
            self.assertEqual("--yes" in self.output_of("admin", each.name, "--help"), each.final)
        for answer in ("n\n", ""):
            result = self.run_command("admin", "remove", "7", *token, stdin=answer)
            self.assertEqual(result.exit_code, 1)
            self.assertIn("Nobody can undo this", result.stderr)


class FakeApi(Resource):
    """Answers every request alike, and keeps the requests."""

    isLeaf = True

    def __init__(self, status: int, answer: object, location: str = "") -> None:
        super().__init__()
        self.seen: list[tuple[str, str, str, Any]] = []
        self._status, self._answer, self._location = status, answer, location

    def render(self, request: Request) -> bytes:
        assert request.content is not None
        body = request.content.read()
        said = json.loads(body) if body else None
        token = request.getHeader("authorization") or ""
        self.seen.append((request.method.decode(), request.uri.decode(), token, said))
        request.setResponseCode(self._status)
        if self._location:
            request.setHeader("location", self._location)
        answer = self._answer
        return answer if isinstance(answer, bytes) else json.dumps(answer).encode()


class CallTests(ProcessTests):
    def setUp(self) -> None:
        self.patch(os, "environ", {**os.environ, TOKEN: "rsb_secret"})

    async def ran(self, api: FakeApi, *arguments: str) -> tuple[int, list[str], str]:
        """Run a command; its exit status, what it prints and its errors."""
        command: Command = self.start("admin", *arguments, "--broker", self.serve(api))
        status = await command.ended
        return status, command.lines.pending, command.errors.decode()

    async def test_a_broker_that_is_no_url(self) -> None:
        command = self.start("admin", "state", "--broker", "http://[::1")
        await self.assert_fails(command, "http://[::1/api/v1/state: Invalid IPv6 URL\n")

    async def test_a_change(self) -> None:
        api = FakeApi(200, {"done": True})
        ran = await self.ran(api, "remove", "7", "--yes", "--reason", "é")
        self.assertEqual(ran, (0, ["done"], ""))
        path = "/api/v1/subscriptions/7/remove"
        self.assertEqual(api.seen, [("POST", path, "Bearer rsb_secret", {"reason": "é"})])

    async def test_a_list(self) -> None:
        items = [
            {"kind": "host", "object": "a.example", "account": "dave", "at": "x", "reason": "\x1b["}
        ]
        api = FakeApi(200, {"items": items, "next": "host a.example"})
        status, lines, errors = await self.ran(api, "blocks", "--kind", "host", "--limit", "1")
        self.assertEqual(status, 0)
        self.assertEqual(lines[0].split(), ["KIND", "OBJECT", "ACCOUNT", "AT", "REASON"])
        self.assertEqual(lines[1].split(), ["host", "a.example", "dave", "x", "["])
        self.assertIn("--after 'host a.example'", errors)
        ((method, uri, _, body),) = api.seen
        self.assertEqual((method, body), ("GET", None))
        self.assertEqual(uri, "/api/v1/blocks?kind=host&limit=1")

    async def test_a_reader_that_goes_away(self) -> None:
        broker = self.serve(FakeApi(200, {"items": [], "next": None}))
        command = self.start("admin", "blocks", "--broker", broker)
        command.close_stdout()
        self.assertEqual((await command.ended, command.errors), (0, b""))

    async def test_json(self) -> None:
        answer = {"changed": False, "problem": "\x1b", "status": None}
        status, lines, _ = await self.ran(FakeApi(200, answer), "read", "http://a/", "--json")
        self.assertEqual((status, json.loads("".join(lines))), (0, answer))

    async def test_refusals(self) -> None:
        for code, body, expected, said in (
            (404, {"detail": "There is no subscription 7."}, 3, "no subscription 7"),
            (404, b"<html>", 1, "HTTP status 404"),
            (422, {"detail": "It makes \x1bno sense."}, 1, "It makes no sense."),
            (200, b"<html>", 1, "not that of an administration API"),
            (200, b"[]", 1, "not that of an administration API"),
        ):
            status, lines, errors = await self.ran(FakeApi(code, body), "subscription", "7")
            self.assertEqual((status, lines), (expected, []))
            self.assertTrue(errors.startswith("Error: "), errors)
            self.assertIn(said, errors)

    async def test_the_token_does_not_follow_redirects(self) -> None:
        elsewhere = FakeApi(200, {"done": True})
        api = FakeApi(302, {}, self.serve(elsewhere))
        status, _, errors = await self.ran(api, "state")
        self.assertEqual((status, elsewhere.seen), (1, []))
        self.assertIn("302", errors)

    async def test_nobody_is_there(self) -> None:
        command = self.start("admin", "state", "--broker", "http://127.0.0.1:9")
        await self.assert_fails(command)
