"""Serves the files, by GET and HEAD; ``web.feed_answers`` says how.

The files are by strangers, so no browser may run anything in them.

Everybody gets a file byte for byte as it came, except people who open a feed in a browser: they
get it as plain XML that names the broker's style sheet, so that they see what they can read::

    <?xml version="1.0" encoding="utf-8"?><?xml-stylesheet type="text/css" href="/changes.css"?>

A feed that names a style sheet of its own is served to them as it is, too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeAlias
from zlib import crc32

from attrs import define, field, frozen
from twisted.web.server import NOT_DONE_YET, Request

from rsscloud_broker.apps.hosting import documents
from rsscloud_broker.apps.hosting.rows import Served, StoredFile, tag_of
from rsscloud_broker.http.answering import PLAIN, Answer, Answers, send
from rsscloud_broker.http.requests import header
from rsscloud_broker.interfaces import IClock
from rsscloud_broker.util.caches import ByteLimitedCache
from rsscloud_broker.web.feed_answers import STYLED_VARY, FeedAnswers
from rsscloud_broker.wire.change_list import style_data
from rsscloud_broker.wire.negotiation import wants_page

#: A browser that shows a file runs nothing in it, and loads nothing for it.
SAFE: Final = {
    "content-security-policy": "default-src 'none'; sandbox; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
}

#: What comes before the instruction, in documents whose first bytes are those of ASCII.
_HEAD: Final = re.compile(
    rb"(?:\xef\xbb\xbf)?(?:<\?xml\s[^>]{1,300}\?>|(?!<\?xml\s)(?=\s{0,99}<[!?\w]))"
)
#: The types of feeds; the style sheet has nothing for lists of feeds.
_FEEDS: Final = ("application/rss+xml", "application/rdf+xml", "application/atom+xml")

#: How many bytes are kept, and the most of one file.
BYTES, LARGEST = 32 * 1024 * 1024, 4 * 1024 * 1024

#: The name of an account, and the path of a file below it.
Key: TypeAlias = tuple[str, str]


def _instruction_offset(content: Served) -> int | None:
    """Where in a feed the instruction can stand; None if it is no feed, or names a sheet already.

    The document is not parsed, since it is a stranger's.
    """
    head = _HEAD.match(content.body) if content.media_type.startswith(_FEEDS) else None
    return None if head is None or b"<?xml-stylesheet" in content.body else head.end()


@frozen
class FileAnswers:
    """The answers to requests for a file.

    :ivar exact: those with its bytes.
    :ivar make_shown: makes those for people who open it in a browser; None if they get the same.
        They are few, so nothing of it is kept in memory.
    """

    exact: FeedAnswers
    make_shown: Callable[[], FeedAnswers] | None

    @classmethod
    def of(cls, content: Served, link: str, now: float, sheet: str) -> FileAnswers:
        """Make the answers for a file.

        :param link: the value of its Link header; empty for none.
        :param now: the present time, in seconds since the epoch.
        :param sheet: the URL of the style sheet for feeds.
        """
        tag, at = tag_of(content.digest), content.modified_at
        exact = partial(FeedAnswers.of, content.body, content.packed, content.media_type, tag, at)
        if (place := _instruction_offset(content)) is None:
            return cls(exact(now, link, SAFE), None)
        varying = {**SAFE, "vary": STYLED_VARY}
        # The sheet may be at another host than the feeds.
        source = "'self'" if sheet.startswith("/") else sheet
        policy = f"style-src {source}; {SAFE['content-security-policy']}"
        more = {**varying, "content-security-policy": policy}
        _, _, charset = content.media_type.partition(";")
        instruction = f"<?xml-stylesheet {style_data(sheet)}?>".encode("ascii")

        def make_shown() -> FeedAnswers:
            """The answers with the name of the style sheet put in; their ETag depends on it too."""
            body = content.body[:place] + instruction + content.body[place:]
            kind = f"application/xml;{charset}"
            shown_tag = f"{tag}-{crc32(sheet.encode()):08x}"
            return FeedAnswers.of(body, b"", kind, shown_tag, at, now, link, more)

        return cls(exact(now, link, varying), make_shown)

    @property
    def size(self) -> int:
        """About how many bytes it takes in memory."""
        return self.exact.size

    def answer_to(self, request: Request) -> Answer:
        """The answer to a request."""
        if self.make_shown is not None and wants_page(header(request, "accept"), _FEEDS):
            return self.make_shown().answer_to(request)
        return self.exact.answer_to(request)


@frozen
class CachedFile:
    """A file in memory.

    :ivar answers: the answers to requests for it.
    :ivar checked_at: when it was compared with the store.
    """

    version: int
    content: Served
    answers: FileAnswers
    checked_at: float


@define(eq=False)
class Cache:
    """Keeps the files in memory that are often read, so that they are served at once.

    What is served is never older than the last save of this process.  While a file is being changed
    it is read from the store and not kept, and neither is what was read while it was being changed.
    Other processes may use the same database, so an entry is compared with the store once a second;
    with other nodes, each time: whom one of them notifies may read the file here at that moment.

    :param shares_work: says whether there may be other nodes.
    """

    _present: Callable[[str, str, int], Awaitable[StoredFile | None]]
    _answers: Callable[[Key, Served], FileAnswers]
    _clock: IClock
    _shares_work: Callable[[], bool]
    _entries: ByteLimitedCache[Key, CachedFile] = field(
        factory=lambda: ByteLimitedCache(BYTES, LARGEST, lambda file: file.answers.size), init=False
    )
    # How many changes of each file are under way; and a token for the last read of each file.
    # A read keeps what it found only if its token is still there.
    _changing: Counter[Key] = field(factory=Counter, init=False)
    _reads: dict[Key, object] = field(factory=dict, init=False)

    def fresh(self, key: Key) -> CachedFile | None:
        """A file, if it is in memory and need not be compared with the store."""
        entry = None if self._shares_work() else self._entries.get(key)
        # Seconds for which an entry is not compared with the store.
        if entry is None or self._clock.seconds() >= entry.checked_at + 1.0:
            return None
        return entry

    async def read(self, key: Key) -> CachedFile | StoredFile | None:
        """A file as the store has it.

        :returns: None if there never was such a file; a ``StoredFile`` if it was deleted.
        """
        token = self._reads[key] = object()
        known = self._entries.get(key)
        at = self._clock.seconds()
        try:
            stored = await self._present(*key, known.version if known else 0)
            may_keep = self._reads.get(key) is token and not self._changing[key]
        finally:
            if self._reads.get(key) is token:
                del self._reads[key]
        if stored is None or stored.version == 0:
            self._entries.drop(key)
            return stored
        content = stored.content or (known.content if known else None)
        assert content is not None  # the store leaves out nothing but what is known
        entry = CachedFile(stored.version, content, self._answers(key, content), at)
        if may_keep:
            self._entries.keep(key, entry)
        return entry

    @contextmanager
    def changing(self, key: Key) -> Iterator[None]:
        """Do not keep a file while it is being changed."""
        self._changing[key] += 1
        self._forget(key)
        try:
            yield
        finally:
            self._forget(key)
            self._changing[key] -= 1
            if not self._changing[key]:
                del self._changing[key]

    def _forget(self, key: Key) -> None:
        """Drop a file from memory, and keep nothing of the reads of it that are under way."""
        self._reads.pop(key, None)
        self._entries.drop(key)


class FileResource(Answers):
    """Serves the files below a path.

    :param prefix: the path, without a slash at the end.
    """

    def __init__(self, cache: Cache, prefix: str) -> None:
        super().__init__(self._answer_from_store)
        self._cache = cache
        self._start = len(prefix) + 1

    def render(self, request: Request) -> int:
        """Answer at once if the file is in memory and fresh; else look it up."""
        entry = self._cache.fresh(self._key(request))
        if entry is None:
            return super().render(request)
        send(request, entry.answers.answer_to(request))
        return NOT_DONE_YET

    def _key(self, request: Request) -> Key:
        """The name of the account, and the path of the file below it, that a request asks for."""
        path = request.path.decode("latin-1")[self._start :]
        name, _, rest = path.partition("/")
        return name, rest

    async def _answer_from_store(self, request: Request) -> Answer:
        """The answer with a file: 404 if there never was one, 410 if it was deleted."""
        name, path = self._key(request)
        may_be = documents.is_path(f"{name}/{path}")  # otherwise it need not be looked up
        found = await self._cache.read((name, path)) if may_be else None
        if found is None:
            return Answer(b"There is no such feed here.\n", PLAIN, 404)
        if not isinstance(found, CachedFile):
            return Answer(b"This is gone: its author has deleted it.\n", PLAIN, 410)
        return found.answers.answer_to(request)
