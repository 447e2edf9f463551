"""The reading list: ``/river/feeds``, where people follow feeds and see how each reaches them.

Each form on the page is sent by ``POST /river/feeds`` with ``csrf`` and ``do``, which says what to
do: ``subscribe`` (``url``), ``unsubscribe``, ``mute`` or ``unmute`` (``id``), ``import`` (``text``,
or the file ``opml`` by ``multipart/form-data``) or ``share`` (``public``: not empty if everybody
may read the river).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final

from twisted.web.server import Request
from twisted.web.template import Flattenable, Tag, tags

from rsscloud_broker.apps.river.markup import shown_host
from rsscloud_broker.apps.river.model import Feed, ImportedFeeds, InvalidFeed
from rsscloud_broker.apps.river.opml import MAX_BYTES, pasted
from rsscloud_broker.apps.river.river import River
from rsscloud_broker.errors import ForgedForm, Refused, TooMany
from rsscloud_broker.http.answering import Answer
from rsscloud_broker.http.requests import client_address, number_parameter, parameter
from rsscloud_broker.interfaces import AppParts, Caller, IClock, Route
from rsscloud_broker.web import file_forms
from rsscloud_broker.web.callers import NO_STORE, for_signed_in
from rsscloud_broker.web.pages import linked
from rsscloud_broker.web.words import clipped, counted, hidden, moment, strangers_text
from rsscloud_broker.wire.text import clean, sentence

PATH: Final = "/river/feeds"

_TYPES: Final = frozenset({"multipart/form-data", "application/x-www-form-urlencoded"})

#: How many bytes a form may have: an OPML document as a file, and what is around it.
_MAX_FORM: Final = MAX_BYTES + 10_000

#: How many of the feeds that an import could not follow are named.
_NAMED: Final = 50

#: Longer titles of feeds are cut to this many characters: strangers write them.
_TITLE: Final = 200

#: A time in the status of a feed.
_TIME: Final = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z)")

#: How a feed is followed: the word, the class of its badge.
_HOW: Final = {
    "websub": ("pushed by a hub", "good"),
    "rsscloud": ("pushed by rssCloud", "good"),
    "own": ("at this broker", "good"),
    "polled": ("polled", ""),
}


class FeedsPage:
    """Shows the reading list, and does what its forms ask for."""

    def __init__(self, parts: AppParts, river: River) -> None:
        self._parts = parts
        self._river = river
        self._actions: dict[str, Callable[[Request, Caller], Awaitable[Answer]]] = {
            "subscribe": self._subscribe,
            "unsubscribe": self._unsubscribe,
            "mute": self._mute,
            "unmute": self._mute,
            "import": self._import,
            "share": self._share,
        }

    def routes(self) -> Sequence[Route]:
        """The routes of the page."""
        callers = self._parts.callers
        show = for_signed_in(callers, lambda request, caller: self._render(caller))
        act = for_signed_in(callers, self._act)
        return [
            Route(PATH, "GET", show),
            Route(PATH, "POST", act, content_types=_TYPES, body_limit=_MAX_FORM),
        ]

    async def _act(self, request: Request, caller: Caller) -> Answer:
        try:
            form = await file_forms.spread_fields(request, self._parts.in_thread)
            if form is not None and request.args is not None:
                request.args |= {name.encode(): [data] for name, _, data in form.files}
            action = self._actions.get(parameter(request, "do"))
            self._parts.callers.check_form(request, caller)
            if action is None:
                raise InvalidFeed("this form asks for nothing known here")
            return await action(request, caller)
        except ForgedForm:
            raise  # another site sent it: there is no page for it
        except Refused as error:
            status = 429 if isinstance(error, TooMany) else 400
            # What was typed, or pasted, comes back to be corrected.
            typed, text = parameter(request, "url")[:2048], parameter(request, "text")
            return await self._render(
                caller, problem=sentence(str(error)), typed=typed, text=text, status=status
            )

    async def _subscribe(self, request: Request, caller: Caller) -> Answer:
        source = client_address(request)
        feed = await self._river.subscribe(caller, parameter(request, "url").strip(), source)
        when = " now." if feed.is_new else " already."
        done = tags.transparent("You follow ", strangers_text(feed.title, _TITLE), when)
        return await self._render(caller, done=done)

    async def _unsubscribe(self, request: Request, caller: Caller) -> Answer:
        if not await self._river.unsubscribe(caller, number_parameter(request, "id")):
            raise InvalidFeed("you do not follow this feed; you may have left it already")
        return await self._render(caller, done="You do not follow this feed any more.")

    async def _mute(self, request: Request, caller: Caller) -> Answer:
        """Have the river leave the items of a feed out, or show them again, as the form says."""
        is_muted = parameter(request, "do") == "mute"
        number = number_parameter(request, "id")
        if not await self._river.store.mute_feed(caller.account.id, number, is_muted):
            raise InvalidFeed("you do not follow this feed; you may have left it already")
        shown = "does not show" if is_muted else "shows"
        return await self._render(caller, done=f"Your river {shown} the items of this feed now.")

    async def _import(self, request: Request, caller: Caller) -> Answer:
        """Follow the feeds of an OPML document: a file, or else the text in the form."""
        args = request.args or {}
        file, text = (next(filter(None, args.get(name, ())), b"") for name in (b"opml", b"text"))
        data = file or pasted(text)
        if not data.strip():
            raise InvalidFeed("there is no OPML: choose a file, or paste the document")
        source = client_address(request)
        imported: ImportedFeeds = await self._river.import_opml(caller, data, source)
        return await self._render(caller, done=_import_in_words(imported), failed=imported.failed)

    async def _share(self, request: Request, caller: Caller) -> Answer:
        is_public = bool(parameter(request, "public"))
        await self._river.store.set_public(caller.account.id, caller.name, is_public)
        who = "Everybody" if is_public else "Nobody but you"
        return await self._render(caller, done=f"{who} may read your river now.")

    async def _render(
        self,
        caller: Caller,
        *,
        problem: str = "",
        done: Tag | str = "",
        typed: str = "",
        text: str = "",
        failed: Sequence[tuple[str, str]] = (),
        status: int = 200,
    ) -> Answer:
        """Render the page: what a form has done, and what went wrong.

        :param typed, text: an address and an OPML document to correct.
        """
        feeds = await self._river.feeds(caller.account.id)
        is_public = await self._river.store.is_public(caller.account.id)
        page = await self._parts.pages.render(
            "Reading list",
            "rsscloud_broker.apps.river:feeds.html",
            caller,
            here="/river",
            csrf=caller.csrf,
            problem=problem,
            done=done,
            typed=typed,
            text=text,
            failed=[
                tags.li(strangers_text(url, _TITLE), f": {reason}")
                for url, reason in failed[:_NAMED]
            ],
            count=counted(len(feeds), "feed"),
            ways=_ways_in_words(feeds),
            progress=_progress(feeds),
            feeds=[_feed_item(each, caller, self._parts.clock) for each in feeds],
            nothing="" if feeds else "none",
            public="public" if is_public else "",
            private="" if is_public else "private",
            river_js=f"{self._parts.public_url}/river/river.js?account={caller.name}",
        )
        return Answer(page, status=status, headers=NO_STORE)


def _with_moments(text: str, now: float) -> list[Flattenable]:
    """A sentence in which times are said as people say them: "in 3 days"."""
    parts: list[Flattenable] = []
    for part in _TIME.split(text):
        shown: Flattenable = part
        if _TIME.fullmatch(part):
            with suppress(ValueError):  # a hub or a server wrote one that cannot be
                shown = moment(datetime.fromisoformat(part).timestamp(), now)
        parts.append(shown)
    return parts


def _import_in_words(imported: ImportedFeeds) -> str:
    text = f"You follow {counted(imported.added, 'feed')} more now. The broker reads them soon."
    if not imported.added:
        text = "You follow no more feeds than before."
    if failed := len(imported.failed):
        text += f" {counted(failed, 'feed')} could not be followed"
        text += ":" if failed <= _NAMED else f"; the first {_NAMED} are:"
    return text


def _ways_in_words(feeds: Sequence[Feed]) -> str:
    """How many feeds come in which way."""
    number = Counter(_HOW[feed.how][0] for feed in feeds)
    said = [f"{number[word]:,} {word}" for word, _ in _HOW.values() if number[word]]
    muted = sum(feed.is_muted for feed in feeds)
    return ", ".join([*said, f"{muted:,} muted"] if muted else said)


def _progress(feeds: Sequence[Feed]) -> list[Flattenable]:
    """How many feeds have been fetched, until all have been."""
    done = len(feeds) - sum(feed.is_waiting for feed in feeds)
    if done == len(feeds):
        return []
    said = f"{done:,} of {counted(len(feeds), 'feed')} {'is' if done == 1 else 'are'} fetched."
    bar = tags.progress(value=str(done), max=str(len(feeds)), **{"aria-label": said})
    return [bar, tags.span(said), tags.a("Load the page again", href=PATH)]


def _feed_item(feed: Feed, caller: Caller, clock: IClock) -> Tag:
    """A followed feed in the list: how its items come, its state, and buttons to leave it."""
    now = clock.wall_seconds()
    title = strangers_text(feed.title, _TITLE)
    word, kind = _HOW[feed.how]
    if feed.how == "websub" and feed.hub:
        word = f"pushed by {shown_host(feed.hub)}"
    facts: list[Flattenable] = []
    if feed.verified_at is not None:
        facts += ["Last confirmed ", moment(feed.verified_at, now), ". "]
    facts += ["You began to follow it ", moment(feed.added_at, now), "."]
    fields = hidden({"csrf": caller.csrf, "id": str(feed.id)})
    name = clipped(clean(feed.title), _TITLE)
    mute = ("Unmute", "unmute", "second") if feed.is_muted else ("Mute", "mute", "second")
    buttons = [
        tags.button(verb, name="do", value=do, class_=class_, **{"aria-label": f"{verb} {name}"})
        for verb, do, class_ in (mute, ("Unfollow", "unsubscribe", ""))
    ]
    muted = tags.span("muted", class_="badge waiting") if feed.is_muted else ""
    badge = tags.span(word, class_=f"badge {kind}")
    return tags.li(
        tags.div(tags.strong(linked(feed.link, title)), " ", badge, " ", muted),
        tags.div(tags.bdi(linked(feed.url, feed.url)), class_="where"),
        tags.div(*_with_moments(sentence(feed.status), now), class_="where") if feed.status else "",
        tags.div(*facts, class_="where"),
        tags.form(*fields, *buttons, action=PATH, method="post", class_="both"),
    )
