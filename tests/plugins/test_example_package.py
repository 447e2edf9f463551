"""Tests the example package for authors of plugins, installed as its users would install it.

Its plugins are found, checked and selected in a new virtual environment, by another process.  The
environment sees the packages of the one that runs the tests, so that nothing is downloaded.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any, ClassVar

from treq.testing import StubTreq
from twisted.internet.defer import Deferred, succeed
from twisted.trial.unittest import SynchronousTestCase

import rsscloud_broker
from rsscloud_broker.config import ConfigError, build
from rsscloud_broker.errors import InvalidPing, OutboundError, TooMany, Unavailable
from rsscloud_broker.events import PingReceived, TopicChanged
from rsscloud_broker.interfaces import (
    NotifierParts,
)
from rsscloud_broker.model import Callback, Content, Intent, Notification, Outcome, Ping
from rsscloud_broker.runtime.plugin_building import make_all
from rsscloud_broker.runtime.plugin_discovery import Makers
from rsscloud_broker.testing import FakeBroker, FakeOutbound, front_door_parts, reply, sink_parts
from rsscloud_broker.testing.clock import About, Clock
from tests.processes import BIN, new_directory

CHECKOUT = Path(__file__).parents[2]
EXAMPLE = CHECKOUT / "docs" / "examples" / "rsscloud-broker-example"
NAMES = ("hello_ping", "json_post", "line_log", "notices")

#: Does what the broker does when it starts: reads tables from stdin, prints which plugins run.
START = """
import json, sys
from rsscloud_broker.config import loads
from rsscloud_broker.runtime.plugin_discovery import KINDS, discover, select

