"""Finds out type and size of the file at a URL.  Servers of others are asked with HEAD.

Servers that do not know HEAD are asked for the first byte (RFC 9110, section 14).
"""

from __future__ import annotations

import re
from mimetypes import guess_type
from typing import Final
from urllib.parse import urlsplit

from attrs import evolve, frozen

from rsscloud_broker.apps.writing.file_urls import FileUrls
from rsscloud_broker.apps.writing.model import Enclosure, InvalidPost, NewPost
from rsscloud_broker.apps.writing.store import PostStore
from rsscloud_broker.errors import OutboundError
from rsscloud_broker.interfaces import IOutbound, OutboundReply, OutboundRequest
from rsscloud_broker.wire.web_address import REDIRECTS

_NO_HEAD: Final = frozenset({400, 403, 405, 501})
_TYPE: Final = re.compile(r"[a-z0-9!#$&^_.+-]{1,64}/[a-z0-9!#$&^_.+-]{1,64}")
_SIZE: Final = re.compile(r"[0-9]{1,18}")
_RANGE: Final = re.compile(r"bytes 0-0/([0-9]{1,18})")

#: What a server sends if there is a page at an address, and no file.
_PAGES: Final = frozenset({"text/html", "application/xhtml+xml"})


@frozen
class Enclosures:
    """Finds the enclosures of messages.

    :ivar web: calls no addresses that the operator forbids for topics.
    """

    web: IOutbound
    files: FileUrls
    store: PostStore

    async def of(self, new: NewPost, *known: Enclosure | None) -> Enclosure | None:
        """The enclosure that a message gets; None if it names none.

        :param known: files that nobody needs to ask about, such as the one that it had.
        :raises InvalidPost, Unavailable: see ``facts_of``.
        """
        if not new.enclosure_url:
            return None
        url = self.files.as_stored(new.enclosure_url)
        file = next((each for each in known if each is not None and each.url == url), None)
        return evolve(file or await self._find_file(url), text=new.enclosure_text)

    async def _find_file(self, url: str) -> Enclosure:
        """The file at a URL, with its type and size."""
        own = self.files.parse_url(url)
        if own is None:
            return await facts_of(self.web, url)
        upload = await self.store.upload_named(*own)
        if upload is None:
            raise InvalidPost(f"there is no file at {url}; upload it again")
        return Enclosure(url, upload.media_type, upload.size)


async def facts_of(web: IOutbound, url: str) -> Enclosure:
    """Ask the server of a file for its type and size.

    :param web: calls no addresses that the operator forbids for topics.
    :raises InvalidPost: the server does not answer, or has no such file.
    :raises Unavailable: the broker lacks resources.
    """
    try:
        reply = await web.request(OutboundRequest("HEAD", url, redirects=REDIRECTS))
        if reply.status in _NO_HEAD:
            first_byte = {"range": "bytes=0-0"}
            reply = await web.request(OutboundRequest("GET", url, first_byte, redirects=REDIRECTS))
    except OutboundError as error:
        raise _unusable(url, str(error)) from error
    if not reply.success:
        raise _unusable(url, f"its server answers with status {reply.status}")
    media_type = _media_type(reply, url)
    if media_type in _PAGES:
        raise InvalidPost(
            f"there is a page at {url} and not a file; put the address into the field for the link"
        )
    return Enclosure(url, media_type, _size(reply))


def _unusable(url: str, reason: str) -> InvalidPost:
    """The error for a URL that cannot be an enclosure, with a clause that says why."""
    return InvalidPost(
        f"the enclosure {url} cannot be used: {reason}; check the address, or upload the file here"
    )


def _media_type(reply: OutboundReply, url: str) -> str:
    """The media type that the server says; if it says none, by the end of the URL."""
    said = reply.headers.get("content-type", "").partition(";")[0].strip().lower()
    if _TYPE.fullmatch(said):
        return said
    return guess_type(urlsplit(url).path)[0] or "application/octet-stream"


def _size(reply: OutboundReply) -> int:
    """The size of the file; 0 if the server says none, or only that of a compressed answer."""
    if part := _RANGE.fullmatch(reply.headers.get("content-range", "").strip()):
        return int(part[1])
    said = reply.headers.get("content-length", "").strip()
    is_whole = reply.status == 200 and not reply.compressed
    return int(said) if is_whole and _SIZE.fullmatch(said) else 0
