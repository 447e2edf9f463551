"""The pages that everybody may read: who writes here, the messages of one author, one message."""

from __future__ import annotations

from typing import Final

from twisted.web.server import Request
from twisted.web.template import Flattenable, Tag, tags

from rsscloud_broker.apps.writing.feeds import FORMATS
from rsscloud_broker.apps.writing.model import OutlineItem, Post
from rsscloud_broker.apps.writing.rows import Author
from rsscloud_broker.apps.writing.rsd import MEDIA_TYPE as RSD
from rsscloud_broker.apps.writing.rsd import discovery_links, rsd_url
from rsscloud_broker.apps.writing.texts import outline_elements, shown
from rsscloud_broker.apps.writing.writing import Writing
from rsscloud_broker.database.columns import to_micros
from rsscloud_broker.http.answering import PLAIN, Answer, private, viewer_of
from rsscloud_broker.http.requests import parameter
from rsscloud_broker.interfaces import AppParts
from rsscloud_broker.web.pages import linked
from rsscloud_broker.web.words import clipped, counted, moment
from rsscloud_broker.wire.text import parse_number

NOTHING_HERE: Final = Answer(b"There is nothing at this address.\n", PLAIN, 404)

GONE: Final = Answer(b"This is gone: the account that wrote it was removed.\n", PLAIN, 410)

#: The answer for a number that an author has used.  Drafts are answered like deleted messages, so
#: that nobody learns which there are; caches must ask again, as a draft may be published.
DELETED: Final = Answer(
    b"This is gone: no message with this number is published any more, or yet.\n",
    PLAIN,
    410,
    {"cache-control": "no-cache"},
)

#: The package of the templates.
TEMPLATES: Final = "rsscloud_broker.apps.writing"

#: How many messages a page has, and how many authors.
PER_PAGE: Final = 20
AUTHORS_PER_PAGE: Final = 200


