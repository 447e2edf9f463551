"""Makes HTML pages out of templates, all in one look.

A template is a file of this package, in the XML form of
``twisted.web.template``: ``<t:slot name="x"/>`` is filled with a text, which is
escaped.  ``frame.html`` is what stands around every page.
"""

from __future__ import annotations

from functools import cache
from typing import Any

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


@implementer(IPages)
class Pages:
    """Renders templates inside the frame."""

    async def render(self, title: str, template: str, **slots: str) -> bytes:
        frame = _Page("frame.html", {"title": title, "content": _Page(template, dict(slots))})
        document: bytes = await flattenString(None, frame)
        return b"<!DOCTYPE html>\n" + document
