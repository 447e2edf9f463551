"""Renders HTML pages from templates, all inside one frame.

A template is a file of this package in the XML form of ``twisted.web.template``: a
``<t:slot name="x"/>`` is replaced by a text, which is escaped.  ``frame.html`` is the frame around
every page.

The pages are public: nobody logs in, there are no cookies, and a form does only what anybody can do
with one request.  So the forms have no token against forged requests (CSRF): another person's
browser would give a forger nothing but its address, on which the limits on requests count.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

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

from rsscloud_broker.interfaces import IPages

_TEMPLATES = FilePath(__file__).parent()

#: The headings of error pages, by the status of the answer.
_HEADINGS: Final = {
    403: "This is not allowed here",
    404: "There is nothing at this address",
    405: "This address is not a page",
    408: "The request took too long",
    413: "The request is too large",
    414: "The address is too long",
    429: "Too many requests",
    431: "The request is too large",
    500: "The broker made a mistake",
    503: "The broker cannot answer right now",
}
_OTHER_HEADING: Final = "The request did not work"


@cache
def _template(name: str) -> XMLFile:
    return XMLFile(_TEMPLATES.child(name))


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
    def link(self, request: IRequest | None, tag: Tag) -> Tag:
        """Link the text of an element to the URL in the slot named by its attribute ``to``."""
        return linked(self._slots[str(tag.attributes["to"])], *tag.children)

    @renderer
    def options(self, request: IRequest | None, tag: Tag) -> Tag:
        """Add an option for each word in the slot named by the attribute ``of``, and select the one
        in the slot named by the attribute ``chosen``.
        """
        words, chosen = (self._slots[str(tag.attributes.pop(name))] for name in ("of", "chosen"))
        for word in words.split():
            more = {"selected": "selected"} if word == chosen else {}
            tag(tags.option(word, value=word, **more))
        return tag


def linked(url: str, *text: Flattenable) -> Tag:
    """A link to a URL that a stranger has sent; only its text if the URL is not http or https.

    The link tells search engines not to count it, so that it is worth nothing to spammers.
    """
    if not url.lower().startswith(("http://", "https://")):
        return tags.span(*text)
    return tags.a(*text, href=url, rel="nofollow ugc noopener")


def rendered(title: str, template: str, **slots: Flattenable) -> bytes:
    """Render a template inside the frame.

    :param template: the name of the template's file.
    :param slots: the contents of its slots, by name.
    :returns: the whole HTML document, in UTF-8.
    """
    frame = _Page("frame.html", {"title": title, "content": _Page(template, dict(slots))})
    documents: list[bytes] = []
    failures: list[Failure] = []
    # The Deferred has already fired: nothing in these templates has to be waited for.
    flattenString(None, frame).addCallbacks(documents.append, failures.append)
    for failure in failures:
        failure.raiseException()
    return b"<!DOCTYPE html>\n" + documents[0]


def error_page(status: int, message: str) -> bytes:
    """Render the page that says what went wrong, with links to the front page and ``/docs``.

    :param status: the status of the answer.
    :param message: what was wrong and what the rule is, in sentences.
    """
    heading = _HEADINGS.get(status, _OTHER_HEADING)
    return rendered(heading, "error.html", heading=heading, message=message)


@implementer(IPages)
class Pages:
    """Renders templates inside the frame, for the front doors."""

    async def render(self, title: str, template: str, **slots: Flattenable) -> bytes:
        return rendered(title, template, **slots)