class PeoplePages:
    """Makes the pages of all authors, of one author, and of one message."""

    def __init__(self, parts: AppParts, writing: Writing) -> None:
        self._parts = parts
        self._writing = writing

    async def list_authors(self, request: Request) -> Answer:
        """Who writes here."""
        viewer = await viewer_of(self._parts.callers, request)
        before = _read_place(parameter(request, "before"))
        found = await self._writing.store.authors(AUTHORS_PER_PAGE + 1, before)
        authors = found[:AUTHORS_PER_PAGE]
        now = self._parts.clock.wall_seconds()
        links: list[Flattenable] = []
        if before is not None:
            links.append(tags.a("Those who wrote last", href="/people"))
        if len(found) > AUTHORS_PER_PAGE:
            more = f"/people?before={_place_of(authors[-1])}"
            links.append(tags.a("More people", href=more, rel="next"))
        page = await self._parts.pages.render(
            "People",
            f"{TEMPLATES}:people.html",
            viewer,
            here="/people",
            people=[
                tags.li(
                    tags.a(each.name, href=f"/people/{each.name}"),
                    " ",
                    tags.span(moment(each.changed_at, now), class_="where"),
                )
                for each in authors
            ],
            nobody="" if authors or before is not None else "nobody",
            paging=links,
        )
        return Answer(page, headers=private(viewer))

    async def of_author(self, request: Request, name: str, number: int | None) -> Answer:
        """The messages of an author, or one of them.

        :param number: the id of that message; None for all.
        """
        author = await self._writing.store.author_named(name)
        if author is None or not author.is_public:
            return await self.nothing_of(name)
        if number is None:
            return await self._list_posts(request, author)
        post = await self._writing.store.find_post(author, number)
        if post is None or post.is_draft:
            return DELETED if 0 < number < author.next_id else NOTHING_HERE
        return await self._show_message(request, author, post)

    async def nothing_of(self, name: str) -> Answer:
        """The answer if an author has nothing at an address: ``GONE`` of a removed account."""
        return GONE if await self._writing.store.is_former(name) else NOTHING_HERE

    async def _list_posts(self, request: Request, author: Author) -> Answer:
        """A page with messages of an author, the newest or those before a position."""
        typed = parameter(request, "before")
        before = parse_number(typed)
        if typed and before is None:
            text = "The parameter before is no position; take it from the link to older messages.\n"
            return Answer(text.encode(), PLAIN, 400)
        found = await self._writing.store.published(author, PER_PAGE + 1, before)
        viewer = await viewer_of(self._parts.callers, request)
        home = f"/people/{author.name}"
        links: list[Flattenable] = []
        if before is not None:
            links.append(tags.a("The newest messages", href=home))
        if len(found) > PER_PAGE:
            older = f"{home}?before={found[PER_PAGE - 1].position}"
            links.append(tags.a("Older messages", href=older, rel="next"))
        page = await self._parts.pages.render(
            author.name,
            f"{TEMPLATES}:author.html",
            viewer,
            alternates=self._alternates(author),
            name=author.name,
            feeds=[tags.a(each.name, href=f"{home}/{file}") for file, each in FORMATS.items()],
            posts=[self.article(each, alone=False) for each in found[:PER_PAGE]],
            nothing="" if found else "nothing",
            paging=links,
        )
        links_to_apis = {"link": discovery_links(self._parts.public_url, author.name)}
        return Answer(page, headers=private(viewer) | links_to_apis)

    async def _show_message(self, request: Request, author: Author, post: Post) -> Answer:
        """The page of one message, with a link to edit it for its author."""
        viewer = await viewer_of(self._parts.callers, request)
        is_own = viewer is not None and viewer.account.id == author.account_id
        page = await self._parts.pages.render(
            f"{author.name}: {clipped(title_of(post), 60)}",
            f"{TEMPLATES}:message.html",
            viewer,
            alternates=self._alternates(author),
            name=tags.a(author.name, href=f"/people/{author.name}"),
            post=self.article(post, alone=True),
            edit=tags.a("Edit this message", href=f"/write?id={post.id}") if is_own else "",
        )
        return Answer(page, headers=private(viewer))

    def _alternates(self, author: Author) -> list[Tag]:
        """Links for the head of a page, by which readers find the feeds, and editors the APIs."""
        about = rsd_url(self._parts.public_url, author.name)
        return [
            tags.link(rel="EditURI", type=RSD, title="RSD", href=about),
            tags.link(rel="micropub", href=f"{self._parts.public_url}/micropub"),
        ] + [
            tags.link(
                rel="alternate",
                type=each.media_type.partition(";")[0],
                title=f"{author.name} ({each.name})",
                href=self._writing.feeds.url(author.name, file),
            )
            for file, each in FORMATS.items()
        ]

    def article(self, post: Post, *, alone: bool) -> Tag:
        """A message.

        :param alone: whether it is the only one on the page.
        """
        parts: list[Flattenable] = []
        if post.title:
            title = linked(post.link, post.title) if post.link else post.title
            parts.append(tags.h2(tags.bdi(title)))
        parts.append(tags.p(shown(post.text), class_="message", dir="auto"))
        if post.link and not post.title:
            parts.append(tags.p(linked(post.link, clipped(post.link))))
        if post.enclosure:
            parts.append(self._enclosure(post))
        number = _count_items(post.items)
        # With more items than these, the outline of a message is shown on its own page only.
        if alone or number <= 30:
            parts.append(outline_elements(post.items))
        else:
            below = f"{counted(number, 'item')} below"
            parts.append(tags.p(tags.a(below, href=self._path(post))))
        parts.append(self._times_and_categories(post, alone=alone))
        return tags.article(*parts, class_="post")

    def _enclosure(self, post: Post) -> Tag:
        """A picture that is kept here; or a link to a file, since pages load nothing of others."""
        file = post.enclosure
        assert file is not None  # the caller has looked
        path = file.url.removeprefix(self._parts.public_url)
        is_own = self._writing.files.parse_url(file.url) is not None
        if is_own and file.media_type.startswith("image/"):
            picture = tags.img(
                src=path, alt=file.text or "The picture that belongs to this message"
            )
            return tags.p(tags.a(picture(loading="lazy"), href=path), class_="enclosure")
        size = f", {file.size:,} bytes" if file.size else ""
        kind = f" ({file.media_type}{size})" if file.media_type else ""
        name = clipped(file.text or file.url.rpartition("/")[2] or file.url, 40)
        return tags.p("File: ", linked(file.url, name), kind, class_="enclosure")

    def _times_and_categories(self, post: Post, *, alone: bool) -> Tag:
        """When a message was written and changed, with a link to its page; and its categories."""
        now = self._parts.clock.wall_seconds()
        about: list[Flattenable] = [moment(post.created_at, now)]
        if not alone:
            about = [tags.a(*about, href=self._path(post))]
        if post.changed_at - post.created_at > 1:
            about += [", changed ", moment(post.changed_at, now)]
        if post.categories:
            about += [" · ", tags.bdi(", ".join(post.categories))]
        return tags.p(*about, class_="quiet")

    def _path(self, post: Post) -> str:
        return f"/people/{post.author}/{post.id}"


def _place_of(author: Author) -> str:
    """Where an author is among all now.  The author moves when it writes; this place stays."""
    return f"{to_micros(author.changed_at)}-{author.name}"


def _read_place(place: str) -> tuple[int, str] | None:
    """What ``_place_of`` has written: microseconds and a name; None if it is something else."""
    number, _, name = place.partition("-")
    micros = parse_number(number)
    return None if micros is None else (micros, name)


def title_of(post: Post) -> str:
    """What a message is called in a list: its title, or the beginning of what it has."""
    file = post.enclosure.url if post.enclosure else ""
    first = post.items[0].text if post.items else ""
    return post.title or " ".join(post.text.split()) or post.link or first or file


def _count_items(items: tuple[OutlineItem, ...]) -> int:
    """How many items an outline has, on all levels."""
    return sum(1 + _count_items(each.items) for each in items)
