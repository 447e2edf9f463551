import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from click.testing import CliRunner, Result
from treq.client import HTTPClient
from twisted.internet import reactor
from twisted.internet.defer import Deferred, DeferredQueue
from twisted.internet.error import ProcessDone, ProcessTerminated
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase, TestCase
from twisted.web.client import Agent
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request, Site

from rsscloud_broker import __version__, storage
from rsscloud_broker.cli import main
from rsscloud_broker.client.listener import MAX_BODY_BYTES
from rsscloud_broker.client.web import ClientError, Reply, Web
from rsscloud_broker.wire import soap, xmlrpc
from rsscloud_broker.wire.cloud import Cloud, encode, from_url
from tests.client.recording import Answer, Server, fields_of
from tests.processes import BIN

# A reactor is a module; what it provides is known only at run time.
running: Any = reactor

OLD = {
    "version": 2,
    "feeds": {
        "http://example.org/rss.xml": {
            "resource": {},
            "subscriptions": [
                {
                    "url": "http://reader.example:8080/notify",
                    "protocol": "http-post",
                    "ctUpdates": 3,
                    "ctErrors": 0,
                    "ctConsecutiveErrors": 0,
                    "whenCreated": "2025-01-01T00:00:00.000Z",
                    "whenLastUpdate": "2025-01-01T00:00:00.000Z",
                    "whenLastError": "1970-01-01T00:00:00.000Z",
                    "whenExpires": "2999-01-01T00:00:00.000Z",
                }
            ],
        }
    },
}


