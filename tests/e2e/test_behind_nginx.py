"""A broker behind nginx, which speaks https: as publishers, subscribers and crawlers see it."""

from __future__ import annotations

import gzip
import ssl
from collections.abc import Mapping
from pathlib import Path
from shutil import rmtree
from signal import SIGTERM
from tempfile import mkdtemp
from typing import Any
from urllib.parse import urlencode
from xmlrpc.client import ServerProxy

from tests.e2e.fixture import Answer, Broker, EndToEndTestCase, request, run, until
from tests.e2e.installed import (
    ActivatedBroker,
    has_ipv6,
    manual,
    nginx_recipe,
    replaced,
    self_signed,
)
from tests.e2e.nginx import NginxProcess
from tests.e2e.servers import HttpPostReceiver, Origin, Receiver
from tests.e2e.test_command import Listening

PUBLIC_URL = 'public_url = "https://broker.example"'

#: The topics and the callbacks of these tests are on this machine.
EGRESS = '[egress]\nallow_topics = ["127.0.0.0/8"]\nallow_callbacks = ["127.0.0.0/8"]\n'

#: A client of this machine that is not at 127.0.0.1, from where nginx calls the broker.
CLIENT = "127.0.0.5"

FORM = {"content-type": "application/x-www-form-urlencoded"}


