"""ping, listen and resourcesync: in a process of their own, over real sockets."""

from __future__ import annotations

import contextlib
from pathlib import Path
from urllib.parse import urlencode

from twisted.internet.defer import Deferred
from twisted.web.client import Agent
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request

from rsscloud_broker.client.any_address import AnyAddress
from rsscloud_broker.client.web import ClientError, Web
from rsscloud_broker.interfaces import OutboundReply
from rsscloud_broker.util.clock import SystemClock
from rsscloud_broker.wire import soap, xmlrpc
from rsscloud_broker.wire.cloud import Cloud, encode, from_url
from tests.client.recording import Answer, Server, fields_of
from tests.commands.cases import ProcessTests, running


class SmallCloud(Resource):
    """A cloud with one feed, and the feed itself: at any path, by GET and POST.

    It tests the callback, as clouds do, before it accepts a registration.
    """

    isLeaf = True

    def __init__(self) -> None:
        super().__init__()
        self.cloud = Cloud("127.0.0.1", 0, "/", "", "http-post")
        self.registered: dict[str, str] = {}
        self.replies: list[OutboundReply] = []
        self._web = Web(AnyAddress(Agent(running), SystemClock(running)))

    def render_GET(self, request: Request) -> bytes:
        return f"<rss><channel>{encode(self.cloud)}</channel></rss>".encode()

    def render_POST(self, request: Request) -> int:
        self.registered = {key.decode(): values[0].decode() for key, values in request.args.items()}
        Deferred.fromCoroutine(self._accept(request))
        return NOT_DONE_YET

    async def _accept(self, request: Request) -> None:
        await self.notify()
        request.write(b'<notifyResult success="true" msg="It worked."/>')
        request.finish()

    async def notify(self) -> None:
        """Notify the subscriber by the protocol of its registration."""
        where = self.registered
        headers = {"Content-Type": "text/xml"}
        if where["protocol"] == "xml-rpc":
            body = xmlrpc.encode_call(where["notifyProcedure"], [where["url1"]])
        elif where["protocol"] == "soap":
            operation = where["notifyProcedure"].rpartition(".")[2]
            body = soap.encode_call(operation, {"url": where["url1"]})
            headers["SOAPAction"] = where["path"]
        else:
            body = urlencode({"url": where["url1"]}).encode()
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        url = f"http://127.0.0.1:{where['port']}{where['path']}"
        self.replies.append(await self._web.post(url, headers, body))


class PingTests(ProcessTests):
    async def test_a_ping_that_is_taken(self) -> None:
        server = Server(Answer(b'<result success="true" msg="Thanks for the ping."/>'))
        feed = "http://example.org/rss.xml"
        command = self.start("ping", feed, "--broker", self.serve(server))
        self.assertEqual(await command.lines.get(), "Thanks for the ping.")
        self.assertEqual((await command.ended, command.errors), (0, b""))
        self.assertEqual(fields_of(server.asked[0]), {"url": feed})

    async def test_a_ping_that_is_refused(self) -> None:
        answer = {"flerror": True, "message": "No\x1b[2J\nthanks."}
        server = Server(Answer(xmlrpc.encode_response(answer)))
        broker = self.serve(server)
        site = ("--name", "n", "--url", "http://example.org/")
        command = self.start("ping", *site, "--broker", broker, "--protocol", "xml-rpc")
        await self.assert_fails(command, "Error: No[2J thanks.\n")


class ResourceSyncTests(ProcessTests):
    fixtures = Path(__file__).parent.parent / "wire" / "fixtures"
    payload = fixtures / "resourcesync" / "new_resource_list.xml"
    content = payload.read_bytes()

    async def test_a_notification(self) -> None:
        server = Server(Answer(b"The notification was accepted.\n", 202), Answer(b"No.\n", 403))
        hub = f"{self.serve(server)}/websub"
        arguments = ("resourcesync", "notify", str(self.payload), "--hub", hub)
        command = self.start(*arguments, "--topic", "http://example.com/dataset1/framework/")
        self.assertEqual(await command.lines.get(), "The notification was accepted.")
        self.assertEqual((await command.ended, command.errors), (0, b""))
        self.assertEqual(server.asked[0].body, self.content)
        refused = self.start(*arguments, "--topic", "http://other.example/")
        await self.assert_fails(refused, f"Error: {hub}: answered with HTTP status 403: No.\n")


class ListenTests(ProcessTests):
    def cloud(self) -> tuple[SmallCloud, str]:
        """A cloud, and its feed."""
        cloud = SmallCloud()
        feed = f"{self.serve(cloud)}/rss.xml"
        cloud.cloud = from_url(feed)
        return cloud, feed

    async def test_from_the_feed_to_the_line(self) -> None:
        for protocol in ("http-post", "xml-rpc", "soap"):
            cloud, feed = self.cloud()
            command = self.start("listen", feed, "--protocol", protocol)
            # A notification during the registration is the cloud's test.
            await self.told(command, b"It worked.")
            await cloud.notify()
            time_, _, topic = (await command.lines.get()).partition(" ")
            self.assertRegex(time_, r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
            self.assertEqual(topic, feed, protocol)
            self.assertEqual([reply.status for reply in cloud.replies], [200, 200], protocol)
            command.signal("INT")
            self.assertEqual(await command.ended, 0, protocol)
            self.assertEqual(command.lines.pending, [], protocol)

    async def test_a_named_broker_is_asked_in_place_of_the_feed(self) -> None:
        cloud = SmallCloud()
        broker = self.serve(cloud)
        command = self.start("listen", "http://no-such.example/rss.xml", "--broker", broker)
        await self.told(command, b"It worked.")
        self.assertEqual(cloud.registered["url1"], "http://no-such.example/rss.xml")

    async def test_a_reader_that_goes_away_ends_it(self) -> None:
        cloud, feed = self.cloud()
        command = self.start("listen", feed)
        await self.told(command, b"It worked.")
        command.close_stdout()
        with contextlib.suppress(ClientError):  # the process may end before it answers
            await cloud.notify()
        self.assertEqual(await command.ended, 0)
        self.assertNotIn(b"BrokenPipe", command.errors)

    async def test_an_operation_that_cannot_be(self) -> None:
        cloud, feed = self.cloud()
        port = from_url(feed).port
        cloud.cloud = Cloud("127.0.0.1", port, "/soap", "rssCloud.please notify", "soap")
        command = self.start("listen", feed)
        await self.assert_fails(command, "'please notify' cannot be the name of an operation")

    async def test_a_port_that_is_taken(self) -> None:
        port = self.serve(Resource()).rpartition(":")[2]
        place = ("--host", "127.0.0.1", "--port", port)
        command = self.start("listen", "http://example.org/rss.xml", *place)
        await self.assert_fails(command, f"127.0.0.1:{port}")
