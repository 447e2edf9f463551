"""Calls of every protocol, who pings all the time, and subscribers of every protocol on one loop.

Anyone who pings or subscribes here gives up soon: a broker may have been stopped for a while.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPConnection, HTTPException
from itertools import count
from threading import Event, Thread
from typing import cast
from urllib.parse import parse_qs, urlencode, urlsplit
from xmlrpc.client import dumps, loads

from attrs import frozen
from lxml import etree

from tests.e2e.fixture import TIMEOUT, Broker, until

#: Seconds that a client waits for an answer: fewer than the 15 that an operation on a database may
#: take, so that who waits for a database that stands still gets none.
PATIENCE = 12.0

# As desktop programs of 2003 sent it: no namespace around the operation.
ENVELOPE = """<?xml version="1.0"?>
<SOAP-ENV:Envelope
  SOAP-ENV:encodingStyle="http://schemas.xmlsoap.org/soap/encoding/"
  xmlns:SOAP-ENC="http://schemas.xmlsoap.org/soap/encoding/"
  xmlns:SOAP-ENV="http://schemas.xmlsoap.org/soap/envelope/"
  xmlns:xsd="http://www.w3.org/1999/XMLSchema"
  xmlns:xsi="http://www.w3.org/1999/XMLSchema-instance">
