"""Fetches a topic by HTTP: follows redirects, and tells whether it moved or is gone.

``TopicReader`` calls it.  The fetcher sends the validators of the last content, so that a server
answers 304 without a body if nothing changed.  A permanent redirect says that the topic has
moved, and status 410 that it is gone for good.  A publisher who cannot make the server send these
can put an XML redirect into the document: see ``xml_redirect``.  One deadline holds for all
requests of a fetch together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NoReturn, TypeAlias

from attrs import define, evolve, field
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from zope.interface import implementer

from rsscloud_broker.errors import (
    AddressRefused,
    EndedTopic,
    OutboundError,
    TooLarge,
    TopicUnreadable,
)
from rsscloud_broker.interfaces import (
    IClock,
    IOutbound,
    ITopicFetcher,
    OutboundReply,
    OutboundRequest,
)
from rsscloud_broker.model import NO_VALIDATORS, Content, Validators
from rsscloud_broker.model.fetching import EVERYTHING, Fetched, Wanted
from rsscloud_broker.outbound.budget import NO_MEMORY, AnswerBudget
from rsscloud_broker.outbound.urls import check_circle, redirected
from rsscloud_broker.util.caches import BoundedDict
from rsscloud_broker.wire.conditional import conditions, sendable
from rsscloud_broker.wire.feed import xml_redirect
from rsscloud_broker.wire.http_dates import freshness, http_date, retry_after
from rsscloud_broker.wire.text import in_bytes
from rsscloud_broker.wire.web_address import MAX_URL, REDIRECTS

#: Redirects that say that a topic has moved for good (RFC 9110, section 15.4); an XML redirect
#: counts as a 301.
_PERMANENT: Final = (301, 308)
_REDIRECTING: Final = frozenset({*_PERMANENT, 302, 303, 307})

#: Statuses from 400 to 499 that may pass; the others of them say that a retry would not help.
PASSING: Final = frozenset({408, 425, 429})

#: The largest number of subscribers in a User-Agent, and how many topics are remembered as too
#: large.
_MANY: Final = 10_000

_Hops: TypeAlias = tuple[tuple[int, str], ...]


@implementer(ITopicFetcher)
@define(eq=False)
class TopicFetcher:
    """Fetches topics by HTTP GET.

    :param outbound: the client for topics; it connects only to allowed addresses.
    :param clock: its wall clock tells how old an answer is.
    :param product: name and version of the broker, for the User-Agent.
    :param page: the URL of a page about the broker, for the User-Agent.
    :param budget: counts the contents that are in memory.
    :param deadline: seconds for a whole fetch.  The client has as many for each of its requests.
    """

    log = Logger()

    _outbound: IOutbound
    _clock: IClock
    _product: str
    _page: str
    _budget: AnswerBudget = field(factory=AnswerBudget)
    _deadline: float = field(kw_only=True)
    _too_large: BoundedDict[str, bool] = field(factory=lambda: BoundedDict(_MANY), init=False)

    async def fetch(
        self,
        url: str,
        known: Validators = NO_VALIDATORS,
        subscribers: int = 0,
        wanted: Wanted = EVERYTHING,  # it is ignored: a fetch brings the whole content
    ) -> Fetched:
        try:
            reply = await self._follow_redirects(url, known, subscribers)
        except TooLarge as error:
            self._log_too_large(url, error)
            reason = f"{error}, too large to be read: its subscribers are not notified of changes"
            raise TopicUnreadable(url, reason, refused=True) from error
        except OutboundError as error:
            refused = isinstance(error, AddressRefused)
            raise TopicUnreadable(url, str(error), refused=refused) from error
        self._too_large.pop(url, False)
        if reply.status == 410:
            reason = "its server answered that it is gone for good (status 410)"
            raise _gone_error(url, reply.hops, reason)
        validators = _reliable_validators(reply.headers, self._clock.wall_seconds())
        moved_to = _moved_to(reply.hops)
        fresh_seconds = freshness(reply.headers, self._clock.wall_seconds())
        if reply.status == 304:
            validators = Validators(
                validators.etag or known.etag, validators.last_modified or known.last_modified
            )
            return Fetched(None, validators, moved_to, fresh_seconds, "304, not modified")
        if not reply.success:
            lasting = 400 <= reply.status <= 499 and reply.status not in PASSING
            pause = retry_after(reply.headers)
            raise TopicUnreadable(url, _status_text(reply), lasting=lasting, retry_after=pause)
        if not self._budget.has_capacity(len(reply.body)):
            del reply  # else the error's traceback would keep the body in memory
            raise TopicUnreadable(url, NO_MEMORY)
        content = Content(body=reply.body, content_type=reply.headers.get("content-type", ""))
        self._budget.keep(content)
        result = f"{reply.status}, {in_bytes(reply.body)}"
        return Fetched(content, validators, moved_to, fresh_seconds, result)

    def _log_too_large(self, url: str, error: TooLarge) -> None:
        if not self._too_large.get(url, False):
            self._too_large[url] = True
            self.log.warn(
                "{url}: {error}; its subscribers are not notified of changes until it is smaller, "
                "or body_limit in [topics] of the configuration is raised.",
                url=url,
                error=error,
            )

    async def _follow_redirects(
        self, url: str, known: Validators, subscribers: int
    ) -> OutboundReply:
        """Request a topic and follow its redirects, also in XML; the last answer, with all hops.

        :raises OutboundError: there is no answer, or redirects lead in a circle or are too many.
        :raises TopicUnreadable: a redirect in XML without a URL says that the topic is gone.
        """
        agent = {"user-agent": user_agent(self._product, self._page, subscribers)}
        asked = conditions(known.etag, known.last_modified)
        hops: _Hops = ()
        location = url
        until = self._clock.seconds() + self._deadline
        while True:
            request = OutboundRequest(
                "GET", location, agent | asked, redirects=REDIRECTS - len(hops)
            )
            # The client's own deadline is enough for the first request, nearly always the only one.
            reply = await (self._ask_within(request, until) if hops else self._ask(request))
            for hop in reply.hops:
                hops = (*hops, hop)
                check_circle(url, hops)
            if reply.status in _REDIRECTING and reply.headers.get("location"):
                raise _too_many_redirects()
            if reply.status == 304 and not asked:
                raise OutboundError(f"{_status_text(reply)}, though it was not asked what is new")
            if reply.status == 304 and _moved_to(hops):
                # The validators are from the old URL, so this 304 may be about an older file:
                # fetch again without them.
                location = reply.url
            elif target := _xml_redirect(url, reply, hops):
                location = redirected(reply.url, target)
                hops = (*hops, (301, location))
                check_circle(url, hops)
            else:
                return evolve(reply, hops=hops)
            asked = {}

    async def _ask(self, request: OutboundRequest) -> OutboundReply:
        return await self._outbound.request(request)

    def _ask_within(self, request: OutboundRequest, until: float) -> Deferred[OutboundReply]:
        """Make a request; an OutboundError if it has no answer until a time."""

        def timed_out(_: object, seconds: float) -> NoReturn:
            whole = f"{self._deadline:g} seconds"
            raise OutboundError(f"no whole answer within {whole}, redirects included")

        left = max(0.0, until - self._clock.seconds())
        return Deferred.fromCoroutine(self._ask(request)).addTimeout(left, self._clock, timed_out)


def user_agent(product: str, page: str, subscribers: int = 0) -> str:
    """The User-Agent that the broker sends to the servers of topics.

    :param subscribers: how many subscribers the topic has; left out if there are none.
    """
    if not subscribers:
        return f"{product} (+{page})"
    if subscribers > _MANY:
        return f"{product} (+{page}; more than {_MANY:,} subscribers)"
    return f"{product} (+{page}; {subscribers} subscriber{'s' if subscribers > 1 else ''})"


def _reliable_validators(headers: Mapping[str, str], now: float) -> Validators:
    """The validators of an answer that can be relied on (RFC 9110, section 8.8.2.2)."""
    modified = http_date(headers.get("last-modified", ""))
    if modified is not None:
        sent = http_date(headers.get("date", ""))
        # Validators are used only if the content was at least this many seconds old when it was
        # sent. ``Last-Modified`` has whole seconds, and many ETags are made of it, so a content
        # that changes twice in a second may keep its validators.
        if (now if sent is None else sent) - modified < 2.0:
            return NO_VALIDATORS  # the content may change again within the same second
    return Validators(
        etag=sendable(headers.get("etag", "")),
        last_modified=sendable(headers.get("last-modified", "")),
    )


def _xml_redirect(url: str, reply: OutboundReply, hops: _Hops) -> str:
    """The URL that a document redirects to, encoded as in a Location header; empty if none.

    :raises TopicUnreadable: the document says that the topic is gone.
    :raises OutboundError: there were too many redirects.
    """
    target = xml_redirect(reply.body) if reply.success else None
    if target is None:
        return ""
    if not target:
        raise _gone_error(url, hops, "an XML redirect without a URL is there: it is gone for good")
    if len(hops) == REDIRECTS:
        raise _too_many_redirects()
    return target.encode().decode("latin-1")


def _moved_to(hops: _Hops) -> str:
    """The URL that the topic has moved to: the last before a redirect that is not permanent;
    empty if it has not moved.
    """
    location = ""
    for status, target in hops:
        if status not in _PERMANENT or len(target) > MAX_URL:
            break
        location = target
    return location


def _gone_error(url: str, hops: _Hops, reason: str) -> TopicUnreadable:
    """The error for a topic that is gone, as the server at the end of the redirects says.

    A server that a temporary redirect led to cannot end the topic.
    """
    if all(status in _PERMANENT for status, _ in hops):
        return EndedTopic(url, reason)
    return TopicUnreadable(url, f"{reason}; but a temporary redirect led there", lasting=True)


def _too_many_redirects() -> OutboundError:
    return OutboundError(f"its server redirects more than {REDIRECTS} times")


def _status_text(reply: OutboundReply) -> str:
    return f"its server answered with status {reply.status}"
