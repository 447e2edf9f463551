"""What all pages of the console share: who may see them, forms, notices and questions.

A page is a ``GET``.  A change is a ``POST`` to the same path, with ``csrf`` and ``do``, the name of
an operation; its answer leads back to a page (303), where a notice says that it was done.  What
nobody can undo is asked once more.  No cache keeps any of these pages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from functools import partial
from typing import Any, Final

from attrs import frozen
from msgspec import Struct, structs
from twisted.web.server import Request
from twisted.web.template import Flattenable, Tag, tags

from rsscloud_broker import interfaces
from rsscloud_broker.errors import Unadministrable
from rsscloud_broker.http.answering import PLAIN, Answer, Answers, plain
from rsscloud_broker.http.requests import parameter
from rsscloud_broker.web.admin.api_operation import Administrator, Operation
from rsscloud_broker.web.admin.elements import path
from rsscloud_broker.web.admin.forms import form, objects, read_form
from rsscloud_broker.web.admin.operations import OPERATIONS
from rsscloud_broker.web.admin.shapes import Shape
from rsscloud_broker.web.callers import NO_STORE, for_signed_in, redirect
from rsscloud_broker.web.navigation import link
from rsscloud_broker.web.words import hidden
from rsscloud_broker.wire.text import sentence

#: The pages of the console, with the texts of the links to them.
PLACES: Final = {
    "/admin": "Overview",
    "/admin/subscriptions": "Subscriptions",
    "/admin/topic": "Topics",
    "/admin/hosts": "Hosts",
    "/admin/blocks": "Blocks",
    "/admin/accounts": "Accounts",
    "/admin/announcements": "Announcements",
    "/admin/changes": "Changes",
    "/admin/log": "Log",
}


#: What pages say after an operation was done, by its name.
_DONE: Final = {each.name: each.form.done for each in OPERATIONS if each.form}


@frozen
class Console:
    """What the pages are given.

    :ivar running: the names of the front doors and applications that run: see ``FrontDoorParts``.
    """

    verbs: interfaces.IAdministration
    callers: interfaces.ICallers
    clock: interfaces.IClock
    pages: interfaces.IPages
    accounts: interfaces.IAccounts
    health: interfaces.IHealth | None
    statistics: interfaces.IStatistics
    event_log: interfaces.IEventLog | None
    running: Set[str]

    @classmethod
    def of(cls, parts: interfaces.FrontDoorParts) -> Console | None:
        """What a front door gives its pages; None if the broker has no accounts."""
        if parts.administration is None or parts.callers is None or parts.accounts is None:
            return None
        return cls(
            parts.administration,
            parts.callers,
            parts.clock,
            parts.pages,
            parts.accounts,
            parts.health,
            parts.statistics,
            parts.event_log,
            parts.running,
        )

    def administrator(self, caller: interfaces.Caller) -> Administrator:
        """A caller as the one who does an operation now."""
        return Administrator(self.verbs, caller.name, self.clock.wall_seconds())


@frozen
class PageContent:
    """The content of a page.

    :ivar error: what is wrong with what was asked for; empty if nothing is.
    :ivar status: the status of the answer if something is wrong.
    """

    title: str
    slots: Mapping[str, Flattenable]
    error: str = ""
    status: int = 400


class AdminPage:
    """A page of the console.

    :cvar path: its path.
    :cvar place: the path of the page in the navigation to which it belongs.
    :cvar template: its template.
    :cvar back: the path of the page about what an operation concerns, if this page is about many.
    :cvar done: further texts that the page shows after an operation, by the word ``done`` in its
        address.
    """

    path: str
    place: str
    template: str
    back: str = ""
    done: Mapping[str, str] = {}

    def __init__(self, console: Console) -> None:
        self.verbs = console.verbs
        self.console = console
        self._operations = {
            each.name: each for each in OPERATIONS if each.form and each.form.page == self.path
        }

    # what the pages say

    async def content(self, request: Request, caller: interfaces.Caller) -> PageContent:
        """The content of the page.

        :raises Unadministrable: what the page is about does not exist.
        """
        raise NotImplementedError

    def path_after(self, operation: Operation, asked: Any, answer: Shape) -> str:
        """The path to which the browser is led after an operation.

        :param asked: what the form asked for.
        :raises Unadministrable: the answer says that the operation failed.
        """
        return path(self.path, done=operation.name)

    def notice_after(self, answer: Shape) -> Flattenable:
        """What the page says in its answer to an operation, since nobody can show it later, such as
        a secret; empty if the browser is led to ``path_after``.
        """
        return ""

    def form(
        self,
        request: Request,
        caller: interfaces.Caller,
        heading: str,
        *operations: Operation,
        folded: bool = False,
        **fixed: str,
    ) -> Tag:
        """A form of the page for operations that take the same.

        :param folded: whether only the heading is seen until somebody opens it.
        :param fixed: the fields that the page knows; people fill in the others.
        """
        filled_in = partial(parameter, request)
        return form(heading, operations, caller.csrf, fixed, filled_in, folded=folded)

    # answering requests

    def routes(self) -> Sequence[interfaces.Route]:
        """The routes of the page."""
        show = interfaces.Route(self.path, "GET", self._for_administrators(self._show))
        act = interfaces.Route(self.path, "POST", self._for_administrators(self._act))
        return [show, act] if self._operations else [show]

    def now(self) -> float:
        """The time, in seconds since the epoch."""
        return self.console.clock.wall_seconds()

    def _for_administrators(
        self, respond: Callable[[Request, interfaces.Caller], Awaitable[Answer]]
    ) -> Answers:
        """A resource for administrators who have signed in."""

        async def answer(request: Request, caller: interfaces.Caller) -> Answer:
            if not caller.is_admin:
                whose = f"{caller.name} is not an administrator's account"
                return plain(403, f"This page is for administrators, and {whose}.", NO_STORE)
            return await respond(request, caller)

        return for_signed_in(self.console.callers, answer)

    async def _show(self, request: Request, caller: interfaces.Caller) -> Answer:
        """Answer a GET."""
        success = {**_DONE, **self.done}.get(parameter(request, "done"), "")
        return await self._page(request, caller, success=success)

    async def _act(self, request: Request, caller: interfaces.Caller) -> Answer:
        """Answer a POST: run the operation that a form asks for, if it was sent from a page; ask
        once more before what nobody can undo.
        """
        self.console.callers.check_form(request, caller)
        operation = self._operations.get(parameter(request, "do"))
        if operation is None:
            return await self._page(request, caller, "This form asks for nothing known here.", 400)
        try:
            asked = read_form(operation, partial(parameter, request))
            if operation.final and parameter(request, "sure") != "yes":
                return await self._ask_again(caller, operation, asked)
            answer = await operation.run(self.console.administrator(caller), asked)
            if shown := self.notice_after(answer):
                return await self._page(request, caller, success=shown)
            return redirect(self.path_after(operation, asked, answer))
        except Unadministrable as error:
            status = 404 if error.missing else 400
            return await self._page(request, caller, sentence(str(error)), status)

    async def _page(
        self,
        request: Request,
        caller: interfaces.Caller,
        error: str = "",
        status: int = 200,
        success: Flattenable = "",
    ) -> Answer:
        """The page, with what went wrong or was done just now."""
        try:
            content = await self.content(request, caller)
        except Unadministrable as problem:
            return Answer(f"{sentence(str(problem))}\n".encode(), PLAIN, 404, NO_STORE)
        if content.error:
            error, status = error or content.error, content.status
        return await self._render(
            content.title,
            self.template,
            caller,
            status,
            {"error": error, "success": success, **content.slots},
        )

    async def _ask_again(
        self, caller: interfaces.Caller, operation: Operation, asked: Struct
    ) -> Answer:
        """The page that asks whether to run an operation that nobody can undo."""
        fields = {name: str(value) for name, value in structs.asdict(asked).items()}
        assert operation.form is not None
        slots: dict[str, Flattenable] = {
            "error": "",
            "success": "",
            "question": operation.form.question,
            "named": [
                tags.li(f"{label}: ", tags.bdi(fields[name])) for name, label in objects(operation)
            ],
            "action": self.path,
            "fields": hidden({"csrf": caller.csrf, "do": operation.name, "sure": "yes", **fields}),
            "back": path(
                self.back or self.path,
                **{name: fields.get(name, "") for name in ("id", "url", "name")},
            ),
        }
        return await self._render("Are you sure?", "admin/question.html", caller, 200, slots)

    async def _render(
        self,
        title: str,
        template: str,
        caller: interfaces.Caller,
        status: int,
        slots: Mapping[str, Flattenable],
    ) -> Answer:
        """A page of the console, with its navigation."""
        places = [
            tags.li(link(text, place, is_here=place == self.place))
            for place, text in PLACES.items()
        ]
        more = {"heading": title, "places": places, "csrf": caller.csrf, **slots}
        page = await self.console.pages.render(f"{title}: administration", template, caller, **more)
        return Answer(page, status=status, headers=NO_STORE)
