"""A broker behind a proxy that speaks https: as publishers, subscribers and crawlers see it."""

from __future__ import annotations

import gzip
import socket
import ssl
from collections.abc import Callable, Mapping
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any
from urllib.parse import urlencode
from xmlrpc.client import ServerProxy

from tests.e2e.fixture import Answer, Broker, EndToEndTestCase, request, until
from tests.e2e.installed import (
    ActivatedBroker,
    certified,
    has_ipv6,
    manual,
    nginx_recipe,
    replaced,
)
from tests.e2e.nginx import ApacheProcess, CaddyProcess, NginxProcess, ProxyProcess
from tests.e2e.servers import HttpPostReceiver, Origin, Receiver

PUBLIC_URL = 'public_url = "https://broker.example"'

#: The topics and the callbacks of these tests are on this machine.
EGRESS = '[egress]\nallow_topics = ["127.0.0.0/8"]\nallow_callbacks = ["127.0.0.0/8"]\n'

#: A client of this machine that is not at 127.0.0.1, from where nginx calls the broker.
CLIENT = "127.0.0.5"

FORM = {"content-type": "application/x-www-form-urlencoded"}


#: Headers that are the server's own, or only of use with a page.
OF_THE_SERVER = {
    *("server", "date", "etag", "last-modified", "accept-ranges", "connection", "keep-alive"),
    *("alt-svc", "via", "transfer-encoding", "content-security-policy", "referrer-policy"),
}


def _nginx_place(port: int) -> Mapping[str, str]:
    return {
        "listen 443 ssl;": f"listen 127.0.0.1:{port} ssl;",
        "listen [::]:443 ssl;": f"listen [::1]:{port} ssl;" if has_ipv6() else "",
    }


def _caddy_place(port: int) -> Mapping[str, str]:
    files = "tls /etc/ssl/broker.example.pem /etc/ssl/broker.example.key"
    sites = f"https://localhost:{port}, https://127.0.0.1:{port}"
    return {"broker.example {": f"{sites} {{\nbind 127.0.0.1\n{files}"}


def _apache_place(port: int) -> Mapping[str, str]:
    return {"*:443": f"127.0.0.1:{port}"}


class BehindNginxTestCase(EndToEndTestCase):
    def proxied(
        self,
        broker: Broker,
        recipe: str,
        make: Callable[[Path], ProxyProcess] = NginxProcess,
        place: Callable[[int], Mapping[str, str]] = _nginx_place,
    ) -> None:
        """Start a broker, and a proxy in front of it.

        :param recipe: the manual's, for what is particular to the broker.
        :param place: what to replace in the recipe, so that the proxy listens at a port.
        """
        self.broker = self.owned(broker)
        directory = self.directory()
        self.certificate, key = certified(directory, "broker.example", "localhost", "127.0.0.1")
        proxy = make(directory / "proxy")
        files = {
            "/etc/ssl/broker.example.pem": str(self.certificate),
            "/etc/ssl/broker.example.key": str(key),
            "/var/lib/rsscloud-broker/public": str(broker.data / "public"),
        }
        servers = replaced(recipe, place(proxy.port))
        for name, mine in files.items():
            servers = servers.replace(name, mine)
        broker.start()
        proxy.start_with(servers)
        self.addCleanup(proxy.stop)
        self.url = f"https://localhost:{proxy.port}"

    def ask(
        self,
        path: str,
        fields: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
        method: str = "GET",
    ) -> Answer:
        """Get what is at a path, or post fields to it, as a client at ``CLIENT``."""
        body = None if fields is None else urlencode(fields).encode()
        return request(
            self.url.replace("localhost", "127.0.0.1") + path,
            method if body is None else "POST",
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


class RecipeTestCase(BehindNginxTestCase):
    """A recipe of the manual to the letter: the broker listens at a UNIX socket of systemd's."""

    def behind(
        self,
        language: str,
        make: Callable[[Path], ProxyProcess],
        place: Callable[[int], Mapping[str, str]],
    ) -> None:
        self.assertIn(f"``{PUBLIC_URL}``", manual())
        self.assertIn("``ListenStream=/run/rsscloud-broker.sock``", manual())
        short = Path(mkdtemp())  # names of sockets are
        self.addCleanup(rmtree, short)
        short.chmod(0o755)  # Apache does not run as root
        self.place = short / "broker.sock"
        recipe = replaced(nginx_recipe(language), {"/run/rsscloud-broker.sock": str(self.place)})
        broker = ActivatedBroker(self.directory(), f"{PUBLIC_URL}\n{EGRESS}", self.place)
        self.proxied(broker, recipe, make, place)
        self.place.chmod(0o666)

    def at_the_broker(self, method: str, path: str, headers: Mapping[str, str]) -> Answer:
        """Ask the broker itself, without the proxy."""
        connection = HTTPConnection("broker.example")
        with closing(connection):
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.connect(str(self.place))
            connection.request(method, path, headers=dict(headers))
            response = connection.getresponse()
            lower = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, lower, response.read())

    def check(self) -> None:
        """A subscriber is called back, and the answers for change lists have the broker's headers,
        whoever serves the file.
        """
        self.assert_subscriber_is_told(self.origin())
        archive = self.broker.data / "public" / "2001" / "02" / "03" / "04.xml"
        archive.parent.mkdir(parents=True)
        archive.write_text("<weblogUpdates/>")
        archive.with_suffix(".xml.gz").write_bytes(gzip.compress(archive.read_bytes()))
        lists = ("/changes.xml", "/shortChanges.xml")
        until(lambda: all(self.ask(path).status == 200 for path in lists), "the change lists")
        origin = {"origin": "https://elsewhere.example"}
        for path in (*lists, "/2001/02/03/04.xml"):
            version = self.at_the_broker("GET", path, origin).headers["last-modified"]
            for method, headers in (
                ("GET", {}),
                ("GET", {"accept-encoding": "gzip"}),
                ("HEAD", {}),
                ("OPTIONS", {"access-control-request-method": "GET"}),
                ("GET", {"if-modified-since": version}),
            ):
                there = self.at_the_broker(method, path, headers | origin)
                here = self.ask(path, headers=headers | origin, method=method)
                self.assertEqual(here.status, there.status)
                wanted, got = (
                    {name: value for name, value in each.headers.items() if name in kept}
                    for each in (there, here)
                    for kept in [(there.headers.keys() | here.headers.keys()) - OF_THE_SERVER]
                )
                self.assertEqual(got, wanted, (method, path, headers))


class OtherProxyTests(RecipeTestCase):
    def test_caddy(self) -> None:
        self.behind("caddy", CaddyProcess, _caddy_place)
        self.check()

    def test_apache(self) -> None:
        self.behind("apache", ApacheProcess, _apache_place)
        self.check()


class RecipeTests(RecipeTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.behind("nginx", NginxProcess, _nginx_place)

    def test_subscribers_and_change_lists(self) -> None:
        self.check()

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
