"""The WebSub front door: the hub, where subscribers subscribe and publishers publish.

A client sends a form by POST to ``/websub``, or to ``/hub`` or ``/pubsubhubbub`` for old links,
each with or without a slash at the end::

    hub.mode=subscribe&hub.topic=http://example.org/rss.xml
        &hub.callback=http://reader.example/websub/8f31
    202; the broker asks the callback afterwards whether it wants this

    hub.mode=publish&hub.url=http://example.org/rss.xml
    202; the broker fetches the topic afterwards

A request that is refused is answered with a status from 400 to 599 and the reason in plain
text.  A GET is answered with a page that explains the hub to people and has forms to publish and to
subscribe; browsers get pages as answers to these forms (see ``websub_pages``).

Clients of PubSubHubbub 0.3 send ``hub.verify``.  If they prefer ``sync``, the broker asks
the callback before it answers, with 204 if the callback confirms and 409 if it does not.  These
clients expect 204 as the answer to a ping.

Sources: WebSub (W3C Recommendation, 2018), sections 5 and 6; PubSubHubbub 0.3
and 0.4.
"""

from __future__ import annotations

from collections.abc import Sequence

from twisted.web.http import NO_CONTENT
from twisted.web.server import Request
from zope.interface import implementer

from rsscloud_broker import errors
from rsscloud_broker.config import NoOptions
from rsscloud_broker.front_doors.websub_pages import HubAnswer, WebSubPages
from rsscloud_broker.http import requests
from rsscloud_broker.http.answering import Answers, Failure
from rsscloud_broker.http.shown_exchange import FORM
from rsscloud_broker.interfaces import FrontDoorParts, IFrontDoor, Route, RoutesOnly
from rsscloud_broker.model import Callback, Intent
from rsscloud_broker.wire import websub
from rsscloud_broker.wire.links import HUB_PATHS
from rsscloud_broker.wire.negotiation import wants_page
from rsscloud_broker.wire.origin import BadOrigin
from rsscloud_broker.wire.text import decode_exactly
from rsscloud_broker.wire.websub import BadRequest, HubRequest

PROTOCOL = "websub"

#: Old clients have this in their User-Agent, or use it as the path of the hub.
_OLD = "pubsubhubbub"

#: Seconds of the lease of a subscriber that asks for none: ten days, as WebSub suggests; and of the
#: longest lease: thirty days, after which nobody is called who is no longer there.
LEASE_DEFAULT, LEASE_MAX = 10 * 86_400, 30 * 86_400


def granted(seconds: int | None) -> int:
    """The lease that the hub grants, in seconds (section 5.1 of WebSub).

    :param seconds: the lease that the subscriber asked for; None if it did not.
    """
    if seconds is None:
        return LEASE_DEFAULT
    # The shortest lease has five minutes, since each renewal costs a fetch and a call.
    return max(300, min(seconds, LEASE_MAX))


@implementer(IFrontDoor)
class WebSubDoor(RoutesOnly):
    """The front door of the WebSub hub; clients of PubSubHubbub can use it, too."""

    name = "websub"

    def __init__(self, options: NoOptions, parts: FrontDoorParts) -> None:
        self._broker = parts.broker
        self._pages = WebSubPages(parts)
        self._public_url = parts.public_url

    def routes(self) -> Sequence[Route]:
        page, forms = Answers(self._pages.forms), Answers(self._answer)
        others = Answers(self._answer_others)
        routes: list[Route] = []
        for path in HUB_PATHS:
            routes += [
                Route(path, "GET", page),
                Route(path, "POST", forms, content_types=frozenset({FORM})),
                Route(path, "POST", others),
            ]
        return routes

    async def _answer_others(self, request: Request) -> bytes:
        """Answer a request whose Content-Type is not a form's.

        Without a body it may still have its fields in the query.
        """
        if not requests.body_of(request):
            return await self._answer(request)
        return requests.plain(
            request,
            415,
            f"This hub takes a form ({FORM}), and no content: save the new content at its own URL, "
            "then send hub.mode=publish with hub.url, and the hub fetches it there.",
        )

    async def _answer(self, request: Request) -> bytes:
        """Do what a form asks for, and answer it with a text or a page."""
        as_page = wants_page(requests.header(request, "accept"), ["text/plain"])
        try:
            asked = websub.parse_request(requests.all_parameters(request, decode_exactly))
            act = self._publish if asked.mode == "publish" else self._verify
            said = await act(request, asked)
        except BadRequest as error:
            said = HubAnswer(400, str(error))
        except errors.TooMany as error:
            if not as_page:
                raise  # ``answering`` answers it with 429
            failure = Failure.of(error)
            said = HubAnswer(failure.status, failure.text, error.retry_after)
            request.setHeader("retry-after", str(error.retry_after))
        except errors.Refused as error:
            said = HubAnswer(_refusal_status(error), Failure.of(error).text)
        if said.status == NO_CONTENT:
            request.setResponseCode(NO_CONTENT)
            return b""
        if as_page:
            return await self._pages.result_page(request, said)
        return requests.plain(request, said.status, said.text)

    async def _publish(self, request: Request, asked: HubRequest) -> HubAnswer:
        """Have topics fetched; the answer has a sentence for each that was not accepted."""
        try:
            via = requests.passage(request).origin
        except BadOrigin as error:
            raise BadRequest(str(error)) from error
        notes = await self._broker.publish(asked.urls, requests.client_address(request), via)
        if _OLD in _hub_path(request) or _OLD in requests.header(request, "user-agent").lower():
            return HubAnswer(NO_CONTENT, "")  # which clients of PubSubHubbub expect
        said = ["Thanks. The broker fetches what has changed, and notifies its subscribers."]
        said += [f"{note}." for note in notes.values()]
        return HubAnswer(202, "\n".join(said))

    async def _verify(self, request: Request, asked: HubRequest) -> HubAnswer:
        """Verify the intent: before the answer if the client prefers ``sync``, else afterwards."""
        intent = self._intent(request, asked)
        if asked.verify[:1] == ("sync",):
            act = self._broker.unsubscribe if intent.unsubscribe else self._broker.subscribe
            await act(intent)
            return HubAnswer(NO_CONTENT, "")
        await self._broker.accept(intent)
        return HubAnswer(202, "Thanks. The broker now asks the callback to confirm this.")

    def _intent(self, request: Request, asked: HubRequest) -> Intent:
        """The intent of a form; its options name the hub that the client used."""
        return Intent(
            asked.topic,
            Callback(asked.callback, PROTOCOL),
            granted(asked.lease_seconds),
            challenge=True,
            source=requests.client_address(request),
            options={**asked.options, websub.HUB: f"{self._public_url}{_hub_path(request)}"},
            unsubscribe=asked.mode == "unsubscribe",
        )


def _hub_path(request: Request) -> str:
    """The path of the hub that the client used."""
    return request.path.decode("ascii")


def _refusal_status(error: errors.Refused) -> int:
    """The status with which a refusal is answered."""
    match error:
        case errors.EndedTopic():
            return 410
        case errors.UnsupportedProtocol():
            return 501
        case errors.TopicUnreadable(refused=True) | errors.CallbackFailed(refused=True):
            return 400  # the broker does not call such a URL, or its content is too large
        case errors.TopicUnreadable() | errors.CallbackFailed():
            return 409  # verified before the answer, and the callback did not confirm
        case _:
            return Failure.of(error).status
