"""What a broker calls: an origin of feeds, and subscribers of three protocols.

None of it is made with the broker's own code, nor with Twisted: the servers are
those of the standard library, each in a thread.
"""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseServer, TCPServer, ThreadingMixIn
from typing import Any, ClassVar, cast
from urllib.parse import parse_qs, urlsplit
from xmlrpc.server import SimpleXMLRPCRequestHandler, SimpleXMLRPCServer

from lxml import etree

FEED = b"""<?xml version="1.0"?>
<rss version="2.0"><channel>
<title>Night Train Diary</title>
<link>http://nighttrain.example.org/</link>
<description>Sleepers, stations and sandwiches.</description>
%s</channel></rss>
"""

_SOAP_ANSWER = b"""<?xml version="1.0"?>
<SOAP-ENV:Envelope xmlns:SOAP-ENV="http://schemas.xmlsoap.org/soap/envelope/"
  xmlns:xsi="http://www.w3.org/1999/XMLSchema-instance"
  xmlns:xsd="http://www.w3.org/1999/XMLSchema"><SOAP-ENV:Body>
<notifyResponse><Result xsi:type="xsd:boolean">1</Result></notifyResponse>
</SOAP-ENV:Body></SOAP-ENV:Envelope>
"""


class Server:
    """A server in a thread, on loopback, at a port that was free.

    :ivar open: while it is not set, requests wait and nothing is answered.
    """

    def __init__(self, server: BaseServer) -> None:
        self._server = server
        self.port = cast(tuple[str, int], server.server_address)[1]
        self.open = threading.Event()
        self.open.set()
        self._thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.open.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Handler(BaseHTTPRequestHandler):
    """One request, kept silent."""

    owner: ClassVar[Any]

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 # it is called so
        pass

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers["Content-Length"] or 0))

    def answer(self, status: int, body: bytes = b"", content_type: str = "text/plain") -> None:
        with suppress(ConnectionError):  # who asked may have been killed
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)


#: The ports where servers of this process have listened.
used_ports: set[int] = set()


class NewPort(TCPServer):
    """Listens where the system chooses the port, at one where this process had no server yet.

    Brokers that tests share remember topics and callbacks by URL, and the system soon gives a
    port again that was let go of: a feed would have the subscribers of a test before.
    """

    def server_bind(self) -> None:
        asked = self.server_address
        super().server_bind()
        while self.server_address[1] in used_ports:
            self.socket.close()
            self.socket = socket.socket(self.address_family, self.socket_type)
            self.server_address = asked
            super().server_bind()
        used_ports.add(self.server_address[1])


class _HTTPServer(NewPort, ThreadingHTTPServer):
    daemon_threads = True


def http_server(handler: type[Handler], owner: Server, host: str = "127.0.0.1") -> BaseServer:
    """A server whose handlers know whom they work for.

    :param host: the address where it listens.
    """
    return _HTTPServer((host, 0), type("Handler", (handler,), {"owner": owner}))


# --- feeds ------------------------------------------------------------------


class Origin(Server):
    """Serves feeds.

    :ivar pages: what is served at each path.
    :ivar requests: how often each path was asked for.
    """

    def __init__(self) -> None:
        super().__init__(http_server(_OriginHandler, self))
        self.pages: dict[str, bytes] = {}
        self.requests: Counter[str] = Counter()

    def feed(self, path: str = "/rss.xml", elements: str = "") -> str:
        """Put a feed at a path; its URL.

        :param elements: put into its channel, such as a ``<cloud/>``.
        """
        self.pages[urlsplit(path).path] = FEED % elements.encode()
        return self.url(path)

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def change(self, url: str) -> None:
        """Change what is at a URL."""
        self.pages[urlsplit(url).path] += b"<!-- and one more -->"


class _OriginHandler(Handler):
    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        self.owner.requests[path] += 1
        self.owner.open.wait()
        page = self.owner.pages.get(path)
        if page is None:
            self.answer(404)
        else:
            self.answer(200, page, "application/rss+xml")


# --- subscribers ------------------------------------------------------------


class Receiver(Server):
    """A subscriber of one protocol.

    :ivar heard: the topics that it was notified of, and has answered.
    :ivar called: how often it was called, answered or not.
    """

    protocol = ""
    path = "/notify"
    procedure = ""

    def __init__(self, server: BaseServer) -> None:
        super().__init__(server)
        self.heard: list[str] = []
        self.called = 0

    def registration(self, topic: str) -> dict[str, object]:
        """The form that registers it without a domain: it is called at the client's address."""
        return {
            "notifyProcedure": self.procedure,
            "port": self.port,
            "path": self.path,
            "protocol": self.protocol,
            "url1": topic,
        }

    def hear(self, topic: str) -> None:
        """Take a notification; one that had to wait is not counted."""
        self.called += 1
        if self.open.is_set():
            self.heard.append(topic)
        else:
            self.open.wait()


class HttpPostReceiver(Receiver):
    """Told by ``http-post``; repeats challenges.

    :ivar status: with which it answers notifications.
    """

    protocol = "http-post"

    def __init__(self, host: str = "127.0.0.1") -> None:
        super().__init__(http_server(_HttpPostHandler, self, host))
        self.status = 200


class _HttpPostHandler(Handler):
    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        self.answer(200, query["challenge"][0].encode())

    def do_POST(self) -> None:
        form = parse_qs(self.body().decode())
        self.owner.hear(form["url"][0])
        self.answer(self.owner.status, b"thanks")


class XMLRPCReceiver(Receiver):
    """Told by ``xml-rpc``, with the server of the standard library."""

    protocol = "xml-rpc"
    path = "/RPC2"
    procedure = "river.notify"

    def __init__(self) -> None:
        server = XMLRPCServer(
            ("127.0.0.1", 0), requestHandler=SimpleXMLRPCRequestHandler, logRequests=False
        )
        super().__init__(server)
        server.register_function(self._notify, self.procedure)

    def _notify(self, topic: Any) -> bool:
        self.hear(topic)
        return True


class XMLRPCServer(NewPort, ThreadingMixIn, SimpleXMLRPCServer):
    daemon_threads = True


class SoapReceiver(Receiver):
    """Told by ``soap``, as an old desktop aggregator would read it."""

    protocol = "soap"
    path = "/river"
    procedure = "river.notify"

    def __init__(self) -> None:
        super().__init__(http_server(_SoapHandler, self))


class _SoapHandler(Handler):
    def do_POST(self) -> None:
        body = etree.fromstring(self.body()).find("{*}Body")
        if self.headers["SOAPAction"] != '"/river"' or body is None or body[0].tag != "notify":
            self.answer(500)
            return
        self.owner.hear(body[0].findtext("url"))
        self.answer(200, _SOAP_ANSWER, "text/xml")


#: One of each protocol.
RECEIVERS: tuple[Callable[[], Receiver], ...] = (HttpPostReceiver, XMLRPCReceiver, SoapReceiver)
