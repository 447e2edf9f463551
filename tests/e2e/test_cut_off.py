"""One of two brokers is cut off from PostgreSQL in silence; nginx is set up as the manual says."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent

from tests.e2e.database_server import DatabaseServer
from tests.e2e.every_protocol import NAMED, PLAIN, assert_all_try_again, every_call
from tests.e2e.fixture import EndToEndTestCase, request, until
from tests.e2e.installed import containers_recipe, replaced
from tests.e2e.nginx import NginxProcess
from tests.e2e.servers import HttpPostReceiver
from tests.e2e.slow_proxy import SlowProxy
from tests.e2e.test_cluster import Node

MANUAL = Path(__file__).parents[2] / "docs" / "operating" / "postgresql.rst"


def settings_of_manual() -> str:
    """The configuration of nginx for several brokers."""
    text = MANUAL.read_text(encoding="utf-8").partition("\n.. _several-brokers:\n")[2]
    found = re.search(r"\.\. code-block:: nginx\n\n((?: .*\n|\n)+)", text)
    assert found is not None
    return dedent(found[1])


def directives(text: str) -> set[str]:
    """The directives of a configuration of nginx that are about several brokers."""
    return set(re.findall(r"(?:proxy_|server .+:|keepalive|location ~ .*hub).*", text))


class CutOffTests(EndToEndTestCase):
    def setUp(self) -> None:
        super().setUp()
        server = DatabaseServer.make(self)
        self.proxy = SlowProxy(server.port)
        port = self.proxy.start()
        self.addCleanup(self.proxy.stop)
        url = server.url("broker")
        self.cut = self.node(url.replace(str(server.port), str(port)))
        self.other = self.node(url)
        self.source, self.receiver = self.origin(), self.served(HttpPostReceiver())
        self.feed = self.source.feed()
        self.nginx = self.in_front()

    def node(self, url: str) -> Node:
        one = self.owned(Node(self.directory(), url))
        one.configuration.write_text(
            f"{one.configuration.read_text('utf-8')}\n[http]\ntrusted_proxies = ['127.0.0.1']\n"
            '[log]\naccess = "-"\n'
        )
        one.start()
        return one

    def in_front(self) -> NginxProcess:
        nginx = NginxProcess(self.directory() / "nginx")
        brokers = containers_recipe(*(f"127.0.0.1:{each.port}" for each in (self.cut, self.other)))
        recipe = replaced(brokers, {"listen 80;": f"listen 127.0.0.1:{nginx.port};"})
        nginx.start_with(recipe)
        self.addCleanup(nginx.stop)
        return nginx

    def is_ready(self) -> bool:
        return request(f"{self.cut.url}/health/ready").status == 200

    def cut_off(self) -> None:
        """Cut a broker off; before its heartbeat has failed, callers may wait."""
        self.proxy.stand_still()
        until(lambda: "heartbeat of this node is late" in self.cut.log, "the heartbeat to fail")

    def test_callers_of_a_broker_that_is_cut_off(self) -> None:
        """They are asked to try again at once, by every protocol; it goes on by itself."""
        self.cut_off()
        assert_all_try_again(self.cut.port, self.feed)
        health = request(f"{self.cut.url}/health/ready")
        self.assertEqual(health.status, 503)
        self.assertIn(
            "The database cannot be used right now: the server has not answered", health.text
        )
        self.proxy.go_on()
        until(self.is_ready, "the broker to go on")
        self.subscribed(self.cut, self.receiver, self.feed)
        self.source.change(self.feed)
        self.assertEqual(self.cut.ping(self.feed).status, 200)
        self.assert_told(self.receiver, self.feed)

    def test_who_waits_when_the_heartbeat_fails(self) -> None:
        """Anyone who asked before that does not wait for as long as an operation may take."""
        call = next(every_call(self.feed))
        self.proxy.stand_still()
        reply = call.ask(self.cut.port)
        self.assertTrue(reply.says_try_again, reply)

    def test_callers_of_nginx_notice_nothing(self) -> None:
        self.cut_off()
        for _ in range(3):
            for make in (*NAMED.values(), *PLAIN.values()):
                reply = make(self.feed, "a ping").ask(self.nginx.port)
                self.assertTrue(reply.accepted, reply)
        until(lambda: " 503 " in self.cut.log, "the broker to have been asked")

    def test_manual(self) -> None:
        """Its settings are those of the containers, which are tested here."""
        wanted = directives(containers_recipe("127.0.0.1:5337", "127.0.0.1:5338"))
        self.assertGreater(len(wanted), 12)
        self.assertEqual(directives(settings_of_manual()), wanted)
