"""The lists below the form of ``/write``: drafts, messages and files, with buttons to delete them.

Drafts and files are nowhere else, so there are links to older ones.  All messages are on the page
of their author, each with a link to edit it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from twisted.web.server import Request
from twisted.web.template import Flattenable, Tag, tags

from rsscloud_broker.apps.writing.model import Post
from rsscloud_broker.apps.writing.people_pages import title_of
from rsscloud_broker.apps.writing.upload_rows import StoredUpload
from rsscloud_broker.apps.writing.writing import Writing
from rsscloud_broker.http.requests import number_parameter
from rsscloud_broker.interfaces import AppParts, Caller
from rsscloud_broker.model.administration import Change
from rsscloud_broker.web.words import clipped, counted, moment, one_button, strangers_text
from rsscloud_broker.wire.text import sentence
from rsscloud_broker.wire.units import DAY

#: How many messages, drafts and files are listed at a time.
LISTED: Final = 20

#: For how long the page says that something was taken down, in seconds.
_TOLD_FOR: Final = 30 * DAY


class Lists:
    """Makes the lists of drafts, messages and files of an author."""

    def __init__(self, parts: AppParts, writing: Writing) -> None:
        self._writing = writing
        self._parts = parts

    async def slots(self, request: Request, caller: Caller) -> dict[str, Flattenable]:
        """What ``write.html`` shows of them.

        :param request: its parameter ``drafts`` is the id of the draft before which the list of
            drafts begins; and ``files``, how many files are left out at the beginning of theirs.
        """
        before = number_parameter(request, "drafts")
        skipped = number_parameter(request, "files")
        store, account_id = self._writing.store, caller.account.id
        drafts = await store.all_posts(account_id, LISTED + 1, before or None, is_draft=True)
        posts = await store.all_posts(account_id, LISTED, is_draft=False)
        files = await store.uploads(account_id, LISTED + 1, skipped)
        older_drafts = drafts[LISTED - 1].id if len(drafts) > LISTED else 0
        older_files = skipped + LISTED if len(files) > LISTED else 0
        now = self._parts.clock.wall_seconds()
        since = max(caller.account.created_at, now - _TOLD_FOR)
        return {
            "taken_down": _removal_notice(await self._parts.taken_down(caller.name, since), now),
            "drafts": [self._post_row(each, caller) for each in drafts[:LISTED]],
            "more_drafts": _links("drafts", before, older_drafts),
            "posts": [self._post_row(each, caller) for each in posts],
            "home": f"/people/{caller.name}",
            "uploads": [self._file_row(each, caller) for each in files[:LISTED]],
            "more_uploads": _links("files", skipped, older_files),
        }

    def _post_row(self, post: Post, caller: Caller) -> Tag:
        """A message in a list, with what can be done with it."""
        name = clipped(title_of(post))
        editor = f"/write?id={post.id}"
        page = editor if post.is_draft else urlsplit(self._writing.feeds.page_url(post)).path
        shown = tags.a(tags.bdi(name), href=page)
        edit = tags.a("Edit", href=editor, **{"aria-label": f"Edit: {name}"})
        about: list[Flattenable] = [
            moment(post.changed_at, self._parts.clock.wall_seconds()),
            " · ",
            edit,
        ]
        what = "draft" if post.is_draft else "message"
        button = _folded_button(what, name, caller, do="delete", id=str(post.id))
        return tags.li(shown, tags.span(*about, class_="where"), button)

    def _file_row(self, upload: StoredUpload, caller: Caller) -> Tag:
        """A file in the list, with a button to delete it."""
        path = urlsplit(self._writing.files.url(caller.name, upload)).path
        about = tags.span(f"{upload.media_type}, {upload.size:,} bytes", class_="where")
        name = clipped(upload.name)
        button = _folded_button("file", name, caller, do="delete-file", file=upload.digest)
        link = tags.a(tags.bdi(name), href=path)
        return tags.li(link, about, button)


def _removal_notice(changes: Sequence[Change], now: float) -> list[Flattenable]:
    """Why something of the author's is not there any more; the newest first in ``changes``."""
    if not changes:
        return []
    last, *others = changes
    return [
        "An administrator has taken down ",
        strangers_text(last.title or last.object, 200),
        ", ",
        moment(last.at, now),
        ": ",
        strangers_text(sentence(last.reason), 200),
        " ",
        tags.a(
            f"This and {counted(len(others), 'other')}" if others else "See your account",
            href="/account#taken-down",
        ),
    ]


def _links(what: str, begin: int, older: int) -> list[Flattenable]:
    """Links to the other parts of a list.

    :param what: the name of its parameter, which is that of its section, too.
    :param begin: where this part begins; 0 for the first.
    :param older: where the next part begins; 0 if there is none.
    """
    links: list[Flattenable] = []
    if begin:
        links.append(tags.a(f"The newest {what}", href=f"/write#{what}"))
    if older:
        links.append(tags.a(f"Older {what}", href=f"/write?{what}={older}#{what}", rel="next"))
    return links


def _folded_button(what: str, name: str, caller: Caller, **fields: str) -> Tag:
    """A form that appears only when somebody asks for it, as what it does cannot be undone.

    :param name: what it deletes, which screen readers say with each of many such forms.
    :param fields: see ``write_page``.
    """
    button = tags.button(f"Delete this {what}", class_="careful")
    form = one_button(button, "/write", caller.csrf, **fields)
    summary = tags.summary("Delete…", **{"aria-label": f"Delete… {name}"})
    return tags.details(summary, form, class_="sure")
