"""An application: a board of notices, which is a topic that others can subscribe to.

``GET /notices`` shows the newest notices as plain text, and ``POST /notices`` with ``text`` adds
one, for programs that send an API token with the scope ``publish`` in ``Authorization: Bearer
TOKEN``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from attrs import field, frozen
from attrs.validators import ge
from sqlalchemy import Column, Connection, Table, Text, insert, select
from twisted.internet.defer import DeferredLock
from twisted.web.server import Request
from zope.interface import implementer

from rsscloud_broker.database.columns import Key, new_metadata
from rsscloud_broker.errors import Forbidden
from rsscloud_broker.http.answering import PLAIN, Answer, Answers
from rsscloud_broker.http.requests import client_address, parameter
from rsscloud_broker.interfaces import (
    App,
    AppParts,
    AppTables,
    IApp,
    IAppMaker,
    IFrontDoor,
    Route,
    RoutesOnly,
    ServedTopics,
)
from rsscloud_broker.model import Content

metadata = new_metadata()

#: The name of a table begins with the name of its application.
notice = Table(
    "notices_notice",
    metadata,
    Column("id", Key, primary_key=True),
    Column("text", Text, nullable=False),
)


def newest(conn: Connection, limit: int) -> list[str]:
    rows = conn.execute(select(notice.c.text).order_by(notice.c.id.desc()).limit(limit))
    return list(rows.scalars())


def add(conn: Connection, text: str) -> None:
    conn.execute(insert(notice).values(text=text))


@frozen
class NoticesOptions:
    """Keys of ``[apps.notices]``.

    :ivar shown: how many notices the board shows.
    """

    shown: int = field(default=10, validator=ge(1))


@implementer(IFrontDoor)
class Notices(RoutesOnly):
    """The board."""

    name = "notices"

    def __init__(self, options: NoticesOptions, parts: AppParts) -> None:
        self._options = options
        self._parts = parts
        self.url = f"{parts.public_url}/notices"
        self._lock = DeferredLock()

    def routes(self) -> Sequence[Route]:
        return [
            Route("/notices", "GET", Answers(self.show)),
            Route("/notices", "POST", Answers(self.add)),
        ]

    async def read(self, url: str) -> Content | None:
        """Read the topic for the broker, which cannot call itself."""
        return _content(await self._newest()) if url == self.url else None

    async def show(self, request: Request) -> Answer:
        return Answer(_content(await self._newest()).body, PLAIN)

    async def add(self, request: Request) -> Answer:
        text = parameter(request, "text")[:140]
        caller = await self._parts.callers.caller(request)
        if caller is None or caller.session is not None:
            return Answer(b"Send an API token, please.\n", PLAIN, 401)
        if "publish" not in caller.scopes:
            return Answer(b"The token needs the scope publish.\n", PLAIN, 403)
        source = client_address(request)
        try:
            async with self._lock:  # so that no notice of the same moment is missing in the content
                content = _content([text, *await self._newest()][: self._options.shown])
                # The notice is stored, and the work of notifying begins, in one transaction.
                store = partial(add, text=text)
                await self._parts.publisher.publish(self.url, content, store, source)
        except Forbidden as error:
            return Answer(f"This was not accepted: {error}.\n".encode(), PLAIN, 403)
        return Answer(b"Thanks for the notice.\n", PLAIN)

    async def _newest(self) -> list[str]:
        texts: list[str] = await self._parts.database.read(
            partial(newest, limit=self._options.shown)
        )
        return texts


def _content(texts: Sequence[str]) -> Content:
    return Content("".join(f"{text}\n" for text in texts).encode(), PLAIN)


@implementer(IAppMaker)
class NoticesMaker:
    """Makes the application."""

    name = "notices"
    help = "A board of notices at /notices."
    options = NoticesOptions
    needs = ("callers", "database", "public_url", "publisher")
    tables = AppTables(metadata, "rsscloud_broker_example:migrations", "0001")

    def make(self, options: NoticesOptions, parts: AppParts) -> IApp:
        board = Notices(options, parts)
        return App(self.name, front_doors=[board], topics=[ServedTopics(board.url, board.read)])
