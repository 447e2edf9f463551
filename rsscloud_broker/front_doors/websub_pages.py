"""The HTML pages of the WebSub hub: an explanation, forms to publish and to subscribe, results.

``GET /websub`` shows the page with the forms.  Browsers send the forms to the hub and get a page
as the answer, with the same status as a program: thanks, or the form with the values that were
filled in and the reason.  A secret is never shown, and has to be typed again.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from attrs import frozen
from twisted.web.server import Request

from rsscloud_broker.http import shown_exchange
from rsscloud_broker.http.answering import show_page
from rsscloud_broker.http.requests import all_parameters, parameters
from rsscloud_broker.interfaces import FrontDoorParts
from rsscloud_broker.wire import links
from rsscloud_broker.wire.links import HUB_PATHS

_HERE: Final = HUB_PATHS[0]

#: The fields that the hub understands, in the order in which they are shown.
_FIELDS: Final = (
    "hub.mode",
    "hub.url",
    "hub.topic",
    "hub.callback",
    "hub.lease_seconds",
    "hub.secret",
    "hub.verify",
    "hub.verify_token",
)
_SECRETS: Final = frozenset({"hub.secret", "hub.verify_token"})


@frozen
class HubAnswer:
    """What the hub answers to a request.

    :ivar text: sentences for people, without a line break at the end.
    :ivar retry_after: seconds after which the client may try again; None if it may at once.
    """

    status: int
    text: str
    retry_after: int | None = None


class WebSubPages:
    """Makes the pages; the front door of the hub calls it."""

    def __init__(self, parts: FrontDoorParts) -> None:
        self._parts = parts
        self._page = partial(show_page, parts.callers, parts.pages, here=_HERE)
        self._hub = f"{parts.public_url}{_HERE}"

    async def forms(self, request: Request) -> bytes:
        """The page that explains the hub to people, with empty forms."""
        request.setHeader("link", links.encode([(self._hub, "hub")]))
        return await self._forms_page(request, 200, "", {})

    async def result_page(self, request: Request, said: HubAnswer) -> bytes:
        """The page that answers a form."""
        shown = self._exchange_slots(request, said)
        if said.status >= 400:
            return await self._forms_page(request, said.status, said.text, shown)
        sent = parameters(request)
        title = "Published" if sent.get("hub.mode") == "publish" else "Accepted"
        topic, running = sent.get("hub.topic", ""), self._parts.running
        return await self._page(
            request,
            said.status,
            title,
            "websub_answered.html",
            heading=title,
            message=said.text,
            front_page="runs" if "front_page" in running else "",
            topic_link=shown_exchange.topic_link(topic or sent.get("hub.url", ""), running),
            log_link=shown_exchange.log_link(topic, running),
            **shown,
        )

    async def _forms_page(
        self, request: Request, status: int, message: str, shown: dict[str, str]
    ) -> bytes:
        """The page with the forms, which have the values that were sent."""
        sent = parameters(request)
        return await self._page(
            request,
            status,
            "This did not work" if message else "The WebSub hub",
            "websub.html",
            hub=self._hub,
            message=message,
            url=sent.get("hub.url", "")[: shown_exchange.MAX_VALUE],
            topic=sent.get("hub.topic", "")[: shown_exchange.MAX_VALUE],
            callback=sent.get("hub.callback", "")[: shown_exchange.MAX_VALUE],
            lease=sent.get("hub.lease_seconds", "")[: shown_exchange.MAX_VALUE],
            modes="subscribe unsubscribe",
            mode=sent.get("hub.mode", ""),
            **shown,
        )

    def _exchange_slots(self, request: Request, said: HubAnswer) -> dict[str, str]:
        """The request and its answer, as a program exchanges them."""
        sent = all_parameters(request)
        fields = [(name, value) for name in _FIELDS for key, value in sent if key == name]
        headers = [("Content-Type", "text/plain; charset=utf-8")]
        if said.retry_after is not None:
            headers.append(("Retry-After", str(said.retry_after)))
        answer = shown_exchange.ShownAnswer(said.status, headers, f"{said.text}\n")
        path = request.path.decode("ascii")
        return shown_exchange.form_slots(self._parts.public_url, path, fields, answer, _SECRETS)
