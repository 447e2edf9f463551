"""Reads topics: the one module where the broker fetches what it watches.

A server that is told what is known already answers with 304 and no body.  One that
says where its feed is from now on, or that it is gone for good, is believed: see the
statuses below.  A document can say both as well, where nobody can make the server do
so: see ``xml_redirect``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from attrs import evolve
from twisted.logger import Logger
from zope.interface import implementer

from rsscloud_broker.bounded_dict import BoundedDict
from rsscloud_broker.errors import (
    AddressRefused,
    OutboundError,
    TooLarge,
    TopicEnded,
    TopicUnreadable,
)
from rsscloud_broker.interfaces import IClock, IOutbound, ITopicFetcher, OutboundReply
from rsscloud_broker.model import NO_VALIDATORS, Content, Fetched, Validators
from rsscloud_broker.outbound.budget import NO_ROOM, AnswerBudget
from rsscloud_broker.outbound.urls import check_circle, redirected
from rsscloud_broker.wire.feed import xml_redirect
from rsscloud_broker.wire.http_dates import freshness, http_date
from rsscloud_broker.wire.text import in_bytes
from rsscloud_broker.wire.web_address import MAX_URL

#: How many redirects a topic may take, those in XML among them.
REDIRECTS: Final = 5

#: Redirects that say where a topic is from now on (RFC 9110, section 15.4); an XML
#: redirect counts as the first of them.
_PERMANENT: Final = (301, 308)
_REDIRECTING: Final = frozenset({*_PERMANENT, 302, 303, 307})

#: Statuses that say "not so" where 500 and above say "not now": but for these.
PASSING: Final = frozenset({408, 425, 429})

#: Seconds that a content must have lasted when it was sent, for its validators to tell
#: it from the next one: times of change have whole seconds, and ETags are made of them.
_SETTLED: Final = 2.0

#: The longest validator that is kept: a real one has some tens of characters.
_MAX_VALIDATOR: Final = 1000

#: Above this nobody counts, nor is anything remembered.
_MANY: Final = 10_000

_Hops: TypeAlias = tuple[tuple[int, str], ...]


@implementer(ITopicFetcher)
class TopicFetcher:
    """Fetches by HTTP GET.

    :param outbound: connects only where topics may be.
    :param clock: tells how old an answer is.
    :param product: name and version of the broker, for its User-Agent.
    :param page: a URL where people learn what it is.
    :param budget: counts contents for as long as anybody has them.
    """

    log = Logger()

    def __init__(
        self,
        outbound: IOutbound,
        clock: IClock,
        product: str,
        page: str,
        budget: AnswerBudget | None = None,
    ) -> None:
        self._outbound = outbound
        self._budget = budget or AnswerBudget()
        self._clock = clock
        self._product = product
        self._page = page
        self._too_large: BoundedDict[str, bool] = BoundedDict(_MANY)

    async def fetch(
        self, url: str, known: Validators = NO_VALIDATORS, subscribers: int = 0
    ) -> Fetched:
        try:
            reply = await self._last_answer(url, known, subscribers)
        except TooLarge as error:
            self._say_too_large(url, error)
            reason = f"{error}, too large to be read: its subscribers are not told of changes"
            raise TopicUnreadable(url, reason, refused=True) from error
        except OutboundError as error:
            refused = isinstance(error, AddressRefused)
            raise TopicUnreadable(url, str(error), refused=refused) from error
        self._too_large.pop(url, False)
        if reply.status == 410:
            reason = "its server answered that it is gone for good (status 410)"
            raise _gone(url, reply.hops, reason)
        validators = _validators(reply.headers, self._clock.wall_seconds())
        moved_to = _moved_to(reply.hops)
        fresh_seconds = freshness(reply.headers, self._clock.wall_seconds())
        if reply.status == 304:
            validators = Validators(
                validators.etag or known.etag, validators.last_modified or known.last_modified
            )
            return Fetched(None, validators, moved_to, fresh_seconds, "304, not modified")
        if not reply.success:
            lasting = 400 <= reply.status <= 499 and reply.status not in PASSING
            raise TopicUnreadable(url, _answered(reply), lasting=lasting)
        if not self._budget.has_room(len(reply.body)):
            del reply  # the error refers to this frame for as long as somebody has it
            raise TopicUnreadable(url, NO_ROOM)
        content = Content(body=reply.body, content_type=reply.headers.get("content-type", ""))
        self._budget.keep(content)
        result = f"{reply.status}, {in_bytes(reply.body)}"
        return Fetched(content, validators, moved_to, fresh_seconds, result)

    def _say_too_large(self, url: str, error: TooLarge) -> None:
        """Tell the operator, who alone can do something about it; once for each topic."""
        if not self._too_large.get(url, False):
            self._too_large[url] = True
            self.log.warn(
                "{url}: {error}; its subscribers are not told of changes until it is smaller, or "
                "body_limit in [topics] of the configuration is raised.",
                url=url,
                error=error,
            )

    async def _last_answer(self, url: str, known: Validators, subscribers: int) -> OutboundReply:
        """What all redirects lead to, with every hop on the way there."""
        agent = {"user-agent": user_agent(self._product, self._page, subscribers)}
        conditions = _conditions(known)
        hops: _Hops = ()
        location = url
        while True:
            reply = await self._outbound.request(
                "GET", location, agent | conditions, redirects=REDIRECTS - len(hops)
            )
            for hop in reply.hops:
                hops = (*hops, hop)
                check_circle(url, hops)
            if reply.status in _REDIRECTING and reply.headers.get("location"):
                raise _too_many()
            if reply.status == 304 and not conditions:
                raise OutboundError(f"{_answered(reply)}, though it was not asked what is new")
            if reply.status == 304 and _moved_to(hops):
                # What is known was somewhere else: this may be an older file, say.
                location = reply.url
            elif target := _xml_redirect(url, reply, hops):
                location = redirected(reply.url, target)
                hops = (*hops, (301, location))
                check_circle(url, hops)
            else:
                return evolve(reply, hops=hops)
            conditions = {}


def user_agent(product: str, page: str, subscribers: int = 0) -> str:
    """How the broker names itself to those whose feeds it reads.

    :param subscribers: how many will be told what it finds; not said if there are none.
    """
    if not subscribers:
        return f"{product} (+{page})"
    if subscribers > _MANY:
        return f"{product} (+{page}; more than {_MANY:,} subscribers)"
    return f"{product} (+{page}; {subscribers} subscriber{'s' if subscribers > 1 else ''})"


def _conditions(known: Validators) -> dict[str, str]:
    """The headers that ask for what is new only (RFC 9110, section 13.1)."""
    headers = {"if-none-match": known.etag, "if-modified-since": known.last_modified}
    # Header values are bytes, which were read as Latin-1; they are written as UTF-8.
    return {
        name: value.encode("latin-1").decode() for name, value in headers.items() if _usable(value)
    }


def _validators(headers: Mapping[str, str], now: float) -> Validators:
    """What an answer's content can be told from others by (RFC 9110, section 8.8.2.2)."""
    modified = http_date(headers.get("last-modified", ""))
    if modified is not None:
        sent = http_date(headers.get("date", ""))
        if (now if sent is None else sent) - modified < _SETTLED:
            return NO_VALIDATORS  # it may change once more in the same second
    return Validators(
        etag=_usable(headers.get("etag", "")),
        last_modified=_usable(headers.get("last-modified", "")),
    )


