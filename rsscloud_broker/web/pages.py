"""Renders HTML pages from templates, all inside one frame.

A template is a file of this package, or of an application, in the XML form of
``twisted.web.template``: a ``<t:slot name="x"/>`` is replaced by a text, which is escaped.
``frame.html`` is the frame around every page, with the navigation.

Most pages are public, and a form on them does only what anybody can do with one request.  So these
forms have no token against forged requests (CSRF): another person's browser would give a forger
nothing but its address, on which the limits on requests count.  Forms for people who have signed in
have such a token: see ``callers``.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from functools import cache
from importlib.resources import files
from typing import Any, Final

from attrs import define
from twisted.python.failure import Failure
from twisted.python.filepath import FilePath
from twisted.web.iweb import IRequest
from twisted.web.template import (
    Element,
    Flattenable,
    Tag,
    TagLoader,
    XMLFile,
    flattenString,
    renderer,
    tags,
)
from zope.interface import implementer

from rsscloud_broker.core.following import Following
from rsscloud_broker.interfaces import Caller, IPages
from rsscloud_broker.web.log_lines import options
from rsscloud_broker.web.navigation import FOR_MEMBERS, FOR_STRANGERS, menu, navigation
from rsscloud_broker.web.words import one_button

_TEMPLATES = FilePath(__file__).parent()

#: The headings of error pages, by the status of the answer.
_HEADINGS: Final = {
    403: "This is not allowed here",
    404: "There is nothing at this address",
    405: "This address is not a page",
    408: "The request took too long",
    410: "This is gone",
    413: "The request is too large",
    414: "The address is too long",
    429: "Too many requests",
    431: "The request is too large",
    500: "The broker made a mistake",
    503: "The broker cannot answer right now",
    507: "There is no space left",
}
_OTHER_HEADING: Final = "The request did not work"


@cache
def _template(name: str) -> XMLFile:
    """A template: ``doctor.html`` of this package, or ``package.of.an.application:river.html``."""
    package, _, path = name.rpartition(":")
    directory = FilePath(str(files(package))) if package else _TEMPLATES
    return XMLFile(directory.descendant(path.split("/")))


class _Page(Element):
    """A template and the contents of its slots."""

    def __init__(self, template: str, slots: dict[str, Any]) -> None:
        self._slots = slots
        super().__init__(TagLoader(tags.transparent(*_template(template).load())))

    @renderer
    def page(self, request: IRequest | None, tag: Tag) -> Tag:
        """Fill the slots in an element."""
        return tag.fillSlots(**self._slots)

    @renderer
    def show(self, request: IRequest | None, tag: Tag) -> Tag | str:
        """Show an element if the slot named by its attribute ``when`` is not empty."""
        when = tag.attributes.pop("when")
        return tag if self._slots.get(str(when)) else ""

    @renderer
    def unfold(self, request: IRequest | None, tag: Tag) -> Tag:
        """Open a ``details`` if one of the slots named by its attribute ``when`` is not empty."""
        names = str(tag.attributes.pop("when")).split()
        return tag(open="open") if any(map(self._slots.get, names)) else tag

    @renderer
    def include(self, request: IRequest | None, tag: Tag) -> Element:
        """Replace an element by the template that its attribute ``template`` names."""
        return _Page(str(tag.attributes["template"]), self._slots)

    @renderer
    def link(self, request: IRequest | None, tag: Tag) -> Tag:
        """Link the text of an element to the URL in the slot named by its attribute ``to``."""
        return linked(self._slots[str(tag.attributes["to"])], *tag.children)

    @renderer
    def options(self, request: IRequest | None, tag: Tag) -> Tag:
        """Add an option for each word in the slot named by the attribute ``of``, and select the one
        in the slot named by the attribute ``chosen``.
        """
        words, chosen = (self._slots[str(tag.attributes.pop(name))] for name in ("of", "chosen"))
        return tag(*options(words.split(), chosen))


def linked(url: str, *text: Flattenable) -> Tag:
    """A link to a URL that a stranger has sent; only its text if the URL is not http or https.

    The link tells search engines not to count it, so that it is worth nothing to spammers.
    """
    if not url.lower().startswith(("http://", "https://")):
        return tags.span(*text)
    return tags.a(*text, href=url, rel="nofollow ugc noopener")


def flattened(shown: Flattenable) -> bytes:
    """The HTML of elements with which nothing has to be waited for; raises what they raise."""
    documents: list[bytes] = []
    failures: list[Failure] = []
    flattenString(None, shown).addCallbacks(documents.append, failures.append)
    for failure in failures:
        failure.raiseException()
    return documents[0]


def _viewer_menu(caller: Caller, paths: Set[str]) -> Tag:
    """A menu with the name of who has signed in; administrators get a link to their pages."""
    has_console = caller.is_admin and "/admin" in paths
    console = [tags.li(tags.a("Administration", href="/admin"))] if has_console else []
    sign_out = one_button("Sign out", "/signout", caller.csrf)
    account = tags.li(tags.a("Your account", href="/account"))
    return tags.div(menu(caller.name, [account, *console, tags.li(sign_out)]), class_="viewer")


@implementer(IPages)
@define(eq=False)
class PageRenderer:
    """Renders templates inside the frame.

    :param paths: returns the paths that the broker serves, for the links in the frame.  It is
        called only when a page is rendered, for the front doors with these paths are made later.
    :param announcements: what administrators announce; None for nothing ever.
    """

    _paths: Callable[[], Set[str]] = frozenset
    _announcements: Following | None = None

    async def render(
        self, title: str, template: str, viewer: Caller | None = None, /, **slots: Flattenable
    ) -> bytes:
        return self._render_now(title, template, viewer, **slots)

    def error(self, status: int, message: str) -> bytes:
        """Render the page that says what went wrong, with links to the front page and ``/docs``,
        if there are these.

        :param status: the status of the answer.
        :param message: what was wrong and what the rule is, in sentences.
        """
        heading = _HEADINGS.get(status, _OTHER_HEADING)
        served = self._paths()
        return self._render_now(
            heading,
            "error.html",
            heading=heading,
            message=message,
            front_page="shown" if "/" in served else "",
            docs="shown" if "/docs" in served else "",
        )

    def _render_now(
        self, title: str, template: str, viewer: Caller | None = None, /, **slots: Flattenable
    ) -> bytes:
        """A page in its frame; a failure to render it is raised."""
        served = self._paths()
        announced = self._announcements.current() if self._announcements is not None else ()
        paths = served - (FOR_STRANGERS if viewer else FOR_MEMBERS)
        frame = {
            "title": title,
            "navigation": navigation(paths, str(slots.pop("here", ""))),
            "front_page": "/" if "/" in served else "",
            "no_front_page": "" if "/" in served else "none",
            "viewer": _viewer_menu(viewer, served) if viewer else "",
            "search": "shown" if "/search" in served else "",
            "alternates": slots.pop("alternates", ""),
            "content": _Page(template, dict(slots)),
            "announcements": [tags.p(one.text, class_="notice") for one in announced],
        }
        return b"<!DOCTYPE html>\n" + flattened(_Page("frame.html", frame))