class BehindNginxTestCase(EndToEndTestCase):
    def proxied(self, broker: Broker, recipe: str) -> None:
        """Start a broker, and nginx in front of it.

        :param recipe: the manual's, for what is particular to the broker.
        """
        self.broker = broker
        self._marks[broker] = 0
        self.addCleanup(broker.end)
        directory = self.directory()
        self.certificate, key = self_signed(directory, "broker.example", "localhost", "127.0.0.1")
        nginx = NginxProcess(directory / "nginx")
        loopback = f"listen [::1]:{nginx.port} ssl;" if has_ipv6() else ""
        servers = replaced(
            recipe,
            {
                "listen 443 ssl;": f"listen 127.0.0.1:{nginx.port} ssl;",
                "listen [::]:443 ssl;": loopback,
                "/etc/ssl/broker.example.pem": str(self.certificate),
                "/etc/ssl/broker.example.key": str(key),
                "/var/lib/rsscloud-broker/public": str(broker.data / "public"),
            },
        )
        broker.start()
        nginx.start_with(servers)
        self.addCleanup(nginx.stop)
        self.url = f"https://localhost:{nginx.port}"

    def ask(
        self,
        path: str,
        fields: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Get what is at a path, or post fields to it, as a client at ``CLIENT``."""
        body = None if fields is None else urlencode(fields).encode()
        return request(
            self.url.replace("localhost", "127.0.0.1") + path,
            "GET" if body is None else "POST",
            body,
            {**(headers or {}), **({} if body is None else FORM)},
            cafile=self.certificate,
            source=CLIENT,
        )

    def register(self, receiver: Receiver, topic: str, **headers: str) -> Answer:
        """Register a receiver without a domain: it is called at the address of the client."""
        fields = receiver.registration(topic)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.ask("/rsscloud/pleaseNotify", fields, named)

    def assert_subscriber_is_told(self, origin: Origin) -> None:
        """A subscriber at ``CLIENT`` is called back there, whatever it says of its address."""
        topic, receiver = origin.feed(), self.served(HttpPostReceiver(host=CLIENT))
        for headers in ({}, {"x_forwarded_for": "127.0.0.1"}):
            answer = self.register(receiver, topic, **headers)
            self.assertIn('success="true"', answer.text)
            self.assertEqual(receiver.heard, [topic])
            receiver.heard.clear()
        origin.change(topic)
        self.assertIn('success="true"', self.ask("/rsscloud/ping", {"url": topic}).text)
        self.assert_told(receiver, topic)


class RecipeTests(BehindNginxTestCase):
    """The recipe of the manual to the letter: the broker listens at a UNIX socket of systemd's."""

    def setUp(self) -> None:
        super().setUp()
        self.assertIn(f"``{PUBLIC_URL}``", manual())
        self.assertIn("``ListenStream=/run/rsscloud-broker.sock``", manual())
        short = Path(mkdtemp())  # names of sockets are
        self.addCleanup(rmtree, short)
        place = short / "broker.sock"
        self.proxied(
            ActivatedBroker(self.directory(), f"{PUBLIC_URL}\n{EGRESS}", place),
            replaced(nginx_recipe(), {"unix:/run/rsscloud-broker.sock": f"unix:{place}"}),
        )
        self.place = place

    def proxy(self) -> Any:
        context = ssl.create_default_context(cafile=self.certificate)
        proxy = ServerProxy(f"{self.url}/RPC2", context=context)
        self.addCleanup(proxy("close"))
        return proxy

    def test_publishers_and_crawlers(self) -> None:
        """Pings go through; addresses are those of ``public_url``; nginx serves the lists."""
        ping = self.proxy().weblogUpdates.ping("Café ☕", "http://site.example/")
        self.assertEqual(ping, {"flerror": False, "message": "Thanks for the ping."})
        proto = {"x-forwarded-proto": "http"}
        for path in ("/soap", "/weblogUpdates"):
            description = self.ask(f"{path}?wsdl", headers=proto).text
            self.assertIn(f'location="https://broker.example{path}"', description)
        self.assertIn("https://broker.example/", self.ask("/").text)
        self.assertEqual(self.ask("/nothing").status, 404)

        self.broker.restart()
        until(lambda: 'name="Café ☕"' in self.ask("/changes.xml").text, "the ping in changes.xml")
        plain = self.ask("/changes.xml")
        self.assertRegex(plain.headers["server"], "^nginx")
        self.assertNotIn("content-security-policy", plain.headers)  # so it is from the disk
        packed = self.ask("/changes.xml", headers={"accept-encoding": "gzip"})
        self.assertEqual(packed.headers["content-encoding"], "gzip")
        self.assertEqual(gzip.decompress(packed.body), plain.body)
        self.assertEqual(packed.headers["vary"], "Accept-Encoding")

    def test_subscribers(self) -> None:
        self.assert_subscriber_is_told(self.origin())

    def test_commands(self) -> None:
        """``listen`` and ``ping`` trust the certificate that ``--cacert`` names, and no other."""
        origin = self.origin()
        feed = origin.feed()
        there = ("--broker", self.url)
        trusting = (*there, "--cacert", self.certificate)
        listening = Listening(self.directory(), feed, "--host", "127.0.0.1", *trusting)
        self.addCleanup(listening.stop)
        until(lambda: "Thanks for the registration" in listening.told, "the registration")
        origin.change(feed)
        pinged = run("rsscloud-broker", "ping", feed, *trusting)
        self.assertEqual((pinged.stdout, pinged.stderr), ("Thanks for the ping.\n", ""))
        until(lambda: feed in listening.topics, "the notification")
        for command in ("ping", "listen"):
            refused = run("rsscloud-broker", command, feed, *there)
            self.assertEqual((refused.returncode, refused.stdout), (1, ""))
            self.assertIn("certificate verify failed", refused.stderr)
            self.assertIn("--cacert", refused.stderr)
            self.assertEqual(refused.stderr.count("\n"), 1, refused.stderr)

    def test_stopping(self) -> None:
        """The socket's file is systemd's; a second SIGTERM changes nothing."""
        self.broker.terminate()
        self.broker.terminate()
        self.assertEqual(self.broker.ended(), -SIGTERM)
        self.assertTrue(self.place.is_socket())
        self.assertIn("Server Shut Down.", self.broker.log)
        for bad in ("Traceback", "TCP_NODELAY", "Operation not permitted"):
            self.assertNotIn(bad, self.broker.log)


class TCPTests(BehindNginxTestCase):
    """The other way of the manual: the broker listens on loopback, and names its proxies."""

    def test_subscribers(self) -> None:
        broker = Broker(
            self.directory(), f'{PUBLIC_URL}\n{EGRESS}[http]\ntrusted_proxies = ["127.0.0.1"]\n'
        )
        upstream = {"unix:/run/rsscloud-broker.sock": f"127.0.0.1:{broker.port}"}
        self.proxied(broker, replaced(nginx_recipe(), upstream))
        self.assert_subscriber_is_told(self.origin())


class BareTests(EndToEndTestCase):
    """An nginx that knows no more than where to pass requests on."""

    def test_strangers_are_no_programs_on_this_machine(self) -> None:
        for configuration, statuses in (
            (PUBLIC_URL, {401}),
            (f"{PUBLIC_URL}\n[http]\nlocal_programs = 'always'", {200}),
        ):
            broker = self.own_broker(configuration, ())
            broker.start()
            nginx = NginxProcess(self.directory() / "nginx")
            passed = f"location / {{ proxy_pass http://127.0.0.1:{broker.port}; }}"
            nginx.start_with(f"server {{ listen 127.0.0.1:{nginx.port}; {passed} }}")
            self.addCleanup(nginx.stop)
            through = request(f"http://127.0.0.1:{nginx.port}/metrics", source=CLIENT).status
            itself = request(f"http://127.0.0.1:{broker.port}/metrics").status
            self.assertEqual({through, itself}, statuses)