def _usable(validator: str) -> str:
    """A validator; empty if it is not one line that can be sent back as it came."""
    try:
        sent = validator.encode("latin-1").decode()
    except UnicodeError:
        return ""
    return validator if len(sent) <= _MAX_VALIDATOR and sent.isprintable() else ""


def _xml_redirect(url: str, reply: OutboundReply, hops: _Hops) -> str:
    """Where a document redirects to, as in a Location header; empty if it does not.

    :raises TopicUnreadable: to nowhere, since the topic has ended.
    :raises OutboundError: there were as many redirects as there may be.
    """
    target = xml_redirect(reply.body) if reply.success else None
    if target is None:
        return ""
    if not target:
        raise _gone(url, hops, "an XML redirect without a URL is there: it is gone for good")
    if len(hops) == REDIRECTS:
        raise _too_many()
    return target.encode().decode("latin-1")


def _moved_to(hops: _Hops) -> str:
    """Where permanent redirects led before the first other one; empty if nowhere."""
    location = ""
    for status, target in hops:
        if status not in _PERMANENT or len(target) > MAX_URL:
            break
        location = target
    return location


def _gone(url: str, hops: _Hops, reason: str) -> TopicUnreadable:
    """The error for a topic that is gone, by the word of who stands at the end of hops.

    Behind a temporary redirect that is not the topic's own server.
    """
    if all(status in _PERMANENT for status, _ in hops):
        return TopicEnded(url, reason)
    return TopicUnreadable(url, f"{reason}; but a temporary redirect led there", lasting=True)


def _too_many() -> OutboundError:
    return OutboundError(f"its server redirects more than {REDIRECTS} times")


def _answered(reply: OutboundReply) -> str:
    return f"its server answered with status {reply.status}"
