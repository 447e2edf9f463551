"""Makes HTML pages out of templates, all in one look.

A template is a file of this package, in the XML form of
``twisted.web.template``: ``<t:slot name="x"/>`` is filled with a text, which is
escaped.  ``frame.html`` is what stands around every page.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from twisted.python.failure import Failure
from twisted.python.filepath import FilePath
from twisted.web.iweb import IRequest
from twisted.web.template import Element, Tag, TagLoader, XMLFile, flattenString, renderer, tags
from zope.interface import implementer

from rsscloud_broker.interfaces import IPages

_TEMPLATES = FilePath(__file__).parent()


@cache
def _template(name: str) -> XMLFile:
    return XMLFile(_TEMPLATES.child(name))


class _Page(Element):
    """A template and the texts for its slots."""

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


def rendered(title: str, template: str, **slots: str) -> bytes:
    """A template inside the frame."""
    frame = _Page("frame.html", {"title": title, "content": _Page(template, dict(slots))})
    made: list[bytes] = []
    failed: list[Failure] = []
    # It is there at once: nothing in these templates has to be waited for.
    flattenString(None, frame).addCallbacks(made.append, failed.append)
    for failure in failed:
        failure.raiseException()
    return b"<!DOCTYPE html>\n" + made[0]


@implementer(IPages)
class Pages:
    """Renders templates inside the frame, for front doors in other rooms."""

    async def render(self, title: str, template: str, **slots: str) -> bytes:
        return rendered(title, template, **slots)