config, makers = loads(sys.stdin.read(), "broker.toml"), discover()
chosen = {
    kind: {
        maker.name: repr(options)
        for maker, options in select(
            makers.of_kind(kind), getattr(config, kind), kind, "broker.toml"
        )
    }
    for kind in KINDS
}
found = {kind: sorted(makers.of_kind(kind)) for kind in KINDS}
files = sorted({sys.modules[type(m).__module__].__file__ for m in makers.sinks.values()})
print(json.dumps({"found": found, "chosen": chosen, "files": files}))
"""


def run(*command: str | Path, text: str = "", drop_in: Path | None = None) -> tuple[int, str, str]:
    """Run a process to its end; return its exit status, output and errors."""
    environment = {**os.environ, "PYTHONPATH": str(drop_in or ""), "PYTHONNOUSERSITE": "1"}
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, env=environment, check=False
    )
    return done.returncode, done.stdout, done.stderr


@cache
def environment() -> tuple[Path, Path]:
    """A new environment with the example installed: its Python and its site-packages.

    It is created once, in the directory that trial empties before each run.
    """
    home = Path("example-environment").absolute()
    venv.create(home, clear=True)
    python = home / "bin" / "python"
    base = {"base": str(home)}
    site_packages = Path(sysconfig.get_path("purelib", scheme="venv", vars=base))
    beside = [str(Path(rsscloud_broker.__file__).parents[1]), *filter(os.path.isabs, sys.path)]
    (site_packages / "beside.pth").write_text("".join(f"{path}\n" for path in beside))
    # A copy, since the build leaves files beside the source.
    source = home / "source"
    leftovers = shutil.ignore_patterns("build", "*.egg-info", "__pycache__", "dropin.cache")
    shutil.copytree(EXAMPLE, source, ignore=leftovers)
    options = ("--no-index", "--no-build-isolation", "--no-deps", "--no-cache-dir")
    status, out, err = run(python, "-m", "pip", "install", *options, source)
    if status:
        raise AssertionError(f"pip failed:\n{out}\n{err}")
    return python, site_packages


class InstalledTests(SynchronousTestCase):
    """The example in a new environment."""

    def setUp(self) -> None:
        self.python, self.site_packages = environment()

    def start(self, text: str = "") -> dict[str, Any]:
        status, out, err = run(self.python, "-c", START, text=text)
        self.assertEqual(status, 0, err)
        started: dict[str, Any] = json.loads(out)
        return started

    def drop(self, text: str) -> Path:
        """A directory with another drop-in module, of another package."""
        home = Path(self.mktemp()).absolute()
        file = home / "rsscloud_broker" / "plugins" / "broken_example.py"
        file.parent.mkdir(parents=True)
        file.write_text(dedent(text))
        return home

    def chosen(self, started: dict[str, Any]) -> dict[str, str]:
        """The example's plugins that run, and their options."""
        return {
            name: options
            for kind in started["chosen"].values()
            for name, options in kind.items()
            if name in NAMES
        }

    def test_adds_only_its_own_module(self) -> None:
        added = self.site_packages / "rsscloud_broker"
        sources = {str(path.relative_to(added)) for path in added.rglob("*.py")}
        self.assertEqual(sources, {"plugins/rsscloud_broker_example.py"})

    def test_enabled(self) -> None:
        tables = """
            [front_doors.hello_ping]
            path = "/hello"
            [notifiers.json_post]
            [sinks.line_log]
            enabled = true
            path = "events.log"
            [apps.notices]
            enabled = true
        """
        self.assertEqual(
            self.chosen(self.start(tables)),
            {
                "hello_ping": "HelloPingOptions(path='/hello', repeat_window=60.0)",
                "json_post": "JsonPostOptions(member='topic', drop_after_failures=3, "
                "retries=(5.0, 60.0, 600.0))",
                "line_log": "LineLogOptions(path='events.log')",
                "notices": "NoticesOptions(shown=10)",
            },
        )

    def test_packages_are_named(self) -> None:
        """Plugins are named by their distribution and version, or else by their module."""
        drop_in = self.drop(
            "from rsscloud_broker.plugins.bundled import SinkMaker, ArchiveSink, ArchiveOptions\n"
            "other = SinkMaker('other', 'a second\\narchive', ArchiveOptions, ArchiveSink)\n"
        )
        command = "from rsscloud_broker.commands import main; main()"
        file = Path(self.mktemp())
        file.write_text("[sinks.line_log]\npath = 'events.log'\n")
        status, out, err = run(
            *(self.python, "-c", command, "plugins", "--config", file), drop_in=drop_in
        )
        self.assertEqual((status, err), (0, ""))
        example = "rsscloud-broker-example 1.0"
        self.assertRegex(out, f"sinks +line_log +yes +{example} +Writes a line to a file for every")
        self.assertRegex(out, f"notifiers +json_post +no +{example} +Calls subscribers back by a")
        module = "rsscloud_broker.plugins.broken_example"
        self.assertRegex(
            out, f"sinks +other +no +{module} .*broken_example.py\\) +a second archive"
        )


# --- what the example's plugins do -------------------------------------------


def made(kind: str, maker: Any, table: Mapping[str, object], parts: object) -> Any:
    """What a maker makes when it is given what it needs, as the broker gives it."""
    (part,) = make_all(Makers(), kind, [(maker, build(maker.options, table, ""))], parts)
    return part


class ExampleTestCase(SynchronousTestCase):
    module: ClassVar[str]

    def setUp(self) -> None:
        sys.path.append(str(EXAMPLE))
        self.addCleanup(sys.path.remove, str(EXAMPLE))
        # The type checker does not know the example package.
        self.example: Any = importlib.import_module(f"rsscloud_broker_example.{self.module}")


class LineLogTests(ExampleTestCase):
    module = "line_log"

    def setUp(self) -> None:
        super().setUp()
        self.path = Path(self.mktemp())
        maker = self.example.LineLogMaker()
        self.sink = made("sinks", maker, {"path": str(self.path)}, sink_parts())

    def test_lines(self) -> None:
        ping = Ping("A site\nof mine", "http://example.org/", 5.0)
        for event in (PingReceived(ping), TopicChanged("http://example.org/rss", 7.0)):
            self.successResultOf(self.sink.handle(event))
        first, second = map(json.loads, self.path.read_text().splitlines())
        self.assertEqual(first["event"], "PingReceived")
        self.assertEqual(first["ping"]["name"], "A site\nof mine")
        self.assertEqual(
            second, {"event": "TopicChanged", "topic": "http://example.org/rss", "at": 7.0}
        )


