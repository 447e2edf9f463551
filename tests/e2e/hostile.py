"""Strangers who put the payloads of `tests.xss_payloads` into every field that they can fill.

They ping and subscribe by each protocol, publish feeds whose titles and links are payloads, and
answer the broker's calls with payloads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final
from urllib.parse import parse_qs, quote, urlencode, urlsplit
from xml.sax.saxutils import escape, quoteattr
from xmlrpc.client import dumps

from tests.e2e.every_protocol import soap
from tests.e2e.fixture import TIMEOUT, Broker, post_form, request, until
from tests.e2e.servers import Handler, Server, http_server
from tests.xss_payloads import numbered

PAYLOADS: Final = numbered()

#: What XML cannot have, not even as a reference to a character.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_LINE_BREAKS = re.compile(rb"[\r\n]+")


def text(payload: bytes) -> str:
    """A payload as a text, with a replacement character for what is not UTF-8."""
    return payload.decode("utf-8", "replace")


def xml_text(payload: bytes) -> str:
    """A payload as a text that XML can have."""
    return _NOT_XML.sub("", text(payload))


def in_url(payload: bytes) -> str:
    """A payload in a URL, as it is but for white space."""
    return f"http://stranger.example/?{'/'.join(text(payload).split())}"


def together(size: int) -> list[Sequence[bytes]]:
    """All payloads in groups, of which the last may be smaller."""
    return [PAYLOADS[start : start + size] for start in range(0, len(PAYLOADS), size)]


# --- pings ------------------------------------------------------------------


def ping(broker: Broker, payload: bytes) -> None:
    """Ping with a payload as each parameter, by each protocol."""
    name, url = text(payload), in_url(payload)
    _call(broker, "weblogUpdates.ping", name, url, url, name)
    _call(broker, "weblogUpdates.ping", "A site", name)
    _call(broker, "weblogUpdates.extendedPing", name, url, url, in_url(b"feed" + payload), name)
    _call(broker, "rssCloud.ping", name)
    _call(broker, name)
    named = {"weblogname": name, "weblogurl": url, "changesurl": url, "rssurl": url, "tags": name}
    escaped = {each: escape(value) for each, value in named.items()}
    for call in (
        soap("/weblogUpdates", "extendedPing", **escaped),
        soap("/weblogUpdates", "ping", weblogname=name, weblogurl=name),
    ):
        call.ask(broker.port, TIMEOUT)
    for query in ({"name": payload, "url": url, "changesURL": url}, {"url": payload}):
        request(f"{broker.url}/ping?{urlencode(query)}", headers=_headers(payload))


def _call(broker: Broker, procedure: str, *parameters: str) -> None:
    # With control characters the document is not well-formed, which the broker has to bear too.
    document = dumps(parameters, escape(procedure)).encode()
    request(f"{broker.url}/RPC2", "POST", document, {"content-type": "text/xml"})


def _headers(payload: bytes) -> dict[str, str]:
    """Headers that a log or a page may show."""
    value = _LINE_BREAKS.sub(b" ", payload).decode("latin-1")
    return dict.fromkeys(("user-agent", "referer", "from", "x-forwarded-for"), value)


# --- feeds ------------------------------------------------------------------

_FEED = """<?xml version="1.0" encoding="utf-8"?>
<rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom"><channel>
<title>{title}</title><link>{first}</link><description>{title}</description>
<cloud domain={second} port="80" path={third} registerProcedure={fourth} protocol={fourth}/>
<atom:link rel="hub" href={fourth}/><atom:link rel="self" href={fifth}/>
<item><title>{title}</title><link>{first}</link><guid>{title}</guid></item>
</channel></rss>
"""

#: How many payloads are in each kind of feed.
_SIZES: Final = {"feed": 5, "torn": 20, "gone": 20}


class HostileOrigin(Server):
    """Serves feeds that are made of payloads, and fails in the words of payloads.

    ``/feed/0`` is well-formed and has the first payloads in its elements and attributes;
    ``/torn/0`` has the first ones as they are; ``/gone/0`` has them as the reason of its status.

    :ivar version: a number that the feeds contain.
    """

    def __init__(self) -> None:
        super().__init__(http_server(_OriginHandler, self))
        self.version = 0

    @property
    def urls(self) -> list[str]:
        """The URLs of the feeds, and of some that cannot be read."""
        return [
            f"http://127.0.0.1:{self.port}/{kind}/{number}"
            for kind, size in _SIZES.items()
            for number in range(len(together(size)))
        ]


class _OriginHandler(Handler):
    def do_GET(self) -> None:
        _, kind, number = urlsplit(self.path).path.split("/")
        payloads = together(_SIZES[kind])[int(number)]
        version = b"<!-- %d -->" % self.owner.version
        if kind == "gone":
            self.fail(b" ".join(payloads))
        elif kind == "torn":
            self.answer(200, b"<rss><channel><title>" + b" ".join(payloads) + version)
        else:
            self.answer(200, _feed(payloads) + version, "application/rss+xml")

    def fail(self, payload: bytes) -> None:
        """Answer with a payload as the reason, as headers and as the content."""
        reason = _LINE_BREAKS.sub(b" ", payload).decode("latin-1")
        self.send_response(500, reason)
        self.send_header("Content-Type", "text/html")
        self.send_header("Location", reason)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)


def _feed(payloads: Sequence[bytes]) -> bytes:
    texts = [*map(xml_text, payloads)]
    names = ("second", "third", "fourth", "fifth")
    values = dict(zip(names, map(quoteattr, texts[1:]), strict=True))
    title = escape(" | ".join(texts))
    return _FEED.format(title=title, first=escape(texts[0]), **values).encode()


# --- subscribers ------------------------------------------------------------


class HostileReceiver(Server):
    """A subscriber whose callbacks, such as ``/post/7``, answer with payloads.

    :ivar is_polite: whether it still does what the protocols want.
    :ivar called: the callbacks that were called.
    """

    def __init__(self) -> None:
        super().__init__(http_server(_ReceiverHandler, self))
        self.is_polite = True
        self.called: set[str] = set()

    def callback(self, number: int) -> str:
        """The callback for WebSub of a payload."""
        query = quote(PAYLOADS[number], safe="")
        return f"http://127.0.0.1:{self.port}/hub/{number}?{query}"

    def await_calls(self) -> None:
        """Wait until every callback was called."""
        count = 3 * len(PAYLOADS)
        until(lambda: len(self.called) == count, f"{count} callbacks to be called")


_FAULT = """<?xml version="1.0"?><methodResponse><fault><value><struct>
<member><name>faultCode</name><value><int>4</int></value></member>
<member><name>faultString</name><value><string>{}</string></value></member>
</struct></value></fault></methodResponse>"""

_CALLBACK = re.compile(r"/(post|rpc|hub)/(\d+)(?![^?])")

_THANKS = dumps((True,), methodresponse=True).encode()


class _ReceiverHandler(_OriginHandler):
    owner: ClassVar[HostileReceiver]

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        challenge = query.get("hub.challenge") or query.get("challenge") or [""]
        self.reply(challenge[0].encode())

    def do_POST(self) -> None:
        self.body()
        self.reply(_THANKS)

    def reply(self, polite: bytes) -> None:
        callback = _CALLBACK.match(self.path)
        if callback is None:
            self.fail(self.path.encode())  # the path itself was a payload
            return
        kind, number = callback.groups()
        payload = PAYLOADS[int(number)]
        if self.owner.is_polite:
            self.answer(200, polite, "text/xml" if kind == "rpc" else "text/plain")
        elif kind == "rpc":
            self.answer(200, _FAULT.format(escape(xml_text(payload))).encode(), "text/xml")
        else:
            self.fail(payload)
        self.owner.called.add(f"/{kind}/{number}")


def subscribe(broker: Broker, receiver: HostileReceiver, topic: str, number: int) -> None:
    """Subscribe the three callbacks of a payload, which have it in their queries.

    :param topic: the URL of a feed.
    :param number: that of the payload.
    """
    for kind, protocol, procedure in (("post", "http-post", ""), ("rpc", "xml-rpc", "notify")):
        _register(
            broker,
            protocol=protocol,
            notifyProcedure=procedure,
            port=receiver.port,
            path=f"/{kind}/{number}?{quote(PAYLOADS[number], safe='')}",
            url1=topic,
        )
    callback = receiver.callback(number)
    _intend(broker, {"hub.mode": "subscribe", "hub.topic": topic, "hub.callback": callback})


def subscribe_badly(broker: Broker, receiver: HostileReceiver, topic: str, number: int) -> None:
    """Send a payload as each parameter of a subscription."""
    payload = PAYLOADS[number]
    fields = {"protocol": "xml-rpc", "port": receiver.port, "path": "/", "url1": topic}
    for name in ("domain", "notifyProcedure", *fields):
        _register(broker, **{**fields, name: payload})
    callback = receiver.callback(number)
    intent = {"hub.mode": "subscribe", "hub.topic": topic, "hub.callback": callback}
    for name in ("hub.lease_seconds", *intent):
        _intend(broker, {**intent, name: payload})
    _intend(broker, {"hub.mode": "publish", "hub.url": payload})


def _register(broker: Broker, **fields: object) -> None:
    post_form(f"{broker.url}/rsscloud/pleaseNotify", fields)


def _intend(broker: Broker, fields: Mapping[str, object]) -> None:
    post_form(f"{broker.url}/websub", fields)


def attack(broker: Broker, origin: HostileOrigin, receiver: HostileReceiver) -> None:
    """Fill every field of subscriptions, feeds and answers with payloads.

    Waits until the subscribers were notified, and have answered.
    """
    topic, other, *_ = origin.urls
    for number in range(len(PAYLOADS)):
        subscribe(broker, receiver, topic, number)
        subscribe_badly(broker, receiver, topic, number)
    for url in origin.urls:
        broker.ping(url)
    receiver.await_calls()
    receiver.is_polite = False
    for number in range(len(PAYLOADS)):
        subscribe(broker, receiver, other, number)  # which fails in the words of payloads
    receiver.called.clear()
    origin.version += 1
    broker.ping(topic)
    receiver.await_calls()
