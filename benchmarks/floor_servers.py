"""The floors of incoming requests: bare ``twisted.web``, which does as little as possible.

===============  ====================================================================
``/RPC2``        answers ``weblogUpdates.ping`` by ``twisted.web.xmlrpc`` with a constant
``/bare``        fetches a URL over a bare connection of Twisted, answers with a constant
``/agent``       the same with ``twisted.web.client.Agent`` and a pool
``/bytes``       serves constant bytes, with an ETag
``/file``        serves a file of as many bytes, by ``twisted.web.static``
``/events``      a stream of server-sent events: what is posted to ``/post``
===============  ====================================================================
"""

from __future__ import annotations

from tempfile import NamedTemporaryFile
from typing import Any
from urllib.parse import urlsplit

from twisted.internet import reactor as global_reactor
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IConnector
from twisted.internet.protocol import ClientFactory, Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import Agent, HTTPConnectionPool, readBody
from twisted.web.http import CACHED
from twisted.web.http import Request as HTTPRequest
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request, Site
from twisted.web.static import File
from twisted.web.xmlrpc import XMLRPC

from benchmarks import control

THANKS = {"flerror": False, "message": "Thanks for the ping."}
RESULT = b'<?xml version="1.0"?>\n<result success="true" msg="Thanks for the ping."/>\n'

#: Typed as Any: it provides IReactorTCP and more.
reactor: Any = global_reactor


class _QuietSite(Site):
    """A site without an access log, like the broker's."""

    def log(self, request: HTTPRequest) -> None:
        pass


class _Procedures(XMLRPC):
    """Answers ``weblogUpdates.ping`` with a constant."""

    def lookupProcedure(self, procedurePath: str) -> Any:
        return self.ping

    def ping(self, *parameters: object) -> dict[str, object]:
        return THANKS


class _Fetch(Protocol):
    """Requests one document and reads it to its end."""

    factory: _Fetches
    _text = b""

    def connectionMade(self) -> None:
        assert self.transport is not None
        self.transport.write(self.factory.request)

    def dataReceived(self, data: bytes) -> None:
        self._text += data

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.factory.done.callback(self._text)


class _Fetches(ClientFactory[_Fetch]):
    """The factory of one fetch."""

    protocol = _Fetch
    noisy = False

    def __init__(self, request: bytes) -> None:
        self.request = request
        self.done: Deferred[bytes] = Deferred()

    def clientConnectionFailed(self, connector: IConnector, reason: Failure) -> None:
        self.done.errback(reason)


def _fetch_bare(url: str) -> Deferred[bytes]:
    parts = urlsplit(url)
    factory = _Fetches(
        f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n\r\n".encode()
    )
    reactor.connectTCP(parts.hostname, parts.port, factory)
    return factory.done


class _FetchByAgent:
    """Fetches over persistent connections."""

    def __init__(self) -> None:
        self._agent = Agent(reactor, pool=HTTPConnectionPool(reactor))

    def __call__(self, url: str) -> Deferred[bytes]:
        return self._agent.request(b"GET", url.encode()).addCallback(readBody)


class _PingedTopic(Resource):
    """Fetches the URL that a form names, then answers with a constant."""

    isLeaf = True

    def __init__(self, fetch: Any) -> None:
        super().__init__()
        self._fetch = fetch

    def render_POST(self, request: Request) -> int:
        assert request.args is not None

        def answer(document: bytes) -> None:
            request.setHeader(b"content-type", b"text/xml")
            request.setHeader(b"content-length", b"%d" % len(RESULT))
            request.write(RESULT)
            request.finish()

        self._fetch(request.args[b"url"][0].decode()).addCallback(answer)
        return NOT_DONE_YET


class _Bytes(Resource):
    """Serves constant bytes."""

    isLeaf = True

    def __init__(self, size: int) -> None:
        super().__init__()
        self._bytes = bytes(size)

    def render_GET(self, request: Request) -> bytes:
        return b"" if request.setETag(b'"same"') is CACHED else self._bytes


class _Events(Resource):
    """Streams what is posted to everybody who reads."""

    isLeaf = True

    def __init__(self) -> None:
        super().__init__()
        self._readers: list[Request] = []

    def render_GET(self, request: Request) -> int:
        self._readers.append(request)
        request.notifyFinish().addErrback(lambda failure: self._readers.remove(request))
        request.setHeader(b"content-type", b"text/event-stream")
        request.write(b": the floor\n\n")
        return NOT_DONE_YET

    def render_POST(self, request: Request) -> bytes:
        assert request.content is not None
        event = b"data: %s\n\n" % request.content.read()
        for reader in self._readers:
            reader.write(event)
        return b"Posted.\n"


def main() -> None:
    """Serve until the process is terminated."""
    size = control.arguments()["size"]
    root = Resource()
    root.putChild(b"RPC2", _Procedures())
    root.putChild(b"bare", _PingedTopic(_fetch_bare))
    root.putChild(b"agent", _PingedTopic(_FetchByAgent()))
    root.putChild(b"bytes", _Bytes(size))
    events = _Events()
    root.putChild(b"events", events)
    root.putChild(b"post", events)
    with NamedTemporaryFile() as file:
        file.write(bytes(size))
        file.flush()
        root.putChild(b"file", File(file.name))
        _serve(root)


def _serve(root: Resource) -> None:
    listening = reactor.listenTCP(0, _QuietSite(root), backlog=4096, interface="127.0.0.1")
    control.answer(port=listening.getHost().port)
    reactor.run()


if __name__ == "__main__":
    main()