class JsonPostTests(ExampleTestCase):
    module = "json_post"
    callback = Callback("http://198.51.100.7/notify", "json-post")
    topic = "http://example.org/rss"

    def make(self, outbound: FakeOutbound, **table: object) -> Any:
        maker = self.example.JsonPostMaker()
        return made("notifiers", maker, table, NotifierParts(outbound))

    def notify(self, outbound: FakeOutbound, **table: object) -> Outcome:
        notification = Notification(self.topic, self.callback)
        call = self.make(outbound, **table).notify(notification)
        outcome: Outcome = self.successResultOf(call)
        return outcome

    def verify(self, outbound: FakeOutbound, challenge: bool) -> Outcome:
        call = self.make(outbound).verify(Intent(self.topic, self.callback, 90, challenge))
        outcome: Outcome = self.successResultOf(call)
        return outcome

    def test_notify(self) -> None:
        outbound = FakeOutbound()
        self.assertEqual(self.notify(outbound, member="changed"), Outcome(True))
        (request,) = outbound.requests
        self.assertEqual(
            (request.method, request.url, request.redirects), ("POST", self.callback.url, 0)
        )
        self.assertEqual(json.loads(request.body), {"changed": self.topic})

    def test_failures(self) -> None:
        self.assertEqual(
            self.notify(FakeOutbound(otherwise=reply(404))),
            Outcome(False, "the callback answered with status 404"),
        )
        self.assertEqual(
            self.notify(FakeOutbound(otherwise=OutboundError("nobody is there"))),
            Outcome(False, "nobody is there", answered=False),
        )

    def test_verify(self) -> None:
        self.assertEqual(self.verify(FakeOutbound(), challenge=False), Outcome(True))

    def test_challenge(self) -> None:
        outbound = FakeOutbound(otherwise=lambda request: reply(200, request.body))
        self.assertEqual(self.verify(outbound, challenge=True), Outcome(True))
        self.assertEqual(set(json.loads(outbound.requests[0].body)), {"topic", "challenge"})
        self.assertEqual(
            self.verify(FakeOutbound(), challenge=True),
            Outcome(False, "the answer to the challenge does not contain it"),
        )


class HelloPingTests(ExampleTestCase):
    module = "hello_ping"

    def setUp(self) -> None:
        super().setUp()
        self.broker = FakeBroker()
        maker = self.example.HelloPingMaker()
        clock = Clock(12.0)
        parts = front_door_parts(broker=self.broker, clock=clock)
        self.door = made("front_doors", maker, {"repeat_window": 5}, parts)
        (self.route,) = self.door.routes()

    def get(self, query: str) -> tuple[int, str]:
        client: Any = StubTreq(self.route.resource)
        response = self.successResultOf(client.get(f"http://broker.example/hello-ping{query}"))
        return response.code, self.successResultOf(response.text())

    def test_ping(self) -> None:
        status, text = self.get("?url=http%3A%2F%2Fexample.org%2F")
        self.assertEqual((status, text), (200, "Hello, and thanks for the ping.\n"))
        ping = Ping("http://example.org/", "http://example.org/", About(12.0))
        self.assertEqual(self.broker.pings, [(ping, 5.0)])
        self.assertEqual(self.broker.sources, ["127.0.0.1"])

    def test_no_web_address(self) -> None:
        for query in ("", "?url=", "?url=javascript:x", "?url=http://a%20b", "?url=http://%FF"):
            self.assertEqual(self.get(query)[0], 400, query)
        self.assertEqual(self.get(f"?url=http://{'x' * 250}")[0], 400)
        self.assertEqual(self.broker.pings, [])

    def test_failures(self) -> None:
        for failure, status, said in (
            (TooMany("more than 5 came", 7), 429, "more than 5 came; try again in 7 seconds"),
            (InvalidPing("the URL names no host"), 400, "not accepted: the URL names no host.\n"),
            (Unavailable("the disk is full"), 503, ""),
            (ZeroDivisionError(), 500, ""),
        ):
            self.broker.failures["ping"] = failure
            answer = self.get("?url=http://example.org/")
            self.assertEqual(answer[0], status)
            self.assertIn(said, answer[1])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_path(self) -> None:
        options = self.example.HelloPingMaker.options
        self.assertRaises(ConfigError, build, options, {"path": "hello"}, "")