class CommandTests(SynchronousTestCase):
    """Commands that need no reactor."""

    def setUp(self) -> None:
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        self.data = str(self.directory / "data")

    def run_command(self, *arguments: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(main, arguments, input=stdin)

    def output_of(self, *arguments: str, stdin: str | None = None) -> str:
        result = self.run_command(*arguments, stdin=stdin)
        self.assertEqual((result.exit_code, result.stderr), (0, ""))
        return result.stdout

    def complaint_of(self, *arguments: str, stdin: str | None = None) -> str:
        result = self.run_command(*arguments, stdin=stdin)
        self.assertEqual((result.exit_code, result.stdout), (1, ""))
        self.assertTrue(result.stderr.startswith("Error: "), result.stderr)
        return result.stderr

    def written(self, name: str, content: str) -> str:
        path = self.directory / name
        path.write_text(content)
        return str(path)


class GroupTests(CommandTests):
    def test_version(self) -> None:
        self.assertIn(__version__, self.output_of("--version"))

    def test_every_command_explains_itself(self) -> None:
        for command in ("check-config", "ping", "listen", "export", "import", "sweep"):
            with self.subTest(command):
                self.assertIn("Usage:", self.output_of(command, "--help"))

    def test_wrong_usage(self) -> None:
        for arguments in (
            ["nonsense"],
            ["ping"],
            ["ping", "http://example.org/rss.xml", "--name", "n", "--url", "http://example.org/"],
            ["ping", "--name", "n"],
            ["ping", "--url", "http://example.org/"],
            ["ping", "http://example.org/rss.xml", "--rss", "http://example.org/rss.xml"],
            ["ping", "http://example.org/rss.xml", "--protocol", "smoke"],
            ["listen"],
            ["listen", "http://example.org/rss.xml", "--port", "70000"],
            ["listen", "http://example.org/rss.xml", "--protocol", "rest"],
            ["resourcesync", "notify", __file__, "--topic", "http://example.org/"],
            ["resourcesync", "notify", "--topic", "http://a/", "--hub", "http://b/"],
            ["import"],
            ["import", str(self.directory / "no-such-file")],
        ):
            with self.subTest(arguments):
                result = self.run_command(*arguments)
                self.assertEqual((result.exit_code, result.stdout), (2, ""))
                self.assertIn("Usage:", result.stderr)


class CheckConfigTests(CommandTests):
    def test_defaults(self) -> None:
        output = self.output_of("check-config")
        self.assertIn("listen       tcp:5337\n", output)
        for kind in ("front_doors", "notifiers", "sinks"):
            self.assertIn(f"\n{kind} ", output)

    def test_a_password_is_not_shown(self) -> None:
        file = self.written("c.toml", 'database = "sqlite://me:sesame@db.example/broker"\n')
        output = self.output_of("check-config", "--config", file)
        self.assertIn("db.example", output)
        self.assertNotIn("sesame", output)

    def test_errors(self) -> None:
        for content, reason in (
            ("listen = 5337\n", "listen"),
            ("lisen = []\n", "listen"),
            ("listen = ['foo:1']\n", "foo:1"),
            ("listen = ['tcp:99999']\n", "65535"),
            ("listen = ['ssl:443:privateKey=/no/such.pem']\n", "/no/such.pem"),
            ("database = 'mssql+pymssql://h/x'\n", "pymssql"),
            ("[sinks.no_such_sink]\n", "no_such_sink"),
            ("= =\n", "TOML"),
        ):
            with self.subTest(content):
                file = self.written("c.toml", content)
                complaint = self.complaint_of("check-config", "--config", file)
                self.assertIn(file, complaint)
                self.assertIn(reason, complaint)

    def test_every_fault_is_told(self) -> None:
        file = self.written(
            "c.toml",
            "lisen = []\n[sinks.no_such_sink]\n[sinks.archive]\nunit = 1\nkeep_hours = 0\n"
            "[front_doors.front_pge]\n[http]\nbody_limit = 0\n",
        )
        complaint = self.complaint_of("check-config", "--config", file)
        for key in ("lisen", "no_such_sink", "archive] unit", "keep_hours", "front_pge", "body_l"):
            self.assertIn(key, complaint)
        self.assertEqual(complaint.count(f"{file}: "), 6)

    def test_a_socket_of_systemd(self) -> None:
        """It is there only when systemd starts the broker."""
        file = self.written("c.toml", "listen = ['systemd:domain=INET6:index=0']\n")
        self.assertIn("systemd:", self.output_of("check-config", "--config", file))

    def test_a_missing_file(self) -> None:
        complaint = self.complaint_of("check-config", "--config", self.data)
        self.assertIn(self.data, complaint)


class DatabaseTests(CommandTests):
    """export, import and sweep"""

    def test_there_and_back(self) -> None:
        old = self.written("data.json", json.dumps(OLD))
        output = self.output_of("import", "--data", self.data, old)
        self.assertIn("topics: 1, subscriptions: 1", output)

        exported = self.output_of("export", "--data", self.data)
        (topic,) = json.loads(exported)["topics"]
        self.assertEqual(topic["url"], "http://example.org/rss.xml")
        (subscription,) = topic["subscriptions"]
        self.assertEqual(subscription["callback"], "http://reader.example:8080/notify")

        other = str(self.directory / "other")
        self.output_of("import", "--data", other, "-", stdin=exported)
        (again,) = json.loads(self.output_of("export", "--data", other))["topics"]
        self.assertEqual(again, topic)

    def test_what_became_of_a_document_is_said(self) -> None:
        taken = OLD["feeds"]["http://example.org/rss.xml"]["subscriptions"][0]  # type: ignore[index] # it is there
        different: tuple[dict[str, object], ...] = (
            {"url": "http://reader.example/1", "ctConsecutiveErrors": 3},
            {"url": "http://reader.example/2", "protocol": "websub"},
            {"url": "http://reader.example/3", "whenExpires": "2001-01-01T00:00:00Z"},
            {"url": "http://reader.example/4", "protocol": "pigeon\x1b"},
        )
        some = [taken, *(taken | one for one in different)]
        feeds = {"http://example.org/rss.xml": {"resource": None, "subscriptions": some}}
        file = self.written("d.json", json.dumps({"version": 2, "feeds": feeds}))
        configuration = self.written("c.toml", "listen = ['tcp:8181']\n")
        options = ("--config", configuration, "--data", self.data)
        expected = [
            "topics: 1, subscriptions: 3",
            "of these, marked since their callbacks failed too often in a row, to be dropped at "
            "the top of the hour: 1",
            "of these, by WebSub from another hub: 1; their deliveries name "
            "http://localhost:8181/websub",
            "left out because they had expired: 1",
            "left out because no notifier here speaks pigeon: 1",
        ]
        said = self.output_of("import", *options, file).splitlines()
        self.assertEqual(
            [line[: len(start)] for line, start in zip(said, expected, strict=True)], expected
        )
        again = self.output_of("import", *options, file).splitlines()
        self.assertEqual(again[1], "of these, in the place of one that was here: 3")

    def test_protocol_whose_notifier_does_not_run(self) -> None:
        file = self.written("c.toml", "[notifiers.http_post]\nenabled = false\n")
        old = self.written("d.json", json.dumps(OLD))
        said = self.output_of("import", "--config", file, "--data", self.data, old)
        self.assertIn("left out because no notifier here speaks http-post: 1", said)

    def test_export_to_a_file(self) -> None:
        self.output_of("import", "--data", self.data, self.written("d.json", json.dumps(OLD)))
        file = self.directory / "export.json"
        self.assertEqual(self.output_of("export", "--data", self.data, str(file)), "")
        self.assertEqual(file.stat().st_mode & 0o777, 0o600, "there are secrets in it")
        self.assertEqual(len(json.loads(file.read_text())["topics"]), 1)

    def test_the_database_of_a_configuration(self) -> None:
        database = self.directory / "elsewhere.sqlite"
        file = self.written("c.toml", f'database = "sqlite:///{database}"\n')
        old = self.written("d.json", json.dumps(OLD))
        self.output_of("import", "--config", file, old)
        self.assertTrue(database.exists())
        self.assertEqual(len(json.loads(self.output_of("export", "--config", file))["topics"]), 1)

    def test_sweep(self) -> None:
        self.output_of("import", "--data", self.data, self.written("d.json", json.dumps(OLD)))
        self.assertIn("0 expired, 0 marked", self.output_of("sweep", "--data", self.data))
        database = sqlite3.connect(Path(self.data, "broker.sqlite"))
        self.addCleanup(database.close)
        with database:
            database.execute("UPDATE subscription SET expires_at = ?", (int(time.time() * 1e6),))
        self.assertIn("1 expired, 0 marked", self.output_of("sweep", "--data", self.data))
        with storage.open_database(f"sqlite:///{self.data}/broker.sqlite") as connection:
            (count,) = connection.exec_driver_sql("SELECT count(*) FROM subscription").one()
        self.assertEqual(count, 0)

    def test_no_database_is_made_by_mistake(self) -> None:
        for command in ("export", "sweep"):
            with self.subTest(command):
                complaint = self.complaint_of(command, "--data", self.data)
                self.assertIn("broker.sqlite does not exist", complaint)
        self.assertFalse(Path(self.data).exists())

    def test_what_cannot_be_imported(self) -> None:
        for content, reason in (
            ("", "is not JSON"),
            ("[" * 100_000, "is not JSON"),
            ("[]", "must"),
            ('{"version": 99}', "version"),
            (json.dumps(OLD).replace("http-post", ""), "protocol"),
        ):
            with self.subTest(content[:30]):
                file = self.written("d.json", content)
                self.assertIn(reason, self.complaint_of("import", "--data", self.data, file))

    def test_a_reader_that_has_had_enough(self) -> None:
        """As ``head``."""
        old = self.written("data.json", json.dumps(OLD))
        self.output_of("import", "--data", self.data, old)
        reading, writing = os.pipe()
        os.close(reading)
        command = [str(BIN / "rsscloud-broker"), "export", "--data", self.data]
        ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
        os.close(writing)
        self.assertEqual((ended.returncode, ended.stderr), (0, b""))


class Command(ProcessProtocol):
    """A command that runs: the lines it printed, and how it ended."""

    def __init__(self) -> None:
        self.lines: DeferredQueue[str] = DeferredQueue()
        self.errors = b""
        self.ended: Deferred[int] = Deferred()
        self._rest = b""
        self._waiting: list[Deferred[None]] = []

    def outReceived(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self.lines.put(line.decode())

    def errReceived(self, data: bytes) -> None:
        self.errors += data
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.callback(None)

    def heard_error(self) -> Deferred[None]:
        """Fires when more has come on stderr."""
        self._waiting.append(Deferred())
        return self._waiting[-1]

    def processEnded(self, reason: Failure) -> None:
        error = reason.value
        assert isinstance(error, ProcessDone | ProcessTerminated)
        self.ended.callback(-1 if error.exitCode is None else error.exitCode)


class ProcessTests(TestCase):
    """Commands that need a reactor: in a process of their own, over real sockets."""

    timeout = 60

    def start(self, *arguments: str) -> Command:
        command = Command()
        code = "from rsscloud_broker.cli import main; main(prog_name='rsscloud-broker')"
        running.spawnProcess(
            command, sys.executable, [sys.executable, "-c", code, *arguments], env=os.environ
        )
        self.addCleanup(self.kill, command)
        return command

    async def kill(self, command: Command) -> None:
        if not command.ended.called:
            assert command.transport is not None
            command.transport.signalProcess("KILL")
            await command.ended

    def interrupt(self, command: Command) -> None:
        assert command.transport is not None
        command.transport.signalProcess("INT")

    def serve(self, resource: Resource) -> str:
        port = running.listenTCP(0, Site(resource), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        return f"http://127.0.0.1:{port.getHost().port}"


class SmallCloud(Resource):
    """A cloud with one feed, and the feed itself: at any path, by GET and POST.

    It tests the callback, as clouds do, before it accepts a registration.
    """

    isLeaf = True

    def __init__(self) -> None:
        super().__init__()
        self.cloud = Cloud("127.0.0.1", 0, "/", "", "http-post")
        self.registered: dict[str, str] = {}
        self.replies: list[Reply] = []
        self._web = Web(HTTPClient(Agent(running)), running)

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
        """Call the subscriber, by the protocol that it asked for."""
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
        self.assertEqual(await command.ended, 1)
        self.assertEqual(command.errors, b"Error: No[2J thanks.\n")

    async def test_nobody_there(self) -> None:
        port = running.listenTCP(0, Site(Resource()), interface="127.0.0.1")
        closed = port.getHost().port
        await port.stopListening()
        command = self.start("ping", "http://a.example/", "--broker", f"http://127.0.0.1:{closed}")
        self.assertEqual(await command.ended, 1)
        self.assertIn(b"Error: http://127.0.0.1:", command.errors)
        self.assertEqual(command.errors.count(b"\n"), 1)


class ResourceSyncTests(ProcessTests):
    payload = Path(__file__).parent / "wire" / "fixtures" / "resourcesync" / "new_resource_list.xml"
    content = payload.read_bytes()

    async def test_a_notification(self) -> None:
        server = Server(Answer(b"The notification was taken in.\n", 202), Answer(b"No.\n", 403))
        hub = f"{self.serve(server)}/websub"
        arguments = ("resourcesync", "notify", str(self.payload), "--hub", hub)
        command = self.start(*arguments, "--topic", "http://example.com/dataset1/framework/")
        self.assertEqual(await command.lines.get(), "The notification was taken in.")
        self.assertEqual((await command.ended, command.errors), (0, b""))
        self.assertEqual(server.asked[0].body, self.content)
        refused = self.start(*arguments, "--topic", "http://other.example/")
        self.assertEqual(await refused.ended, 1)
        self.assertEqual(
            refused.errors, f"Error: {hub}: answered with HTTP status 403: No.\n".encode()
        )


class ListenTests(ProcessTests):
    async def test_from_the_feed_to_the_line(self) -> None:
        for protocol in ("http-post", "xml-rpc", "soap"):
            with self.subTest(protocol):
                cloud = SmallCloud()
                feed = f"{self.serve(cloud)}/rss.xml"
                cloud.cloud = from_url(feed)
                command = self.start("listen", feed, "--protocol", protocol)
                # What comes while the registration is made is the cloud's test.
                await self.told(command, b"It worked.")
                await cloud.notify()
                time_, _, topic = (await command.lines.get()).partition(" ")
                self.assertRegex(time_, r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
                self.assertEqual(topic, feed)
                self.assertEqual([reply.status for reply in cloud.replies], [200, 200])
                self.interrupt(command)
                self.assertEqual(await command.ended, 0)
                self.assertEqual(command.lines.pending, [])

    async def test_a_named_broker_is_asked_in_place_of_the_feed(self) -> None:
        cloud = SmallCloud()
        broker = self.serve(cloud)
        command = self.start("listen", "http://no-such.example/rss.xml", "--broker", broker)
        await self.told(command, b"It worked.")
        self.assertEqual(cloud.registered["url1"], "http://no-such.example/rss.xml")

    async def test_a_reader_that_goes_away_ends_it(self) -> None:
        cloud = SmallCloud()
        feed = f"{self.serve(cloud)}/rss.xml"
        cloud.cloud = from_url(feed)
        command = self.start("listen", feed)
        await self.told(command, b"It worked.")
        assert command.transport is not None
        command.transport.closeStdout()
        with contextlib.suppress(ClientError):  # it may be gone before it answers
            await cloud.notify()
        self.assertEqual(await command.ended, 0)
        self.assertNotIn(b"BrokenPipe", command.errors)

    async def test_a_registration_that_fails(self) -> None:
        refusal = b'<notifyResult success="false" msg="Not today."/>'
        broker = self.serve(Server(Answer(refusal)))
        command = self.start("listen", "http://example.org/rss.xml", "--broker", broker)
        self.assertEqual((await command.ended, command.errors), (1, b"Error: Not today.\n"))

    async def test_a_port_that_is_taken(self) -> None:
        port = self.serve(Resource()).rpartition(":")[2]
        command = self.start(
            "listen", "http://example.org/rss.xml", "--host", "127.0.0.1", "--port", port
        )
        self.assertEqual(await command.ended, 1)
        self.assertIn(f"127.0.0.1:{port}".encode(), command.errors)
        self.assertEqual(command.errors.count(b"\n"), 1)

    async def test_a_large_request_is_cut_short(self) -> None:
        broker = self.serve(cloud := SmallCloud())
        command = self.start("listen", "http://example.org/rss.xml", "--broker", broker)
        await self.told(command, b"It worked.")
        cloud.registered["url1"] += "x" * MAX_BODY_BYTES
        await cloud.notify()
        self.assertEqual([reply.status for reply in cloud.replies], [200, 413])

    async def test_a_feed_without_a_cloud(self) -> None:
        feed = f"{self.serve(Server(Answer(b'<rss><channel/></rss>')))}/rss.xml"
        command = self.start("listen", feed)
        self.assertEqual(await command.ended, 1)
        self.assertIn(b"names no cloud. A broker can be named with --broker.", command.errors)

    async def told(self, command: Command, sentence: bytes) -> None:
        """Wait until a command has said something on stderr."""
        while sentence not in command.errors:
            await command.heard_error()
