"""All that belongs to an account, as one archive: whole or cut off, and only for its owner."""

from __future__ import annotations

import io
import zipfile
from collections.abc import AsyncIterator, Sequence

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.server import Request

from rsscloud_broker.errors import Unavailable
from rsscloud_broker.interfaces import AccountFile, Caller
from tests.front_doors.exchange import Exchange, connected, request_bytes
from tests.web.accounts_site import AccountSite, Browser

LARGE = b"0123456789" * 30_000


class ArchiveTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.site = AccountSite(self, account_files=self.files)
        self.browser = Browser(self.site)
        self.browser.sign_in("anna")
        self.asked: list[str] = []
        self.gate: Deferred[None] | None = None
        self.broken = False

    async def files(self, caller: Caller) -> AsyncIterator[AccountFile]:
        self.asked.append(caller.name)
        yield AccountFile("reading-list.opml", self.pieces([b"<opml/>"]))
        yield AccountFile("files/\u00fc.bin", self.pieces([LARGE, LARGE]))

    async def pieces(self, pieces: Sequence[bytes]) -> AsyncIterator[bytes]:
        for piece in pieces:
            if self.gate is not None:
                await self.gate
            if self.broken:
                raise Unavailable("it was deleted meanwhile")
            yield piece

    def test_whole(self) -> None:
        answer = self.browser.get("/account/export")
        self.assertEqual(answer.status, 200)
        self.assertEqual(answer.headers.get_content_type(), "application/zip")
        self.assertEqual(answer.headers["cache-control"], "no-store")
        self.assertEqual(answer.headers["content-disposition"], 'attachment; filename="anna.zip"')
        with zipfile.ZipFile(io.BytesIO(answer.body)) as archive:
            self.assertIsNone(archive.testzip())
            self.assertEqual(archive.namelist(), ["reading-list.opml", "files/\u00fc.bin"])
            self.assertEqual(archive.read("files/\u00fc.bin"), LARGE + LARGE)
        self.assertEqual(self.asked, ["anna"])
        self.assertEqual(self.browser.ask("HEAD", "/account/export").body, b"")

    def test_strangers_are_led_to_sign_in(self) -> None:
        answer = Browser(self.site).get("/account/export")
        self.assertEqual(answer.headers["location"], "/signin?next=/account/export")
        self.assertEqual(self.asked, [])

    def begun(self) -> Exchange:
        """A request for the archive, which may not have been answered yet."""
        cookies = "; ".join(f"{name}={value}" for name, value in self.browser.cookies.items())
        exchange = connected(self.site.factory)
        exchange.send(request_bytes("GET", "/account/export", b"", {"Cookie": cookies}))
        return exchange

    def test_what_fails_is_cut_off(self) -> None:
        self.broken = True
        exchange = self.begun()
        self.assertEqual(len(self.flushLoggedErrors(Unavailable)), 1)
        self.assertFalse(exchange.open)
        self.assertNotIn(b"0\r\n\r\n", exchange.transport.value())

    def test_one_at_a_time(self) -> None:
        self.gate = Deferred()
        first = self.begun()
        answer = self.browser.get("/account/export")
        self.assertEqual((answer.status, answer.headers["retry-after"]), (429, "60"))
        self.gate.callback(None)
        self.gate = None
        self.assertEqual(first.answer().status, 200)
        self.assertEqual(self.browser.get("/account/export").status, 200)

    def test_who_hangs_up_before_it_is_known_who_it_is(self) -> None:
        asked: Deferred[None] = Deferred()
        caller = self.site.callers.caller

        async def ask_later(request: Request) -> Caller | None:
            await asked
            return await caller(request)

        self.patch(self.site.callers, "caller", ask_later)
        exchange = self.begun()
        exchange.transport.loseConnection()
        asked.callback(None)
        self.assertEqual(self.asked, [])
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_who_hangs_up_may_try_again(self) -> None:
        self.gate = Deferred()
        first = self.begun()
        first.transport.loseConnection()
        self.gate.callback(None)
        self.gate = None
        self.assertEqual(self.browser.get("/account/export").status, 200)