<SOAP-ENV:Body>{body}</SOAP-ENV:Body></SOAP-ENV:Envelope>
"""

FORM = {"content-type": "application/x-www-form-urlencoded"}
XML = {"content-type": "text/xml"}
HOME = "http://site.example/"

#: The protocols of subscribers.
PROTOCOLS = ("http-post", "xml-rpc", "soap", "websub")


@frozen
class Call:
    """A request to any of the brokers.

    :ivar accepted: matches a text that begins with the status; the broker has accepted the call.
    """

    path: str
    body: bytes | None
    headers: Mapping[str, str]
    accepted: str

    def send(
        self, port: int, source: str = "127.0.0.1", patience: float = PATIENCE
    ) -> Reply | None:
        """Send it to a broker; None if that hung up, or did not answer in time.

        :param source: the address from which to connect.
        :param patience: how many seconds to wait for the answer.
        """
        connection = HTTPConnection("127.0.0.1", port, patience, source_address=(source, 0))
        try:
            method = "GET" if self.body is None else "POST"
            connection.request(method, self.path, self.body, dict(self.headers))
            response = connection.getresponse()
            text = response.read().decode()
        except (OSError, HTTPException):
            return None
        finally:
            connection.close()
        accepted = re.match(self.accepted, f"{response.status} {text}", re.DOTALL) is not None
        return Reply(response.status, text, accepted, response.headers["Retry-After"] or "")

    def ask(self, port: int, patience: float = PATIENCE) -> Reply:
        """Send it to a broker that must answer."""
        reply = self.send(port, patience=patience)
        assert reply is not None, self
        return reply


@frozen
class Reply:
    """What a broker answered to a call."""

    status: int
    text: str
    accepted: bool
    retry_after: str

    @property
    def says_try_again(self) -> bool:
        """Whether it refuses the call as it should while the database cannot be used."""
        return self.status == 503 and self.retry_after.isdigit()


def form(path: str, accepted: str, /, **fields: object) -> Call:
    """Send a form."""
    named = {name.replace("_", "."): value for name, value in fields.items()}
    return Call(path, urlencode(named, doseq=True).encode(), FORM, accepted)


def get(path: str, **fields: str) -> Call:
    """Ping by a query."""
    return Call(f"{path}?{urlencode(fields)}", None, {}, "200 .*Thanks for the ping")


def xmlrpc(procedure: str, *parameters: object) -> Call:
    """Call a procedure by XML-RPC."""
    document = dumps(parameters, procedure).encode()  # type: ignore[arg-type]
    return Call("/RPC2", document, XML, r"200 .*(<param>\s*<value><boolean>1|Thanks for the ping)")


def soap(action: str, operation: str, members: str = "", /, *, at: str = "", **values: str) -> Call:
    """Call an operation by SOAP.

    :param members: XML of parameters that are no strings.
    :param at: the path; by default that of the action.
    """
    members += "".join(f'<{n} xsi:type="xsd:string">{v}</{n}>' for n, v in values.items())
    envelope = ENVELOPE.format(body=f"<{operation}>{members}</{operation}>").encode()
    headers = XML | {"soapaction": f'"{action}"'}
    return Call(at or action, envelope, headers, f"200 .*<{operation}Response")


#: Make a ping for a feed, with a name that no other ping has.
Ping = Callable[[str, str], Call]

#: Pings that make a record of their own in the change list, under their names.
NAMED: Mapping[str, Ping] = {
    "weblogUpdates.extendedPing": lambda feed, name: xmlrpc(
        "weblogUpdates.extendedPing", name, HOME, "", feed, "news"
    ),
    "weblogUpdates by SOAP": lambda feed, name: soap(
        "/weblogUpdates", "ping", weblogname=name, weblogurl=feed
    ),
    "/pingSiteForm": lambda feed, name: get("/pingSiteForm", name=name, url=HOME, changesURL=feed),
}

NAMED_PING = NAMED["weblogUpdates.extendedPing"]

#: Pings of a feed; if it has changed, that makes a record under its URL.
PLAIN: Mapping[str, Ping] = {
    "rssCloud by form": lambda feed, name: form("/rsscloud/ping", '200 .*success="true"', url=feed),
    "rssCloud by XML-RPC": lambda feed, name: xmlrpc("rssCloud.ping", feed),
    "rssCloud by SOAP": lambda feed, name: soap("/rssCloud", "ping", url=feed),
    "WebSub": lambda feed, name: form("/websub", "202", hub_mode="publish", hub_url=feed),
}


def procedure(protocol: str) -> str:
    """The procedure that a subscriber registers, in protocols that have some."""
    return "river.notify" if protocol in {"xml-rpc", "soap"} else ""


def subscribing(protocol: str, callback: str, feed: str) -> Call:
    """Subscribe a callback; unless it is of WebSub, its host must be who sends this."""
    parts = urlsplit(callback)
    assert parts.port is not None
    if protocol == "websub":
        return _websub("subscribe", callback, feed)
    if protocol == "xml-rpc":
        return xmlrpc(
            "rssCloud.pleaseNotify", procedure(protocol), parts.port, parts.path, protocol, [feed]
        )
    if protocol == "soap":
        return soap(
            "/rssCloud",
            "pleaseNotify",
            f'<port xsi:type="xsd:int">{parts.port}</port>',
            notifyProcedure=procedure(protocol),
            path=parts.path,
            protocol=protocol,
            urlList=feed,
        )
    return form(
        "/rsscloud/pleaseNotify",
        '200 .*success="true"',
        notifyProcedure=procedure(protocol),
        port=parts.port,
        path=parts.path,
        protocol=protocol,
        url1=feed,
    )


def unsubscribing(callback: str, feed: str) -> Call:
    """End a subscription of WebSub."""
    return _websub("unsubscribe", callback, feed)


def _websub(mode: str, callback: str, feed: str) -> Call:
    return form(
        "/websub", "204", hub_mode=mode, hub_topic=feed, hub_callback=callback, hub_verify="sync"
    )


def every_call(feed: str) -> Iterator[Call]:
    """A ping and a subscription by each protocol."""
    for make in (*NAMED.values(), *PLAIN.values()):
        yield make(feed, "a ping")
    for protocol in PROTOCOLS:
        yield subscribing(protocol, "http://127.0.0.1:9/new", feed)


def assert_all_try_again(port: int, feed: str) -> None:
    """Assert that a broker asks callers of every protocol to try again."""
    for call in every_call(feed):
        reply = call.ask(port)
        assert reply.says_try_again, (call, reply)


class Pinger:
    """Pings a broker all the time, in a thread.

    :param label: what the names of its pings begin with.
    :ivar acknowledged: the names of the pings that the broker has thanked for.
    :ivar wrong: other answers than thanks, and than asking to try again.
    """

    def __init__(self, broker: Broker, label: str = "ping") -> None:
        self.acknowledged: list[str] = []
        self.refused = 0
        self.wrong: list[Reply] = []
        self._broker = broker
        self._label = label
        self._over = Event()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for number in count():
            if self._over.wait(0.02):
                return
            name = f"{self._label} {number}"
            reply = NAMED_PING("http://unknown.example/", name).send(self._broker.port)
            if reply is None:
                self.refused += 1
            elif reply.accepted:
                self.acknowledged.append(name)
            elif reply.says_try_again:
                self.refused += 1
            else:
                self.wrong.append(reply)

    def until_more(self) -> None:
        """Wait until the broker takes pings again."""
        before = len(self.acknowledged)
        until(lambda: len(self.acknowledged) >= before + 5, "pings to be acknowledged")

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


#: What a subscriber does with a notification: it takes the URL of the callback, the topic, and the
#: content if it got that.
Hear = Callable[[str, str, bytes], None]

_SOAP_ANSWER = ENVELOPE.format(
    body='<notifyResponse><Result xsi:type="xsd:boolean">1</Result></notifyResponse>'
).encode()
_XMLRPC_ANSWER = dumps((True,), methodresponse=True).encode()


class ManySubscribers:
    """Subscribers on loopback addresses, all on one loop in one thread.

    The servers of `tests.e2e.servers` need a thread for each connection; these do not.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def listen(self, host: str, hear: Hear) -> str:
        """Listen at an address; its base URL."""
        listening = self._loop.create_server(lambda: AnySubscriber(hear), host, 0, backlog=1000)
        server = asyncio.run_coroutine_threadsafe(listening, self._loop).result(TIMEOUT)
        return f"http://{host}:{server.sockets[0].getsockname()[1]}"


