"""The page ``/feeds``: the files of who has signed in, with their versions and the quota.

``GET /feeds?file=PATH`` also lists the versions of a file, and ``GET /feeds?file=PATH&version=ID``
shows one of them as plain text.  Forms are sent by ``POST /feeds`` with ``csrf``, ``file`` and
``do``: ``delete``, or ``restore`` with ``version``.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from twisted.web.server import Request
from twisted.web.template import Tag, tags
from zope.interface import implementer

from rsscloud_broker.apps.hosting.documents import FEED
from rsscloud_broker.apps.hosting.hosting import Hosting
from rsscloud_broker.apps.hosting.options import PREFIX
from rsscloud_broker.apps.hosting.rows import File, Version
from rsscloud_broker.apps.hosting.saving import MAX_FILES
from rsscloud_broker.apps.hosting.serving import SAFE
from rsscloud_broker.errors import Refused, TooMany
from rsscloud_broker.http.answering import PLAIN, Answer
from rsscloud_broker.http.requests import client_address, number_parameter, parameter
from rsscloud_broker.interfaces import AppParts, Caller, IFrontDoor, Route, RoutesOnly
from rsscloud_broker.web.callers import NO_STORE, for_signed_in, redirect
from rsscloud_broker.web.words import clock_time, counted, dated, one_button
from rsscloud_broker.wire.text import parse_number, sentence

_TEMPLATE: Final = "rsscloud_broker.apps.hosting:feeds.html"
_DONE: Final = {
    "restored": "The version has been restored: it is served now.",
    "deleted": "The file has been deleted. Who asks for it learns that it is gone for good.",
}


@implementer(IFrontDoor)
class FeedsDoor(RoutesOnly):
    """The front door for ``/feeds``."""

    name = "hosting_page"

    def __init__(self, hosting: Hosting, parts: AppParts) -> None:
        self._hosting = hosting
        self._parts = parts

    def routes(self) -> list[Route]:
        return [
            Route(PREFIX, "GET", for_signed_in(self._parts.callers, self._show)),
            Route(PREFIX, "POST", for_signed_in(self._parts.callers, self._act)),
        ]

    async def _show(self, request: Request, caller: Caller) -> Answer:
        """The page, or one version of a file."""
        path, version = parameter(request, "file"), parameter(request, "version")
        if path and version:
            return await self._show_version(caller, path, version)
        return await self._render(caller, path, done=_DONE.get(parameter(request, "done"), ""))

    async def _show_version(self, caller: Caller, path: str, key: str) -> Answer:
        """A version of a file: an image as it is, everything else as plain text."""
        found = await self._hosting.version(caller, path, parse_number(key) or 0)
        if found is None:
            return Answer(b"There is no such version here.\n", PLAIN, 404, NO_STORE)
        charset = found.media_type.partition("charset=")[2] or "utf-8"
        is_image = found.media_type.startswith("image/")
        shown_as = found.media_type if is_image else f"text/plain; charset={charset}"
        return Answer(found.body, shown_as, 200, {**SAFE, **NO_STORE})

    async def _act(self, request: Request, caller: Caller) -> Answer:
        """Do what a form asks for; if that is refused, show the page with the reason."""
        path = parameter(request, "file")
        self._parts.callers.check_form(request, caller)
        try:
            return await self._delete_or_restore(request, caller, path)
        except Refused as error:
            status = 429 if isinstance(error, TooMany) else 400
            return await self._render(caller, path, problem=sentence(str(error)), status=status)

    async def _delete_or_restore(self, request: Request, caller: Caller, path: str) -> Answer:
        """Delete a file or restore a version, as a form asks for, and answer."""
        source, do = client_address(request), parameter(request, "do")
        if do == "delete":
            if await self._hosting.remove(caller, path, source):
                return redirect(f"{PREFIX}?done=deleted")
            return await self._render(caller, problem="There is no such file any more.", status=404)
        if do != "restore":
            return await self._render(caller, problem="This form asks for nothing known here.")
        version = number_parameter(request, "version")
        if await self._hosting.restore(caller, path, version, source):
            return redirect(f"{PREFIX}?done=restored&file={quote(path, safe='')}")
        problem = "There is no such version any more: newer ones have taken its place."
        return await self._render(caller, path, problem=problem, status=404)

    async def _render(
        self,
        caller: Caller,
        path: str = "",
        *,
        problem: str = "",
        done: str = "",
        status: int = 400,
    ) -> Answer:
        """Render the page; ``path`` is the file whose versions are listed, empty for none."""
        files = await self._hosting.files(caller)
        versions = await self._hosting.versions(caller, path) if path else []
        page = await self._parts.pages.render(
            "Your feeds",
            _TEMPLATE,
            caller,
            here=PREFIX,
            name=caller.name,
            used=_usage_in_words(files, self._hosting.max_bytes_of(caller)),
            files=[self._file_item(each, caller) for each in files] or tags.li("None yet."),
            path=path if versions else "",
            versions=[_version_item(path, each, caller) for each in versions],
            own=self._hosting.url_of(caller.name, FEED),
            rpc=f"{self._parts.public_url}/RPC2",
            problem=problem,
            done=done,
        )
        return Answer(page, status=status if problem else 200, headers=NO_STORE)

    def _file_item(self, file: File, caller: Caller) -> Tag:
        """An item of the list of files."""
        link = tags.a(file.path, href=self._hosting.url_of(caller.name, file.path))
        versions = counted(file.versions, "version")
        where = tags.a(
            versions,
            href=f"{PREFIX}?file={quote(file.path, safe='')}#versions",
            **{"aria-label": f"{versions} of {file.path}"},
        )
        facts = tags.span(
            f"{file.size:,} bytes, saved ", dated(file.saved_at), ", ", where, ".", class_="where"
        )
        button = tags.button("Delete", **{"aria-label": f"Delete {file.path}"})
        form = one_button(button, PREFIX, caller.csrf, file=file.path, do="delete")
        return tags.li(tags.span(link), facts, form)


def _version_item(path: str, version: Version, caller: Caller) -> Tag:
    """An item of the list of versions."""
    address = f"{PREFIX}?file={quote(path, safe='')}&version={version.id}"
    link = tags.a(dated(version.saved_at), href=address)
    facts = tags.span(f"{version.size:,} bytes, {version.media_type}", class_="where")
    if version.is_present:
        return tags.li(tags.span(link), facts, tags.span("This one is served."))
    what = f"Restore the version of {clock_time(version.saved_at).removesuffix(' UTC')}"
    button = tags.button("Restore", **{"aria-label": what})
    fields = {"file": path, "do": "restore", "version": str(version.id)}
    return tags.li(tags.span(link), facts, one_button(button, PREFIX, caller.csrf, **fields))


def _usage_in_words(files: list[File], max_bytes: int) -> str:
    used, number = sum(each.size for each in files), counted(len(files), "file")
    return f"{number} of at most {MAX_FILES}, with {used:,} of at most {max_bytes:,} bytes"
