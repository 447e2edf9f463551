"""The front door of the doctor: a page that examines a feed for its publisher, and the self-test.

``/doctor`` is a form, and ``/doctor?url=FEED-URL`` the findings about that feed.  The page needs
no script.  An examination counts as a ping of a topic without subscribers, for the limits on
requests.  A HEAD request, a form without an address, and a request that the page of another site
caused, as the browser says, cause no examination.

``/doctor/self-test`` answers only the operator: see ``wire.self_test``.  To everybody else there is
nothing at that address.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from attrs import frozen
from twisted.web.server import Request
from twisted.web.template import Tag, tags
from zope.interface import implementer

from rsscloud_broker import __version__, interfaces
from rsscloud_broker.errors import Refused
from rsscloud_broker.http.answering import PLAIN, Answer, Answers, Failure, viewer_of
from rsscloud_broker.http.requests import client_address, header, parameter
from rsscloud_broker.web.callers import NO_STORE
from rsscloud_broker.web.words import facts
from rsscloud_broker.wire import self_test
from rsscloud_broker.wire.text import clean

#: The headers of a request that proxies set, and the names of the facts about them.
_OF_PROXIES: Final = {
    "forwarded_for": "x-forwarded-for",
    "forwarded_proto": "x-forwarded-proto",
    "forwarded_host": "x-forwarded-host",
}


@frozen
class DoctorOptions:
    """Options of the doctor.

    :ivar examine_feeds: whether anybody may have a feed examined, by the page ``/doctor``.
    """

    examine_feeds: bool = True


@implementer(interfaces.IFrontDoor)
class DoctorDoor(interfaces.RoutesOnly):
    """The front door for ``/doctor`` and the self-test."""

    name = "doctor"

    def __init__(self, options: DoctorOptions, parts: interfaces.FrontDoorParts) -> None:
        self._parts = parts
        self._feeds = parts.feed_doctor if options.examine_feeds else None

    def routes(self) -> Sequence[interfaces.Route]:
        page = [interfaces.Route("/doctor", "GET", Answers(self._examine))] if self._feeds else []
        return [*page, interfaces.Route(self_test.PATH, "GET", Answers(self._answer_self_test))]

    async def _examine(self, request: Request) -> Answer:
        """The page with the form, and with the findings if it names a feed."""
        url = parameter(request, "url").strip()
        viewer = await viewer_of(self._parts.callers, request)
        if not url or request.method == b"HEAD" or self._feeds is None:
            return await self._page(viewer, url)
        if header(request, "sec-fetch-site") == "cross-site":
            # Otherwise any site could have its visitors make the broker send requests.
            text = "Not examined: another site asked for it. Send the form to examine the feed."
            return await self._page(viewer, url, text, 403)
        try:
            report = await self._feeds.examine(url, client_address(request))
        except Refused as error:
            failure = Failure.of(error)
            text = f"Not examined: {error}."
            return await self._page(viewer, url, text, failure.status, failure.headers)
        return await self._page(viewer, url, report=report)

    async def _page(
        self,
        viewer: interfaces.Caller | None,
        url: str,
        message: str = "",
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        report: interfaces.FeedReport | None = None,
    ) -> Answer:
        """The page: the form, why nothing was examined, or the findings."""
        groups = {kind: report.of(kind) if report else () for kind in ("wrong", "missing", "good")}

        def pairs_of(findings: Sequence[interfaces.Finding]) -> Iterator[tuple[str, Tag]]:
            return ((each.subject, tags.bdi(clean(each.text))) for each in findings)

        wrong, missing, good = map(len, groups.values())
        summary = f"{wrong} to correct, {missing} to consider, {good} in order."
        page = await self._parts.pages.render(
            "Doctor for feeds",
            "doctor.html",
            viewer,
            here="/doctor",
            message=clean(message),
            url=url,
            examined=clean(report.url) if report else "",
            summary=summary if report else "",
            **{
                kind: facts(pairs_of(found), "findings") if found else ""
                for kind, found in groups.items()
            },
        )
        return Answer(page, status=status, headers=NO_STORE | dict(headers or {}))

    async def _answer_self_test(self, request: Request) -> Answer:
        """The answer to the operator: how the request arrived."""
        names = ("time", "nonce", "proof")
        question = {name: parameter(request, name) for name in names}
        body = self._parts.self_test and self._parts.self_test.answer(question, _arrival(request))
        if not body:
            return Answer(b"There is nothing at this address.\n", PLAIN, 404)
        return Answer(body, "application/json", headers=NO_STORE)


def _arrival(request: Request) -> Mapping[str, str]:
    """How a request arrived, for ``wire.self_test``."""
    return {
        "version": __version__,
        "scheme": "https" if request.isSecure() else "http",
        "path": request.uri.partition(b"?")[0].decode("latin-1"),
        "host": header(request, "host"),
        "peer": str(getattr(request.client, "host", "")),
        "client": client_address(request),
        **{fact: header(request, name) for fact, name in _OF_PROXIES.items()},
    }