class AnySubscriber(asyncio.Protocol):
    """A connection to subscribers of every protocol: the path of a callback begins with its own.

    They repeat challenges, answer each notification with success, and keep the connection.
    """

    def __init__(self, hear: Hear) -> None:
        self._hear = hear
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        host, port = transport.get_extra_info("sockname")
        self._url = f"http://{host}:{port}"

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, end, rest = self._buffer.partition(b"\r\n\r\n")
        if not end:
            return
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (one.partition(": ") for one in lines)}
        length = int(headers.get("content-length", "0"))
        if len(rest) < length:
            return
        self._buffer = rest[length:]
        method, target, _ = first.split(" ", 2)
        answer = self._answer(method, target, headers, rest[:length])
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/xml\r\nContent-Length: %d\r\n\r\n"
        self._transport.write(head % len(answer) + answer)

    def _answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> bytes:
        parts = urlsplit(target)
        if method == "GET":
            query = parse_qs(parts.query)
            return (query.get("hub.challenge") or query.get("challenge") or ["?"])[0].encode()
        topic, answer = _notified(parts.path.split("/")[1], headers, body)
        self._hear(f"{self._url}{parts.path}", topic, body)
        return answer


def _notified(protocol: str, headers: Mapping[str, str], body: bytes) -> tuple[str, bytes]:
    """The topic of a notification, and the answer to it."""
    if protocol == "xml-rpc":
        return str(loads(body)[0][0]), _XMLRPC_ANSWER
    if protocol == "soap":
        return str(etree.fromstring(body).findtext(".//url")), _SOAP_ANSWER
    if protocol == "websub":
        return re.findall(r'<([^>]*)>; rel="self"', headers["link"])[0], b""
    return parse_qs(body.decode())["url"][0], b""
