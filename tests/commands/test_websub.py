"""``publish`` and ``listen --protocol websub``: in a process of their own, over real sockets."""

from __future__ import annotations

from urllib.parse import urlencode

from twisted.internet.defer import DeferredQueue
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.client import Agent
from twisted.web.resource import Resource
from twisted.web.server import Request

from rsscloud_broker.client.any_address import AnyAddress
from rsscloud_broker.client.web import ClientError, Web
from rsscloud_broker.commands.calling import own_address
from rsscloud_broker.interfaces import OutboundReply
from rsscloud_broker.util.clock import SystemClock
from rsscloud_broker.wire.websub import sign
from tests.commands.cases import CommandTests, ProcessTests, running


class SmallHub(Resource):
    """A hub with one topic, and the topic itself: at any path, by POST and GET.

    :ivar asked: the forms that subscribers have sent.
    """

    isLeaf = True

    def __init__(self) -> None:
        super().__init__()
        self.asked: DeferredQueue[dict[str, str]] = DeferredQueue()
        self._web = Web(AnyAddress(Agent(running), SystemClock(running)))

    def render_GET(self, request: Request) -> bytes:
        request.setHeader("Link", '</hub>; rel="hub", </topic>; rel="self"')
        return b"what is there"

    def render_POST(self, request: Request) -> bytes:
        form = {name.decode(): values[0].decode() for name, values in request.args.items()}
        self.asked.put(form)
        request.setResponseCode(202)
        return b"Thanks.\n"

    async def verify(self, form: dict[str, str]) -> OutboundReply:
        """Verify the intent of a subscriber."""
        query = {name: form[name] for name in ("hub.mode", "hub.topic")}
        query |= {"hub.challenge": "x91", "hub.lease_seconds": "600"}
        return await self._web.get(f"{form['hub.callback']}?{urlencode(query)}")

    async def deliver(self, form: dict[str, str], secret: str) -> OutboundReply:
        """Send a subscriber the content of the topic, signed unless the secret is empty."""
        headers = {"Content-Type": "text/xml"}
        if secret:
            headers["X-Hub-Signature"] = sign(b"<a/>", secret)
        return await self._web.post(form["hub.callback"], headers, b"<a/>")


class PublishTests(ProcessTests):
    async def test_accepted(self) -> None:
        hub = SmallHub()
        urls = ("http://a.example/", "http://b.example/")
        command = self.start("publish", *urls, "--broker", self.serve(hub))
        self.assertEqual(await command.lines.get(), "Thanks.")
        self.assertEqual((await command.ended, command.errors), (0, b""))
        self.assertEqual((await hub.asked.get())["hub.mode"], "publish")


class ListenTests(ProcessTests):
    async def test_from_the_topic_to_the_end(self) -> None:
        hub = SmallHub()
        server = self.serve(hub)
        command = self.start("listen", f"{server}/a", "--protocol", "websub", "--secret", "sesame")
        form = await hub.asked.get()
        self.assertEqual((form["hub.topic"], form["hub.secret"]), (f"{server}/topic", "sesame"))
        self.assertEqual((await hub.verify(form)).body, b"x91")
        await self.told(command, b"subscribed for 600 seconds")
        for secret in ("other", "", "sesame"):
            self.assertEqual((await hub.deliver(form, secret)).status, 202)
        line = await command.lines.get()
        self.assertRegex(line, rf"^\d{{4}}-.*Z {server}/topic 4 bytes, signature OK$")
        ignored = f"{server}/topic 4 bytes were ignored: their signature is wrong or missing\n"
        self.assertEqual(command.errors.count(ignored.encode()), 2)
        command.signal("INT")
        ending = await hub.asked.get()
        self.assertEqual(ending["hub.mode"], "unsubscribe")
        self.assertEqual((await hub.verify(ending)).body, b"x91")
        self.assertEqual(await command.ended, 0)

    async def test_a_named_broker(self) -> None:
        hub = SmallHub()
        topic = "http://no-such.example/rss.xml"
        command = self.start(
            "listen", topic, "--protocol", "websub", "--broker", self.serve(hub), "--domain", "me"
        )
        form = await hub.asked.get()
        self.assertEqual(form["hub.topic"], topic)
        self.assertRegex(form["hub.callback"], r"^http://me:\d+/[\w-]{20,}$")
        self.assertNotIn("hub.secret", form)
        await self.told(command, f"{topic}: Thanks.".encode())
        command.signal("INT")
        self.assertEqual(await command.ended, 0)


class UsageTests(CommandTests):
    def test_a_secret_is_for_websub(self) -> None:
        told = self.misuse_of("listen", "http://a.example/", "--secret", "sesame")
        self.assertIn("--secret needs --protocol websub", told)


class OwnAddressTests(SynchronousTestCase):
    def test_loopback(self) -> None:
        self.assertEqual(own_address("http://127.0.0.1:5337/websub"), "127.0.0.1")

    def test_urls_that_lead_nowhere(self) -> None:
        for url in ("http://[::1", "http://127.0.0.1:99999/"):
            self.assertIn(url, str(self.assertRaises(ClientError, own_address, url)))