# --- what the manual prints ------------------------------------------------------


class ManualTests(SynchronousTestCase):
    """The examples in the manual's page on plugins run as printed."""

    page = (CHECKOUT / "docs" / "plugins.rst").read_text(encoding="utf-8")

    def test_modules_are_printed_whole(self) -> None:
        """The page shows their imports too: no option such as ``:pyobject:`` leaves them out."""
        included = re.findall(
            r"(?m)^\.\. literalinclude:: examples/(\S+\.py)\n((?: +:.*\n)*)", self.page
        )
        modules = {path for path, _ in included}
        printed = {str(path.relative_to(EXAMPLE.parent)) for path in EXAMPLE.rglob("[!_]*.py")}
        self.assertEqual(modules, printed - {f"{EXAMPLE.name}/setup.py"})
        for path, options in included:
            self.assertEqual(re.findall(":([a-z-]+):", options), ["caption"], path)

    def test_tests_of_a_plugin(self) -> None:
        (printed,) = re.findall(
            r"(?m)^\.\. code-block:: python\n +:caption: (\S+)\n\n((?: {4}.*\n|\n)+)", self.page
        )
        directory = new_directory(self)
        (directory / printed[0]).write_text(dedent(printed[1]), encoding="utf-8")
        environment = os.environ | {"PYTHONPATH": str(EXAMPLE)}
        command = [str(BIN / "trial"), f"./{printed[0]}"]
        self.assertIn(f"``trial {command[1]}``", self.page)
        ran = subprocess.run(
            command, cwd=directory, env=environment, capture_output=True, text=True, check=False
        )
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        contracts = re.findall(r"(?m)^  (\w+Contract)$", ran.stdout)
        self.assertEqual(
            contracts,
            ["HelloPingContract", "JsonPostContract", "LineLogContract", "NoticesContract"],
        )


class NoticesTests(ExampleTestCase):
    module = "notices"

    def setUp(self) -> None:
        super().setUp()
        self.stored: list[str] = []
        self.published: list[tuple[bytes, Deferred[None]]] = []
        self.caller = SimpleNamespace(session=None, scopes={"publish"})
        parts = SimpleNamespace(
            public_url="http://broker.example",
            callers=SimpleNamespace(caller=lambda _: succeed(self.caller)),
            database=SimpleNamespace(read=lambda _: succeed(self.stored[::-1])),
            publisher=SimpleNamespace(publish=self.publish),
        )
        self.patch(self.example, "client_address", lambda _: "")
        self.patch(self.example, "parameter", lambda request, _: request)
        self.board = self.example.Notices(self.example.NoticesOptions(), parts)

    def publish(self, url: str, content: Content, store: object, source: str) -> Deferred[None]:
        self.published.append((content.body, Deferred()))
        return self.published[-1][1]

    def test_a_token_for_something_else(self) -> None:
        self.caller.scopes = {"metrics"}
        answer = self.successResultOf(Deferred.fromCoroutine(self.board.add("one")))
        self.assertEqual((answer.status, self.published), (403, []))

    def test_two_at_the_same_moment(self) -> None:
        """The content that is published with the second one has the first one, too."""
        answers = [Deferred.fromCoroutine(self.board.add(text)) for text in ("one", "two")]
        for number, text in enumerate(("one", "two")):
            self.stored.append(text)
            self.published[number][1].callback(None)
        self.assertEqual([body for body, _ in self.published], [b"one\n", b"two\none\n"])
        for answer in answers:
            self.assertEqual(self.successResultOf(answer).status, 200)
