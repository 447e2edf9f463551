"""The files of ``tap/compose-cluster.yaml``: three brokers on one PostgreSQL, behind a real nginx.

The brokers run with the command and the configuration of the containers, and nginx with its own;
only names, ports and paths are replaced with those of the test.
"""

from __future__ import annotations

import http.client
import json
import re
from pathlib import Path
from typing import Any

import yaml

from tests import nursery
from tests.e2e.fixture import (
    TIMEOUT,
    Broker,
    EndToEndTestCase,
    post_form,
    run_here,
)
from tests.e2e.installed import containers_recipe, replaced
from tests.e2e.nginx import NginxProcess
from tests.e2e.servers import HttpPostReceiver
from tests.e2e.test_behind_nginx import EGRESS
from tests.postgresql import empty_database
from tests.test_deployment import TAP


def compose() -> Any:
    return yaml.safe_load((TAP / "compose-cluster.yaml").read_text(encoding="utf-8"))


class Contained(Broker):
    """A broker as the image runs it."""

    def __init__(self, directory: Path, url: str) -> None:
        text = (TAP / "compose" / "broker.toml").read_text(encoding="utf-8")
        super().__init__(directory, options=())
        configuration = replaced(
            text,
            {
                "postgresql+psycopg://broker@postgresql/broker": url,
                "tcp:5337": f"tcp:{self.port}:interface=127.0.0.1",
                "10.0.0.0/8": "127.0.0.1",
            },
        )
        self.configuration.write_text(f"{configuration}\n{EGRESS}", encoding="utf-8")

    def command(self, ahead: float) -> list[str]:
        assert not ahead
        (entry,) = re.findall("(?m)^ENTRYPOINT (.*)", (TAP / "Dockerfile").read_text("utf-8"))
        name, *first = [str(self.data) if each == "/data" else each for each in json.loads(entry)]
        paths = {"/etc/rsscloud-broker/broker.toml": str(self.configuration)}
        more = [paths.get(each, each) for each in compose()["services"]["broker-1"]["command"]]
        return nursery.command_line(name, *first, *more)


class ComposeTests(EndToEndTestCase):
    def setUp(self) -> None:
        super().setUp()
        url = empty_database()
        self.brokers = [self.owned(Contained(self.directory(), url)) for _ in range(3)]
        self.nginx = NginxProcess(self.directory() / "nginx")
        brokers = containers_recipe(*(f"127.0.0.1:{each.port}" for each in self.brokers))
        here = {"listen 80;": f"listen 127.0.0.1:{self.nginx.port};"}
        self.recipe = replaced(brokers, here)
        self.url = f"http://127.0.0.1:{self.nginx.port}"

    def start(self) -> None:
        for broker in self.brokers:
            checked = run_here("check-config", *broker.command(0.0)[4:])
            self.assertEqual((checked.returncode, checked.stderr), (0, ""))
            broker.start()
        self.nginx.start_with(self.recipe)
        self.addCleanup(self.nginx.stop)

    def ping(self, topic: str) -> str:
        return post_form(f"{self.url}/rsscloud/ping", {"url": topic}).text

    def first_event(self, topic: str) -> str:
        """The first entry that the stream of the event log has after a ping."""
        connection = http.client.HTTPConnection("127.0.0.1", self.nginx.port, timeout=TIMEOUT)
        self.addCleanup(connection.close)
        connection.request("GET", "/log/events")
        answer = connection.getresponse()
        self.assertEqual(answer.getheader("content-type"), "text/event-stream; charset=utf-8")
        self.ping(topic)
        return next(line for line in answer if line.startswith(b"data: ")).decode()

    def test_cluster(self) -> None:
        """One broker stops, the other one is killed, and no caller notices."""
        self.start()
        origin, receiver = self.origin(), self.served(HttpPostReceiver())
        topic = origin.feed()
        fields = receiver.registration(topic)
        answer = post_form(f"{self.url}/rsscloud/pleaseNotify", fields)
        self.assertIn('success="true"', answer.text)
        first, second, _ = self.brokers
        for change in (lambda: None, first.stop, first.start):
            change()
            receiver.heard.clear()
            origin.change(topic)
            for _ in range(4):
                self.assertIn('success="true"', self.ping(topic))
            self.assert_told(receiver, topic)
        second.kill()
        for _ in range(4):
            self.assertIn('success="true"', self.ping(topic))
        origin.change(topic)
        self.assertIn(topic, self.first_event(topic))
