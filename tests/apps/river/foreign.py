"""A foreign site with a WebSub hub and an rssCloud server of its own, as a program.

None of it is made with the broker's code, nor with Twisted.  ``python foreign.py`` listens on a
free port of loopback and prints it::

    GET  /blog/                     a page that names its feed
    GET  /NAME.xml                  a feed; NAME is hub, moved, cloud, first, silent, forging,
                                    lying or plain
    POST /post/NAME title=...       adds an item; the hub or the cloud tells its subscribers
    GET  /told                      who was notified and what they answered; how many are subscribed
    POST /hub, /moved, /rsscloud, /RPC2     for subscribers

The hub of ``moved`` redirects to that of ``hub``.  The hub of ``silent`` takes subscriptions and
tells nobody.  That of ``forging`` signs with another secret.  That of ``lying`` sends another topic
when it verifies the intent.

The cloud of ``cloud`` answers only to those who accept ``application/xml``, as rsscloud-server
does.  That of ``first`` is one of 2003: its procedure takes five parameters, and it calls back by
XML-RPC.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
import urllib.error
import urllib.request
import xmlrpc.client
from collections import defaultdict
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import parse_qs, urlencode, urlsplit
from xml.sax.saxutils import escape

ITEMS: dict[str, list[str]] = defaultdict(list)
SUBSCRIBERS: dict[str, dict[str, str]] = defaultdict(dict)
REGISTERED: dict[str, set[str]] = defaultdict(set)
TOLD: list[tuple[str, str, int]] = []
FIRST: dict[str, set[tuple[str, str]]] = defaultdict(set)
HUBS = ("hub", "moved", "silent", "forging", "lying")
PROCEDURE = "xmlStorageSystem.rssPleaseNotify"
CLOUDS = {"cloud": ("/rsscloud", "", "http-post"), "first": ("/RPC2", PROCEDURE, "xml-rpc")}


def fetch(callback: str, query: dict[str, str]) -> bytes:
    """What a callback answers; nothing if it refuses."""
    try:
        with urllib.request.urlopen(f"{callback}?{urlencode(query)}", timeout=10) as answer:
            return cast(bytes, answer.read())
    except urllib.error.HTTPError:
        return b""


class Site(BaseHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass

    @property
    def port(self) -> int:
        return cast(HTTPServer, self.server).server_port

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, status: int, body: bytes, kind: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        name = path.strip("/").removesuffix(".xml")
        if path == "/blog/":
            link = '<link rel="alternate" type="application/rss+xml" href="/plain.xml">'
            self.answer(200, f"<html><head>{link}</head></html>".encode(), "text/html")
        elif path == "/told":
            number = sum(map(len, SUBSCRIBERS.values()))
            self.answer(200, json.dumps({"told": TOLD, "subscribers": number}).encode())
        elif path.endswith(".xml"):
            self.answer(200, self.feed(name), "application/rss+xml")
        else:
            self.answer(404, b"nothing here")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if self.path == "/RPC2":
            self.please_notify(body)
            return
        form = {name: values[0] for name, values in parse_qs(body).items()}
        path = self.path
        if path.startswith("/post/"):
            self.post(path.rpartition("/")[2], form["title"])
        elif path == "/hub":
            self.answer(202, b"accepted")
            threading.Thread(target=self.verify, args=(form,), daemon=True).start()
        elif path == "/moved":
            self.send_response(308)
            self.send_header("Location", "/hub")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif path == "/rsscloud" and "application/xml" not in self.headers["Accept"]:
            self.answer(406, b"Not Acceptable")
        elif path == "/rsscloud":
            self.register(form)
        else:
            self.answer(404, b"nothing here")

    def feed(self, name: str) -> bytes:
        extra = ""
        if name in HUBS:
            path = "moved" if name == "moved" else "hub"
            extra = f'<atom:link rel="hub" href="{self.base}/{path}"/>'
        elif name in CLOUDS:
            path, procedure, protocol = CLOUDS[name]
            extra = (
                f'<cloud domain="127.0.0.1" port="{self.port}" path="{path}" '
                f'registerProcedure="{procedure}" protocol="{protocol}"/>'
            )
        items = "".join(
            f"<item><title>{escape(title)}</title><guid>{name}-{number}</guid></item>"
            for number, title in reversed(list(enumerate(ITEMS[name])))
        )
        return (
            '<?xml version="1.0"?><rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom">'
            f"<channel><title>A {name} feed</title><link>{self.base}/blog/</link>"
            f"<description>of a test</description>{extra}"
            f'<atom:link rel="self" href="{self.base}/{name}.xml"/>{items}</channel></rss>'
        ).encode()

    def post(self, name: str, title: str) -> None:
        ITEMS[name].append(title)
        topic = f"{self.base}/{name}.xml"
        for callback, secret in tuple(SUBSCRIBERS[topic].items()):
            if name != "silent":
                self.push(name, topic, callback, secret)
        for callback in tuple(REGISTERED[topic]):
            self.tell(topic, callback, urlencode({"url": topic}).encode(), {})
        for url, procedure in tuple(FIRST[topic]):
            with xmlrpc.client.ServerProxy(url) as workstation:
                returned = getattr(workstation, procedure)(topic)
                TOLD.append((topic, url, 200 if returned is True else 500))
        self.answer(200, formatdate().encode())

    def push(self, name: str, topic: str, callback: str, secret: str) -> None:
        body = self.feed(name)
        key = "another secret" if name == "forging" else secret
        signature = hmac.new(key.encode(), body, hashlib.sha256).hexdigest()
        headers = {"Content-Type": "application/rss+xml", "X-Hub-Signature": f"sha256={signature}"}
        self.tell(topic, callback, body, headers)

    def tell(self, topic: str, callback: str, body: bytes, headers: dict[str, str]) -> None:
        request = urllib.request.Request(callback, body, headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                status = answer.status
        except urllib.error.HTTPError as error:
            status = error.code
        if status == 410:
            SUBSCRIBERS[topic].pop(callback, None)
        TOLD.append((topic, callback, status))

    def verify(self, form: dict[str, str]) -> None:
        topic, callback, mode = form["hub.topic"], form["hub.callback"], form["hub.mode"]
        asked = f"{topic}?another" if topic.endswith("/lying.xml") else topic
        query = {"hub.mode": mode, "hub.topic": asked, "hub.challenge": "x91"}
        query["hub.lease_seconds"] = form.get("hub.lease_seconds", "600")
        confirmed = fetch(callback, query) == b"x91"
        if confirmed and mode == "subscribe":
            SUBSCRIBERS[topic][callback] = form.get("hub.secret", "")
        elif confirmed:
            SUBSCRIBERS[topic].pop(callback, None)

    def register(self, form: dict[str, str]) -> None:
        topic = form["url1"]
        callback = f"http://{form['domain']}:{form['port']}{form['path']}"
        confirmed = b"y82" in fetch(callback, {"url": topic, "challenge": "y82"})
        if confirmed:
            REGISTERED[topic].add(callback)
        said = "true" if confirmed else "false"
        self.answer(200, f'<notifyResult success="{said}" msg="said {said}"/>'.encode(), "text/xml")

    def please_notify(self, body: str) -> None:
        parameters, name = cast(Any, xmlrpc.client.loads(body))
        said: Any = (True,)
        if name != PROCEDURE:
            said = xmlrpc.client.Fault(4, f"There is no procedure {name}")
        elif len(parameters) != 5:
            said = xmlrpc.client.Fault(4, "The procedure takes five parameters")
        elif parameters[3] != "xml-rpc":
            said = xmlrpc.client.Fault(4, "Only xml-rpc is known here")
        else:
            procedure, port, path, _, topics = parameters
            for topic in topics:
                url = f"http://{self.client_address[0]}:{port}{path}"
                FIRST[topic].add((url, procedure))
        answer = xmlrpc.client.dumps(said, methodresponse=True)
        self.answer(200, answer.encode(), "text/xml")


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    print(server.server_port, flush=True)  # noqa: T201 # for the test
    server.serve_forever()
