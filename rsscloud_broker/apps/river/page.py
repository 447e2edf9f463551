"""The river for people: the page ``/river``, its event stream, and the reading list.

::

    GET  /river?before=ID        the newest items, or those before an item, newest first
    GET  /river?after=ID         those after an item
    POST /river/seen             remember that somebody has seen an item: csrf, id
    POST /river/stop             remember where somebody stopped: csrf, id; without id, forget it
    GET  /river/events?after=ID  new items as they arrive: see ``stream``
    GET  /river/feeds            the reading list: see ``feeds_page``

All of it is for somebody who has signed in.  Without scripts the page is a list with links to older
and newer items; with them new items appear as they arrive, and keys lead from item to item.

Images, sounds and videos of items come from the hosts of strangers.  So the policy of this page
(CSP) lets browsers load pictures and media from any host, and nothing else; the policy of all other
pages stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from twisted.python.filepath import FilePath
from twisted.web.server import Request
from twisted.web.template import Tag, tags
from zope.interface import implementer

from rsscloud_broker.apps.river.cleaning import weight
from rsscloud_broker.apps.river.feeds_page import FeedsPage
from rsscloud_broker.apps.river.model import Item, SubItem
from rsscloud_broker.apps.river.rendering import groups
from rsscloud_broker.apps.river.river import River
from rsscloud_broker.apps.river.stream import RiverReader, RiverSource
from rsscloud_broker.http.answering import PLAIN, Answer, Answers
from rsscloud_broker.http.requests import RequestError, header, parameter
from rsscloud_broker.interfaces import AppParts, Caller, IClock, IFrontDoor, Route, RoutesOnly
from rsscloud_broker.util.caches import BoundedDict
from rsscloud_broker.web.assets import Asset
from rsscloud_broker.web.broadcast import Broadcast, address_of, last_event_id
from rsscloud_broker.web.callers import NO_STORE, for_signed_in, redirect
from rsscloud_broker.web.streams import Places
from rsscloud_broker.web.words import counted
from rsscloud_broker.wire.text import parse_number

#: How many items are on a page, and how much their texts weigh
#: (``cleaning.weight``): a page with more ends earlier.
ON_PAGE, WEIGHT_ON_PAGE = 50, 200_000

#: How much a file of an item, or an item below it, weighs beside its texts.
_ELEMENT: Final = 150

#: The parts of an address's connections that may be streams of one account, and of all accounts
#: there: a family or an office has several accounts at one address.
ACCOUNT_SHARE: Final = 20
ADDRESS_SHARE: Final = 4

#: A visit ends when its account has not loaded the page for this many seconds.
VISIT: Final = 1800.0
#: How many visits are remembered; the oldest are forgotten.
MAX_VISITS: Final = 10_000

_POLICY: Final = "content-security-policy"
_OWN_IMAGES: Final = "img-src 'self'"
_ALL_MEDIA: Final = "img-src 'self' https: http:; media-src https: http:"

_MANY: Final = (
    "As many browsers show rivers as may, or as many of yours. Close other pages of the river, and "
    "load it again later."
)
_SIGNED_OUT: Final = "Sign in to see your river."

_JAVASCRIPT: Final = "text/javascript; charset=utf-8"

_FILES: Final = FilePath(__file__).parent()


@implementer(IFrontDoor)
class RiverPageDoor(RoutesOnly):
    """The front door for the pages of the river.

    :ivar hint: called when new items have been stored, which browsers get at once.
    """

    name = "river_page"

    def __init__(self, parts: AppParts, river: River) -> None:
        self._parts = parts
        self._river = river
        self._store = river.store
        self._visits = Visits(parts.clock)
        self._broadcast: Broadcast[int, RiverReader] = Broadcast(
            RiverSource(river.store, parts.clock, parts.in_thread),
            parts.clock,
            Places(parts.max_connections, parts.max_connections_per_address),
            "the river",
            _MANY,
            # Seconds until items appear that another node has stored.
            period=2.0,
            may_watch=self._may_watch,
        )
        self.hint = self._broadcast.hint
        feeds = FeedsPage(parts, river)
        style = Asset(_FILES.child("river.css"), "text/css; charset=utf-8")
        script = Asset(_FILES.child("river.js"), _JAVASCRIPT)
        self._routes = [
            Route("/river", "GET", for_signed_in(parts.callers, self._show)),
            Route("/river/seen", "POST", Answers(self._mark_seen)),
            Route("/river/stop", "POST", Answers(self._remember_stop)),
            Route("/river/events", "GET", Answers(self._stream)),
            Route("/river/page.css", "GET", style),
            Route("/river/page.js", "GET", script),
            Route("/river/feeds.js", "GET", Asset(_FILES.child("feeds.js"), _JAVASCRIPT)),
            *feeds.routes(),
        ]

    def routes(self) -> Sequence[Route]:
        return self._routes

    async def _show(self, request: Request, caller: Caller) -> Answer:
        """Show items, and mark all as seen on the newest page."""
        account_id = caller.account.id
        before, after = (parse_number(parameter(request, name)) for name in ("before", "after"))
        newest = await self._store.newest_id()
        if after is not None:
            found = await self._store.items_after(account_id, after, ON_PAGE + 1)
            # Oldest first, so the page ends with those next to ``after``.
            fitting = _fit_on_page(found[:ON_PAGE])
            if len(fitting) == len(found):
                return redirect("/river")  # they are the newest
            items, has_older = fitting[::-1], True
        else:
            found = await self._store.items(account_id, before, ON_PAGE + 1)
            items = _fit_on_page(found[:ON_PAGE])
            has_older = len(found) > len(items)
        is_live = before is None and after is None
        last_seen = await self._store.last_seen(account_id)
        seen = self._visits.seen_before(account_id, last_seen)
        if is_live and newest > last_seen and not _is_prefetch(request):
            await self._store.mark_seen(account_id, newest)
        page = await self._render(
            caller, items, newest, seen, before, is_live=is_live, has_older=has_older
        )
        return Answer(page, headers={**NO_STORE, **_policy_with_media(request)})

    async def _render(
        self,
        caller: Caller,
        items: Sequence[Item],
        newest: int,
        seen: int,
        before: int | None,
        *,
        is_live: bool,
        has_older: bool,
    ) -> bytes:
        """Render the page.

        :param seen: the newest item that was seen before this visit.
        :param before: the item after which the page begins, if it was asked for.
        :param is_live: whether it is the newest page, on which new items appear.
        """
        stopped = await self._store.stopped_at(caller.account.id)
        is_here = stopped is not None and _is_on_page(stopped, items, before, has_older=has_older)
        feeds = {feed.id: feed for feed in await self._river.feeds(caller.account.id)}
        line = stopped if is_here else None
        made: list[Tag] = await self._parts.in_thread(groups, items, feeds, seen, line)
        number = sum(item.id > seen for item in items) if seen and is_live else 0
        about = {"data-csrf": caller.csrf, "data-newest": str(newest)}
        if is_live:
            about["data-stream"] = f"/river/events?after={newest}"
        older = f"/river?before={items[-1].id}" if items and has_older else ""
        newer = f"/river?after={items[0].id}" if items else "/river"
        to_line = ""
        if stopped is not None:
            to_line = "#stopped" if is_here else f"/river?before={stopped + 1}"
        followed = "the feed" if len(feeds) == 1 else f"the {len(feeds):,} feeds"
        return await self._parts.pages.render(
            "River",
            "rsscloud_broker.apps.river:river.html",
            caller,
            here="/river",
            news=f"{counted(number, 'item')} new since your last visit" if number else "",
            items=tags.div(made, id="river", **about),
            nothing="" if items else "nothing",
            csrf=caller.csrf,
            stopped=to_line,
            feeds=followed if feeds else "",
            no_feeds="" if feeds else "none",
            older=_link("Older items", older, "next"),
            newer="" if is_live else _link("Newer items", newer, "prev"),
            newest="" if is_live else _link("Newest items", "/river", ""),
            pages="some" if older or not is_live else "",
        )

    async def _mark_seen(self, request: Request) -> Answer:
        """Remember that somebody has seen an item that arrived while the page was open."""
        caller = await self._signed_in(request)
        self._parts.callers.check_form(request, caller)
        number = parse_number(parameter(request, "id"))
        if number is None:
            return Answer(b"The id is the number of an item.\n", PLAIN, 400, NO_STORE)
        newest = await self._store.newest_id()
        await self._store.mark_seen(caller.account.id, min(number, newest))
        return Answer(b"Seen.\n", PLAIN, headers=NO_STORE)

    async def _remember_stop(self, request: Request) -> Answer:
        """Remember where somebody stopped, or forget it."""
        caller = await self._signed_in(request)
        self._parts.callers.check_form(request, caller)
        await self._store.stop_at(caller.account.id, parse_number(parameter(request, "id")))
        return redirect("/river")

    async def _signed_in(self, request: Request) -> Caller:
        """Who has signed in and makes a request of this page; raises ``RequestError`` if nobody."""
        caller = await self._parts.callers.caller(request)
        if caller is None or caller.session is None:
            raise RequestError(401, _SIGNED_OUT, cache_control="no-store")
        return caller

    async def _stream(self, request: Request) -> Answer | None:
        """Begin a stream of new items, or say why there is none."""
        caller = await self._signed_in(request)
        after = last_event_id(request)
        if after is None:
            after = parse_number(parameter(request, "after"))
        key = caller.account.id
        shares = {address_of(request): ADDRESS_SHARE, f"account {key}": ACCOUNT_SHARE}
        return self._broadcast.answer(request, RiverReader(key), after, shares)

    async def _may_watch(self, request: Request, reader: RiverReader) -> bool:
        """Whether the reader of a stream is still signed in."""
        caller = await self._parts.callers.caller(request)
        return caller is not None and caller.account.id == reader.account_id


class Visits:
    """Remembers when the visits to the river began, so that what is new stays marked until the end.

    Until then the line stays where it was, however often the page is loaded.  This is kept in
    memory only: after a restart of the broker, a visit begins anew.
    """

    def __init__(self, clock: IClock) -> None:
        self._clock = clock
        # What each account had seen before its visit, and when the page was last loaded.
        self._visits: BoundedDict[int, tuple[int, float]] = BoundedDict(MAX_VISITS)

    def seen_before(self, account_id: int, seen: int) -> int:
        """The id of the newest item that an account had seen before its visit.

        The visit begins now, or goes on if the page was loaded not long ago.

        :param seen: the id of the newest item that it has seen by now.
        """
        now = self._clock.seconds()
        before, loaded_at = self._visits.get(account_id, (seen, now))
        if now - loaded_at > VISIT:
            before = seen
        self._visits[account_id] = before, now
        return before


def _is_on_page(
    stopped: int, items: Sequence[Item], before: int | None, *, has_older: bool
) -> bool:
    """Whether the line where somebody stopped is on a page with some items."""
    begins_above = before == stopped + 1 or (bool(items) and items[0].id > stopped)
    return begins_above and (not has_older or items[-1].id <= stopped)


def _fit_on_page(items: Sequence[Item]) -> list[Item]:
    """As many of the first items as fit on a page: at least one."""
    fitting: list[Item] = []
    weighs = 0
    for item in items:
        weighs += weight(item.text_html) + _ELEMENT * len(item.enclosures)
        weighs += sum(_ELEMENT + weight(each) for each in _texts_below(item.items))
        if fitting and weighs > WEIGHT_ON_PAGE:
            break
        fitting.append(item)
    return fitting


def _texts_below(items: Iterable[SubItem]) -> Iterator[str]:
    """The texts of the items below an item, in any depth."""
    for item in items:
        yield item.title + item.text_html
        yield from _texts_below(item.items)


def _link(text: str, url: str, relation: str) -> Tag | str:
    """A link, with a relation if that is not empty; nothing if there is no URL."""
    more = {"rel": relation} if relation else {}
    return tags.a(text, href=url, **more) if url else ""


def _is_prefetch(request: Request) -> bool:
    """Whether nobody looks at the page: a browser only prepares for somebody who may."""
    purpose = header(request, "sec-purpose")
    return request.method == b"HEAD" or purpose.startswith("prefetch")


def _policy_with_media(request: Request) -> dict[str, str]:
    """The policy of the page: that of all pages, with pictures and media of other hosts."""
    (policy, *_) = request.responseHeaders.getRawHeaders(_POLICY) or [""]
    return {_POLICY: policy.replace(_OWN_IMAGES, _ALL_MEDIA)}
