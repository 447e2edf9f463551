"""Serves the files, by GET and HEAD: ``answers`` says how."""

from __future__ import annotations

from twisted.web.server import NOT_DONE_YET, Request
from zope.interface import implementer

from rsscloud_broker.apps.hosting import documents
from rsscloud_broker.apps.hosting.cache import Cache, CachedFile, Key
from rsscloud_broker.apps.hosting.options import prefixes_of
from rsscloud_broker.http.answering import PLAIN, Answer, Answers, send
from rsscloud_broker.interfaces import IFrontDoor, Route, RoutesOnly


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


@implementer(IFrontDoor)
class FilesDoor(RoutesOnly):
    """The front door that serves the files to everybody.

    :param base: the URL below which the files are public.  A reverse proxy may also pass its path.
    """

    name = "hosting_files"

    def __init__(self, cache: Cache, base: str) -> None:
        self._routes = [
            Route(f"{path}/*", "GET", FileResource(cache, path), for_everybody=True)
            for path in prefixes_of(base)
        ]

    def routes(self) -> list[Route]:
        return self._routes
