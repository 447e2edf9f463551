"""The page ``/write``: a form for a message, and what its author has written before.

The form is sent by ``POST /write`` with ``csrf`` and ``do``, which says what to do: ``post``,
``draft`` or ``preview`` what is in the form, ``discard`` what was typed before, ``delete`` a
message, or ``delete-file``.  It has ``id`` if it changes a message.

While somebody types, ``write.js`` sends the fields to ``POST /write/unsent``, and the page shows
them when it is opened again, in whatever browser.  Until the broker has them, the tab keeps them.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

from twisted.web.server import Request
from twisted.web.template import Flattenable, tags

from rsscloud_broker.apps.writing import outline
from rsscloud_broker.apps.writing.model import InvalidPost, NewPost, Post
from rsscloud_broker.apps.writing.pace import PerMinuteLimit
from rsscloud_broker.apps.writing.people_pages import TEMPLATES, PeoplePages, title_of
from rsscloud_broker.apps.writing.rules import POINTS_PER_GRAPHEME, graphemes, tidy
from rsscloud_broker.apps.writing.write_lists import Lists
from rsscloud_broker.apps.writing.writing import Writing
from rsscloud_broker.errors import DiskFull, Forbidden, ForgedForm, TooMany
from rsscloud_broker.http.answering import Answer, Failure, plain
from rsscloud_broker.http.requests import client_address, number_parameter, parameter
from rsscloud_broker.interfaces import AppParts, Caller
from rsscloud_broker.web import file_forms
from rsscloud_broker.web.callers import NO_STORE, check_sender, origin_of, redirect
from rsscloud_broker.web.words import clipped, counted, moment
from rsscloud_broker.wire.text import sentence

#: The fields of the form that are kept while somebody types.
FIELDS: Final = ("text", "title", "link", "enclosure", "enclosure_text", "categories", "outline")

#: How many characters of all fields together are kept while somebody types; and for how many
#: messages that are being edited.
MAX_TYPED: Final = 100_000
MAX_UNSENT: Final = 20

#: How often in a minute an account may keep what it types.
_KEEPS_PER_MINUTE: Final = 120

#: What the page says after something was done, by the word in the address to which it leads.
_DONE: Final = {
    "draft": "The draft is stored. Only you can see it.",
    "deleted": "The message is deleted.",
    "file": "The file is deleted.",
}

#: The same of a message that everybody can read, before its title.
_PUBLIC: Final = {"posted": "Published", "changed": "Changed"}

#: What is done by buttons outside the form for a message.
_BUTTONS: Final = frozenset({"discard", "delete", "delete-file"})

_ANEW: Final = "you have signed in anew since you opened this page"
_SIGNED_OUT: Final = (
    "You are not signed in any more, so nothing was stored. Sign in at /signin in another tab. "
    "Then load this page again: your browser sends once more what you have typed."
)

JSON: Final = "application/json"


class WritePage:
    """Shows the page, and does what its forms ask for."""

    def __init__(self, parts: AppParts, writing: Writing, people: PeoplePages) -> None:
        self._writing = writing
        self._people = people
        self._parts = parts
        self._origin = origin_of(parts.public_url)
        self._lists = Lists(parts, writing)
        self._keeps = PerMinuteLimit(
            parts.clock, _KEEPS_PER_MINUTE, "requests to keep what is typed"
        )
        self._actions: dict[
            str, Callable[[Request, Caller, tuple[str, bytes] | None], Awaitable[Answer]]
        ] = {
            "post": self._send,
            "draft": self._send,
            "preview": self._preview,
            "discard": self._discard,
            "delete": self._delete,
            "delete-file": self._delete_file,
        }

    async def show(self, request: Request, caller: Caller) -> Answer:
        """The page."""
        number = number_parameter(request, "id")
        post = await self._writing.post(caller, number) if number else None
        if number and post is None:
            text = "You have no such message; it may have been deleted."
            return await self._render(request, caller, None, problem=text, status=404)
        done, about = parameter(request, "done"), number_parameter(request, "about")
        message: Flattenable = _DONE.get(done, "")
        what = _PUBLIC.get(done, "")
        if what and about and (made := await self._writing.post(caller, about)):
            url = urlsplit(self._writing.feeds.page_url(made)).path
            message = [f"{what}: ", tags.a(clipped(title_of(made), 60), href=url)]
        return await self._render(request, caller, post, done=message)

    async def act(self, request: Request) -> Answer:
        """Do what a form asks for, which may have a file in it; or show why not.

        Only forms of people who have signed in are parsed, since a file may be large.  Who is not
        signed in any more is not led away from the answer: a browser that loads it again sends the
        form once more, with all that was typed.
        """
        caller = await self._parts.callers.caller(request)
        if caller is None or caller.session is None:
            return plain(403, _SIGNED_OUT, NO_STORE)
        form = await file_forms.spread_fields(request, self._parts.in_thread)
        file = form.file if form is not None else None
        do = parameter(request, "do")
        action, is_typed = self._actions.get(do), do not in _BUTTONS
        try:
            self._parts.callers.check_form(request, caller)
        except ForgedForm:
            if not is_typed:
                raise
            check_sender(request, self._origin)  # of another site nothing is shown
            problem = f"{_ANEW}, as {caller.name}; look at what is in it, and send it again"
            return await self._render_again(request, caller, problem, 403)
        try:
            if action is None:
                raise InvalidPost("this form asks for nothing known here")
            return await action(request, caller, file)
        except (InvalidPost, TooMany, Forbidden) as error:
            problem, status = str(error), Failure.of(error).status
        except DiskFull:
            problem, status = DiskFull.public_text.removesuffix("."), 503
        if not is_typed:
            return await self._render(
                request, caller, None, problem=sentence(problem), status=status
            )
        return await self._render_again(request, caller, problem, status)

    async def _render_again(
        self, request: Request, caller: Caller, problem: str, status: int
    ) -> Answer:
        """The page with what was sent, and with the reason why it was not accepted."""
        number = number_parameter(request, "id")
        post = await self._writing.post(caller, number) if number else None
        return await self._render(
            request, caller, post, _sent_fields(request), problem=sentence(problem), status=status
        )

    async def _send(
        self, request: Request, caller: Caller, file: tuple[str, bytes] | None
    ) -> Answer:
        """Publish a message, or store it as a draft."""
        source = client_address(request)
        old, new = await self._read_typed(request, caller, file)
        number = number_parameter(request, "id")
        if number:
            post = await self._writing.edit(caller, number, new, source)
        else:
            post = await self._writing.add(caller, new, source)
        await self._writing.store.drop_unsent(caller.account.id, number)
        if post.is_draft:
            return redirect(f"/write?id={post.id}&done=draft")
        done = "changed" if _is_public(old) else "posted"
        return redirect(f"/write?done={done}&about={post.id}")

    async def _preview(
        self, request: Request, caller: Caller, file: tuple[str, bytes] | None
    ) -> Answer:
        """Show a message as it would look, above the form with it."""
        old, new = await self._read_typed(request, caller, file)
        post = await self._writing.preview(caller, new)
        shown = self._people.article(post, alone=True)
        return await self._render(request, caller, old, _sent_fields(request), preview=shown)

    async def _read_typed(
        self, request: Request, caller: Caller, file: tuple[str, bytes] | None
    ) -> tuple[Post | None, NewPost]:
        """The message that is edited, and what was typed.  A file is stored at once."""
        number = number_parameter(request, "id")
        old = await self._writing.post(caller, number) if number else None
        if file is not None and any(file):
            upload = await self._writing.upload(caller, *file, client_address(request))
            before = self._writing.files.parse_url(parameter(request, "enclosure"))
            former = await self._writing.store.upload_named(*before) if before else None
            # The form, if it comes back, has the address of the file.
            assert request.args is not None  # there were fields
            request.args[b"enclosure"] = [self._writing.files.url(caller.name, upload).encode()]
            # The name of the file that was there stood for that one only.
            if parameter(request, "enclosure_text").strip() in ("", former and former.name):
                request.args[b"enclosure_text"] = [upload.name.encode()]
        return old, self._new_post(request, old)

    def _new_post(self, request: Request, old: Post | None) -> NewPost:
        """The message that was typed, in place of the old one if any."""
        typed = parameter(request, "outline")
        # What nobody changed stays, with the titles of items, which the form does not have.
        is_same = old is not None and _split_lines(typed) == _split_lines(outline.write(old.items))
        names = parameter(request, "categories")
        categories = tuple(names.split(","))
        # The same with categories: in those that programs made may be commas.
        if old is not None and names.strip() == _categories_field(old):
            categories = old.categories
        return NewPost(
            parameter(request, "text"),
            parameter(request, "title"),
            parameter(request, "link"),
            parameter(request, "enclosure"),
            categories,
            old.items if old is not None and is_same else outline.parse(typed),
            is_draft=parameter(request, "do") == "draft",
            enclosure_text=parameter(request, "enclosure_text"),
        )

    async def _discard(self, request: Request, caller: Caller, _: object) -> Answer:
        """Forget what was typed and not sent."""
        number = number_parameter(request, "id")
        await self._writing.store.drop_unsent(caller.account.id, number)
        return redirect(f"/write?id={number}" if number else "/write")

    async def _delete(self, request: Request, caller: Caller, _: object) -> Answer:
        """Delete a message, and forget what was typed to change it."""
        number = number_parameter(request, "id")
        source = client_address(request)
        await self._writing.delete(caller, number, source)
        await self._writing.store.drop_unsent(caller.account.id, number)
        return redirect("/write?done=deleted")

    async def _delete_file(self, request: Request, caller: Caller, _: object) -> Answer:
        await self._writing.remove_upload(caller, parameter(request, "file"))
        return redirect("/write?done=file")

    async def keep_typed(self, request: Request) -> Answer:
        """Keep what somebody is typing, until it is sent or discarded; ``write.js`` asks for it."""
        caller = await self._parts.callers.caller(request)
        if caller is None or caller.session is None:
            return _not_kept(403, "you are not signed in any more; sign in again in another tab")
        try:
            self._parts.callers.check_form(request, caller)
            self._keeps.take(caller.account.id)
        except ForgedForm:
            return _not_kept(403, f"{_ANEW}; press Preview, and go on from there")
        except TooMany as error:
            return _not_kept(429, str(error))
        number = number_parameter(request, "id")
        fields = _sent_fields(request)
        if sum(map(len, fields.values())) > MAX_TYPED:
            return _not_kept(413, f"only {MAX_TYPED:,} characters can be kept")
        if number and await self._writing.post(caller, number) is None:
            return _not_kept(404, "this message is deleted")
        store, account_id = self._writing.store, caller.account.id
        if any(fields.values()):
            at = self._parts.clock.wall_seconds()
            await store.keep_unsent(account_id, number, fields, at, MAX_UNSENT)
        else:
            await store.drop_unsent(account_id, number)
        return Answer(b'{"kept": true}\n', JSON, headers=NO_STORE)

    async def _render(
        self,
        request: Request,
        caller: Caller,
        post: Post | None,
        fields: Mapping[str, str] | None = None,
        *,
        problem: str = "",
        done: Flattenable = "",
        preview: Flattenable = "",
        status: int = 200,
    ) -> Answer:
        """Render the page.

        :param post: the message that is edited; None for a new one.
        :param fields: what is in the form, by ``FIELDS``; None for what somebody was typing there,
            or else the message as it is.
        """
        restored: Flattenable = ""
        if fields is None:
            number = post.id if post else 0
            kept = await self._writing.store.unsent_of(caller.account.id, number)
            fields = kept[0] if kept else _fields_of(post)
            restored = moment(kept[1], self._parts.clock.wall_seconds()) if kept else ""
        categories = await self._writing.store.categories(caller.account.id)
        lists = await self._lists.slots(request, caller)
        most = self._writing.options.max_characters
        given = {name: fields.get(name, "") for name in FIELDS}
        page = await self._parts.pages.render(
            "Write",
            f"{TEMPLATES}:write.html",
            caller,
            here="/write",
            csrf=caller.csrf,
            id=str(post.id) if post else "",
            heading=_heading(post),
            editing="editing" if post else "",
            publish="Save the change" if _is_public(post) else "Post",
            keep="Unpublish it, and keep it as a draft" if _is_public(post) else "Keep as a draft",
            problem=problem,
            done=done,
            restored=restored,
            preview=preview,
            most=str(most),
            left=_characters_left(given["text"], most),
            max_bytes=f"{self._writing.options.max_upload_bytes:,}",
            choices=[tags.option(value=each) for each in categories],
            **lists,
            **given,
        )
        return Answer(page, status=status, headers=NO_STORE)


def _is_public(post: Post | None) -> bool:
    return post is not None and not post.is_draft


def _heading(post: Post | None) -> str:
    if post is None:
        return "Write"
    return "Edit a draft" if post.is_draft else "Edit a message"


def _characters_left(text: str, most: int) -> str:
    """How many characters somebody may still type, as ``write.js`` says it, too."""
    if len(text) > most * POINTS_PER_GRAPHEME:
        return "Much too long"
    left = most - graphemes(tidy(text))
    return f"{counted(abs(left), 'character')} {'left' if left >= 0 else 'too many'}"


def _fields_of(post: Post | None) -> dict[str, str]:
    """What is in the form for a message."""
    if post is None:
        return {}
    return {
        "text": post.text,
        "title": post.title,
        "link": post.link,
        "enclosure": post.enclosure.url if post.enclosure else "",
        "enclosure_text": post.enclosure.text if post.enclosure else "",
        "categories": _categories_field(post),
        "outline": outline.write(post.items),
    }


def _categories_field(post: Post) -> str:
    """The categories of a message as they are in the form."""
    return ", ".join(post.categories)


def _sent_fields(request: Request) -> dict[str, str]:
    """The fields of a form as they came."""
    return {name: parameter(request, name).replace("\r\n", "\n") for name in FIELDS}


def _split_lines(text: str) -> list[str]:
    return text.rstrip().splitlines()


def _not_kept(status: int, problem: str) -> Answer:
    """The answer to ``write.js`` if something could not be kept."""
    body = json.dumps({"kept": False, "problem": sentence(problem)})
    return Answer(f"{body}\n".encode(), JSON, status, NO_STORE)
