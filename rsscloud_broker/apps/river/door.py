"""The paths of the river for programs, and for the hubs and clouds that push feeds.

Programs send an API token with the scope ``river``; ``docs/applications/river.rst`` has their
paths.  Hubs and clouds call these::

    GET  /river/websub/KEY?hub.mode=subscribe&hub.topic=...&hub.challenge=x91     200, x91
    POST /river/websub/KEY               a document, signed                       202
    GET  /river/rsscloud/KEY?url=...&challenge=x91                                200, x91
    POST /river/rsscloud/KEY             url=..., or a call by XML-RPC or SOAP    200
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from twisted.web.server import Request
from zope.interface import implementer

from rsscloud_broker.apps.river import formats
from rsscloud_broker.apps.river.model import InvalidFeed
from rsscloud_broker.apps.river.opml import MAX_BYTES
from rsscloud_broker.apps.river.pushing import CLOUD_PATH, WEBSUB_PATH, Pushing
from rsscloud_broker.apps.river.river import River
from rsscloud_broker.http.answering import Answer, Answers, plain
from rsscloud_broker.http.requests import (
    RequestError,
    body_of,
    charset,
    client_address,
    parameter,
)
from rsscloud_broker.interfaces import AppParts, Caller, IFrontDoor, Route
from rsscloud_broker.interfaces.plugins import RoutesOnly
from rsscloud_broker.util.caches import TimedCache
from rsscloud_broker.web.hub_calls import UNKNOWN, callback_key, callback_routes, confirmed
from rsscloud_broker.wire import soap, xmlrpc
from rsscloud_broker.wire.text import parse_number
from rsscloud_broker.wire.xml import MalformedXML

#: How many items are in one answer.
PAGE: Final = 100

#: How many public rivers are remembered, and for how many seconds.
REMEMBERED, REMEMBERED_SECONDS = 100, 5.0

#: The scope of tokens.
SCOPE: Final = "river"

_FORM, _JSON, _OPML, _SCRIPT, _XML = (
    "application/x-www-form-urlencoded",
    "application/json",
    "text/x-opml; charset=utf-8",
    "application/javascript; charset=utf-8",
    "text/xml; charset=utf-8",
)
_NO_STORE: Final = {"cache-control": "no-store"}


@implementer(IFrontDoor)
class RiverDoor(RoutesOnly):
    """Serves the river to programs, and answers hubs and clouds."""

    name = "river"

    def __init__(self, river: River, pushing: Pushing, parts: AppParts) -> None:
        self._river = river
        self._pushing = pushing
        self._parts = parts
        self._public: TimedCache[str, bytes] = TimedCache(
            self._make_river_js, parts.clock, REMEMBERED_SECONDS, REMEMBERED
        )

    def routes(self) -> Sequence[Route]:
        """The routes of programs, hubs and clouds, which the module describes."""
        public, named = Answers(self._answer_river_js), frozenset({"account"})
        opml = self._for_caller(self._import_opml)
        return [
            Route("/river.json", "GET", self._for_caller(self._answer_json_feed)),
            Route("/river/opml", "GET", self._for_caller(self._export_opml)),
            # Many programs call every body a form if nobody says what it is.
            *(
                Route("/river/opml", "POST", opml, content_types=kinds, body_limit=MAX_BYTES)
                for kinds in (frozenset[str](), frozenset({_FORM}))
            ),
            Route("/river/subscribe", "POST", self._for_caller(self._subscribe)),
            Route("/river/unsubscribe", "POST", self._for_caller(self._unsubscribe)),
            Route("/river/river.js", "GET", public, requires=named, for_everybody=True),
            # The largest document that a hub may push, in bytes.
            *callback_routes(WEBSUB_PATH, self._pushing, 2 * 1024 * 1024),
            Route(f"{CLOUD_PATH}*", "GET", Answers(self._repeat_challenge)),
            Route(f"{CLOUD_PATH}*", "POST", Answers(self._take_ping)),
        ]

    def _for_caller(self, respond: Callable[[Request, Caller], Awaitable[Answer]]) -> Answers:
        """A resource that answers callers whose token has the scope, and refuses others."""

        async def answer(request: Request) -> Answer:
            """Answer a request, if its caller is known and has the scope."""
            caller = await self._parts.callers.caller(request)
            if caller is None:
                needed = {"www-authenticate": 'Bearer realm="rsscloud-broker"', **_NO_STORE}
                text = "Sign in, or send an API token: Authorization: Bearer TOKEN."
                return plain(401, text, needed)
            if SCOPE not in caller.scopes:
                return plain(403, f"The token needs the scope {SCOPE}.", _NO_STORE)
            request.setHeader("cache-control", "no-store")  # of refusals, too
            return await respond(request, caller)

        return Answers(answer)

    async def _answer_json_feed(self, request: Request, caller: Caller) -> Answer:
        text = parameter(request, "before")
        before = parse_number(text)
        if text and before is None:
            return plain(400, "before must be the number of an item.", _NO_STORE)
        items = await self._river.store.items(caller.account.id, before, PAGE)
        feeds = await self._river.feeds(caller.account.id)
        seen = await self._river.store.last_seen(caller.account.id)
        url = f"{self._parts.public_url}/river.json"
        more = f"{url}?before={items[-1].id}" if len(items) == PAGE else ""
        title = f"The river of {caller.name}"
        body = await self._parts.in_thread(formats.json_feed, title, url, feeds, items, seen, more)
        return Answer(body, "application/feed+json", headers=_NO_STORE)

    async def _export_opml(self, request: Request, caller: Caller) -> Answer:
        body = await self._river.export_opml(caller)
        name = {"content-disposition": f'attachment; filename="{caller.name}.opml"'}
        return Answer(body, _OPML, headers={**name, **_NO_STORE})

    async def _import_opml(self, request: Request, caller: Caller) -> Answer:
        self._parts.callers.check_form(request, caller)
        imported = await self._river.import_opml(
            caller, body_of(request), client_address(request), charset(request)
        )
        failed = [{"url": url, "reason": reason} for url, reason in imported.failed]
        return _as_json({"added": imported.added, "failed": failed})

    async def _subscribe(self, request: Request, caller: Caller) -> Answer:
        self._parts.callers.check_form(request, caller)
        url = parameter(request, "url").strip()
        if not url:
            raise InvalidFeed("url must be the address of a feed, or of a page that names one")
        feed = await self._river.subscribe(caller, url, client_address(request))
        return _as_json(formats.about_feed(feed))

    async def _unsubscribe(self, request: Request, caller: Caller) -> Answer:
        """Follow a feed no more; 404 if the caller did not follow it."""
        self._parts.callers.check_form(request, caller)
        key, url = (parameter(request, name).strip() for name in ("id", "url"))
        if not key and not url:
            raise InvalidFeed("id or url must name a feed of your reading list")
        number = parse_number(key)
        named = url if number is None else number
        left = await self._river.unsubscribe(caller, named) if named else None
        if left is None:
            text = "You do not follow this feed. /river.json names those that you follow."
            return plain(404, text, _NO_STORE)
        return _as_json({"id": left.id, "url": left.url})

    async def _answer_river_js(self, request: Request) -> Answer:
        body = await self._public.get(parameter(request, "account"))
        return Answer(body, _SCRIPT, headers={"x-content-type-options": "nosniff"})

    async def _make_river_js(self, name: str) -> bytes:
        """The river of an account as river.js.

        :raises RequestError: it is not public.
        """
        found = await self._river.public_river(name, PAGE)
        if found is None:
            raise RequestError(404, "No account with this name has made its river public.")
        now = self._parts.clock.wall_seconds()
        body: bytes = await self._parts.in_thread(formats.river_js, *found, now)
        return body

    async def _repeat_challenge(self, request: Request) -> Answer:
        """Repeat the challenge of a cloud, if the river asked it to register the callback."""
        challenge = parameter(request, "challenge")
        if not challenge:
            return plain(400, "url and challenge must come here, as a cloud sends them.")
        if not await self._pushing.expects_challenge(
            callback_key(request), parameter(request, "url")
        ):
            return plain(404, UNKNOWN)
        return confirmed(challenge)

    async def _take_ping(self, request: Request) -> Answer:
        """Have the broker read the feed of a callback; 410 if nobody follows it."""
        if not await self._pushing.pinged(callback_key(request), client_address(request)):
            return plain(410, UNKNOWN)
        return _thank(request)


def _thank(request: Request) -> Answer:
    """What a cloud expects as the answer to a notification, by the protocol of the notification."""
    body = body_of(request)
    if request.getHeader("soapaction") is not None:
        with suppress(MalformedXML, soap.SoapFault):
            return Answer(soap.encode_response(soap.decode_call(body), True), _XML)
    elif body.lstrip().startswith(b"<"):
        return Answer(xmlrpc.encode_response(True), _XML)
    return plain(200, "Thanks for the notification.")


def _as_json(value: Any) -> Answer:
    return Answer(json.dumps(value).encode(), _JSON, headers=_NO_STORE)
