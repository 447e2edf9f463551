"""Makes HTML pages out of templates, all in one look.

A template is a file of this package, in the XML form of
``twisted.web.template``: ``<t:slot name="x"/>`` is filled with a text, which is
escaped.  ``frame.html`` is what stands around every page.

The pages are public: nobody logs in, there are no cookies, and a form does only what anybody may
do anyway by one request.  So forms carry no token against forged requests: a forger would gain
nothing by somebody else's browser but its address, by which requests are limited.
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

#: The headings of pages that say what went wrong, by the status of the answer.
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
        """Fill the slots of an element."""
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
        """Offer the words in the slot named by the attribute ``of``, and choose the one in the
        slot named by the attribute ``chosen``.
        """
        words, chosen = (self._slots[str(tag.attributes.pop(name))] for name in ("of", "chosen"))
        for word in words.split():
            more = {"selected": "selected"} if word == chosen else {}
            tag(tags.option(word, value=word, **more))
        return tag


def linked(url: str, *text: Flattenable) -> Tag:
    """A text that links to a URL which a stranger sent; only the text if it is not of the web.

    Search engines are told that the link is a stranger's, so that it is worth nothing to spammers.
    """
    if not url.lower().startswith(("http://", "https://")):
        return tags.span(*text)
    return tags.a(*text, href=url, rel="nofollow ugc noopener")


def rendered(title: str, template: str, **slots: Flattenable) -> bytes:
    """A template inside the frame."""
    frame = _Page("frame.html", {"title": title, "content": _Page(template, dict(slots))})
    made: list[bytes] = []
    failed: list[Failure] = []
    # It is there at once: nothing in these templates has to be waited for.
    flattenString(None, frame).addCallbacks(made.append, failed.append)
    for failure in failed:
        failure.raiseException()
    return b"<!DOCTYPE html>\n" + made[0]


def error_page(status: int, message: str) -> bytes:
    """The page that says what went wrong, and leads back to what works.

    :param status: the status of the answer.
    :param message: what was wrong and what the rule is, in sentences.
    """
    heading = _HEADINGS.get(status, _OTHER_HEADING)
    return rendered(heading, "error.html", heading=heading, message=message)


@implementer(IPages)
class Pages:
    """Renders templates inside the frame, for front doors in other rooms."""

    async def render(self, title: str, template: str, **slots: str) -> bytes:
        return rendered(title, template, **slots)
