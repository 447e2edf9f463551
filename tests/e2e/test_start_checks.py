"""What keeps a broker from starting is a sentence each, at the start and in check-config."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from pwd import getpwuid
from textwrap import dedent
from unittest import SkipTest

from sqlalchemy import create_engine, inspect, make_url

from rsscloud_broker import __version__
from rsscloud_broker.storage import clusters, migrate, open_database
from tests import nursery
from tests.e2e.fixture import (
    TIMEOUT,
    EndToEndTestCase,
    request,
    run,
    run_here,
    until,
)
from tests.postgresql import empty_database
from tests.processes import Process, free_port

#: A user who owns nothing.
NOBODY = 65534
_AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]


@cache
def listening_error_as_nobody() -> str:
    """Why commands cannot be run as another user here; empty if they can."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return "only root may run commands as somebody else, and with setpriv"
    probe = [*_AS_NOBODY, sys.executable, "-c", "import lxml.etree, rsscloud_broker, twisted"]
    if subprocess.run(probe, check=False, capture_output=True).returncode:
        return "another user may not read this environment"
    return ""


class StartTestCase(EndToEndTestCase):
    #: Whether the configuration says where to listen.
    listens_by_file = False

    def outputs(self, *options: object, prefix: list[str] | None = None) -> list[str]:
        """What the start says that fails, and what check-config says that fails.

        They listen at a free port, if neither the options nor a configuration say where.  A
        check needs a process of its own only for a prefix or an environment.
        """
        if "--listen" not in options and not self.listens_by_file:
            options = (*options, "--listen", f"tcp:{free_port()}:interface=127.0.0.1")
        start = nursery.command_line("twistd", "-n", "--pidfile=", "rsscloud-broker", *options)
        check = nursery.command_line("rsscloud-broker", "check-config", *options)
        prefix = prefix or []
        started = self.finished([*prefix, *start])
        if prefix or self.env:
            checked = self.finished([*prefix, *check])
        else:
            checked = run_here("check-config", *options)
        said = []
        for done in (started, checked):
            output = done.stdout + done.stderr
            self.assertEqual(done.returncode, 1, output)
            self.assertNotIn("Traceback", output)
            if "cannot listen" not in output:
                self.assertNotIn(" starting on ", output)  # nobody has connected in vain
            said.append(output)
        return said

    def finished(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a process that ends by itself."""
        env = os.environ | self.env
        return nursery.run(command, cwd=self.directory(), env=env, timeout=TIMEOUT)

    def setUp(self) -> None:
        super().setUp()
        self.env: dict[str, str] = {}

    def assert_both_say(self, sentence: str, *options: object, **more: list[str]) -> None:
        start, check = self.outputs("--local", *options, **more)
        self.assertIn(f"rsscloud-broker: {sentence}\n", start)
        self.assertIn(f"Error: {sentence}\n", check)


class ForeignUserTests(StartTestCase):
    """The broker runs as a user who may not do what it needs."""

    def setUp(self) -> None:
        super().setUp()
        if reason := listening_error_as_nobody():
            raise SkipTest(reason)

    def directory(self) -> Path:
        """One that others may enter, unlike that of trial."""
        path = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, path)
        path.chmod(0o755)
        return path

    def assert_nobody_is_told(self, sentence: str, *options: object) -> None:
        self.assert_both_say(sentence, *options, prefix=_AS_NOBODY)

    def test_data_of_somebody_else(self) -> None:
        data = self.directory()
        self.assert_nobody_is_told(
            f"{data} belongs to root (drwxr-xr-x), and the broker runs as nobody: "
            f"chown -R nobody {data}, or --data names another directory",
            *("--data", data),
        )
        self.assertEqual(list(data.iterdir()), [])

    def test_data_of_a_user_who_may_run_the_broker(self) -> None:
        data = self.directory()
        os.chown(data, 1, 1)
        owner = getpwuid(1).pw_name
        self.assert_nobody_is_told(
            f"{data} belongs to {owner} (drwxr-xr-x), and the broker runs as nobody: chown -R "
            f"nobody {data}, start the broker as {owner}, or --data names another directory",
            *("--data", data),
        )

    def test_data_that_cannot_be_made(self) -> None:
        parent = self.directory()
        self.assert_nobody_is_told(
            f"{parent}/data is not there, and nobody may not make it in {parent}: make it for "
            f"nobody (install -d -o nobody {parent}/data), or --data names another directory",
            *("--data", parent / "data"),
        )

    def test_data_in_a_place_that_is_closed(self) -> None:
        parent = self.directory()
        (parent / "data").mkdir()
        parent.chmod(0o700)
        self.assert_nobody_is_told(
            f"{parent}/data cannot be reached: nobody may not enter {parent}; "
            "--data names another directory",
            *("--data", parent / "data"),
        )

    def test_a_database_of_somebody_else(self) -> None:
        """As a command leaves it that root ran before the first start."""
        data = self.directory()
        os.chown(data, NOBODY, NOBODY)
        database = data / "broker.sqlite"
        migrate(f"sqlite:///{database}")
        self.assert_nobody_is_told(
            f"{database} belongs to root (-rw-------), and the broker runs as nobody: "
            f"chown -R nobody {database}, or 'database' in the "
            "configuration names another file",
            *("--data", data),
        )
        self.assertEqual(list(data.iterdir()), [database])

    def test_a_directory_for_crawlers_of_somebody_else(self) -> None:
        data = self.directory()
        (data / "public").mkdir()
        os.chown(data, NOBODY, NOBODY)
        self.assert_nobody_is_told(
            f"{data}/public belongs to root (drwxr-xr-x), and the broker runs as nobody: "
            f"chown -R nobody {data}/public, or --data names another "
            "directory",
            *("--data", data),
        )

    def test_a_port_that_needs_rights(self) -> None:
        first = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
        if not first.exists() or int(first.read_text()) < 1024:
            raise SkipTest("no port needs rights here")
        data = self.directory()
        os.chown(data, NOBODY, NOBODY)
        self.assert_nobody_is_told(
            "cannot listen on port 81: ports below 1024 need rights; have systemd open it (a "
            "socket unit, as in tap/), give the service "
            "AmbientCapabilities=CAP_NET_BIND_SERVICE, or name another port with --listen",
            *("--data", data, "--listen", "tcp:81:interface=127.0.0.1"),
        )
        self.assertEqual(list(data.iterdir()), [])


class OwnModeTests(StartTestCase):
    """The owner took his own rights away."""

    def test_data_that_cannot_be_written(self) -> None:
        if os.geteuid() == 0:
            raise SkipTest("root may write everywhere")
        data = self.directory()
        data.chmod(0o500)
        self.addCleanup(data.chmod, 0o700)
        start, check = self.outputs("--local", "--data", data)
        for said in (start, check):
            self.assertIn(f"{data} cannot be written by its owner", said)
            self.assertIn(f"chmod -R u+rwX {data}", said)


class ConfigurationTests(StartTestCase):
    """What stands in the configuration, or is named by it."""

    listens_by_file = True

    def test_what_cannot_be_used(self) -> None:
        home = self.directory()
        file = home / "broker.toml"
        (home / "junk.pem").write_text("no certificate", encoding="utf-8")
        for text, said in (
            ('data = "\\u0000x"', "data: holds the character NUL"),
            (f"x = {'[' * 5000}", "stand within each other too deeply"),
            (
                f"listen = ['ssl:0:privateKey={home}/junk.pem']",
                f"{home}/junk.pem holds no certificate in PEM that can be read",
            ),
            ("listen = ['systemd:nonsense']", "listen: 'systemd:nonsense' is no endpoint"),
        ):
            file.write_text(f"{text}\n", encoding="utf-8")
            for output in self.outputs("--config", file):
                self.assertIn(said, output)

    def test_a_file_where_the_socket_should_be(self) -> None:
        directory = Path(tempfile.mkdtemp())  # short, as paths of sockets must be
        self.addCleanup(shutil.rmtree, directory)
        file = directory / "broker.sock"
        file.write_text("Somebody's letters.", encoding="utf-8")
        self.assert_both_say(
            f"cannot listen: {file} is a file and no socket: remove it, or name another address "
            "with --listen",
            *("--data", directory / "data", "--listen", f"unix:{file}"),
        )
        self.assertEqual(file.read_text(encoding="utf-8"), "Somebody's letters.")


class ServerTests(StartTestCase):
    """A PostgreSQL that the broker cannot work on."""

    def written(self, url: str, public_url: str = "") -> Path:
        file = self.directory() / "broker.toml"
        text = f'database = "{url}"\n'
        file.write_text(f'{text}public_url = "{public_url}"\n' if public_url else text)
        return file

    def assert_refused(self, file: Path, said: str) -> None:
        data = self.directory() / "data"
        for output in self.outputs("--config", file, "--data", data):
            self.assertIn(said, output)

    def test_driver_that_is_not_installed(self) -> None:
        home = self.directory()
        (home / "psycopg.py").write_text("raise ImportError(\"No module named 'psycopg'\")\n")
        self.env = {"PYTHONPATH": f"{home}:{os.environ.get('PYTHONPATH', '')}"}
        self.assert_refused(
            self.written("postgresql+psycopg://me@db.example/broker"),
            "database: needs the driver psycopg, which is not installed: No module named "
            "'psycopg'; install it beside the broker (pip install 'rsscloud-broker[postgresql]')",
        )

    def test_database_that_is_not_there(self) -> None:
        missing = make_url(empty_database()).set(database="nosuch")
        self.assert_refused(
            self.written(missing.render_as_string(hide_password=False)),
            'database "nosuch" does not exist. Nothing was changed. Make that database (createdb)',
        )

    def test_database_of_another_program(self) -> None:
        url = empty_database()
        with open_database(url) as connection:
            connection.exec_driver_sql("CREATE TABLE topic (name text)")
        self.assert_refused(self.written(url), "another program uses the database: it has tables")
        with open_database(url, writes=False) as connection:
            self.assertEqual(inspect(connection).get_table_names(), ["topic"])

    def test_two_clusters(self) -> None:
        url = empty_database()
        node = create_engine(url, isolation_level="AUTOCOMMIT").connect()
        self.addCleanup(node.engine.dispose)
        self.addCleanup(node.close)
        clusters.join(node, "https://broker.example")
        self.assert_refused(
            self.written(url, "https://other.example"),
            "brokers with another public_url work on it: https://broker.example. This broker has "
            "https://other.example.",
        )


PLUGIN = """
from attrs import frozen
from twisted.plugin import IPlugin
from zope.interface import implementer
from rsscloud_broker.front_doors.change_lists import ChangeListsDoor, ChangeListsOptions
from rsscloud_broker.interfaces import IEventSink, IFrontDoorMaker, INotifierMaker, ISinkMaker
from rsscloud_broker.delivery.notifiers import HttpPostNotifier, RssCloudOptions

@frozen
class Options:
    pass

@implementer(IEventSink)
class Sink:
    name = "mine"
    handles = ()

class Door(ChangeListsDoor):
    name = "mine"

class Maker:
    name = "mine"
    help = "For tests."
    options = Options

@implementer(IPlugin, ISinkMaker)
class SinkMaker(Maker):
    def make(self, options, parts):
        return SINK

@implementer(IPlugin, INotifierMaker)
class NotifierMaker(Maker):
    def make(self, options, outbound):
        return HttpPostNotifier("http-post", outbound, RssCloudOptions())

@implementer(IPlugin, IFrontDoorMaker)
class DoorMaker(Maker):
    def make(self, options, parts):
        return Door(ChangeListsOptions(), parts)

sink, notifier, door = SinkMaker(), NotifierMaker(), DoorMaker()
"""


class PluginTests(StartTestCase):
    """A package of somebody else's, whose author made a mistake."""

    def assert_refused(self, sentence: str, table: str, sink: str = "None") -> None:
        home = self.directory()
        file = home / "rsscloud_broker" / "plugins" / "mistaken.py"
        file.parent.mkdir(parents=True)
        file.write_text(dedent(PLUGIN).replace("SINK", sink), encoding="utf-8")
        self.env = {"PYTHONPATH": str(home)}
        configuration = home / "broker.toml"
        configuration.write_text(f"[{table}]\n", encoding="utf-8")
        sentence = sentence.replace("PACKAGE", f"rsscloud_broker.plugins.mistaken ({file})")
        self.assert_both_say(
            sentence.replace("FILE", str(file)),
            *("--config", configuration, "--data", home / "data"),
        )
        self.assertFalse((home / "data").exists())

    def test_make_raises(self) -> None:
        self.assert_refused(
            "the sink 'mine' of PACKAGE cannot be made: make() raised ZeroDivisionError: division "
            "by zero (FILE, line 29); mend or uninstall it, or set enabled = false in [sinks.mine]",
            "sinks.mine",
            sink="1 / 0",
        )

    def test_a_method_is_missing(self) -> None:
        self.assert_refused(
            "the sink 'mine' of PACKAGE does not keep to IEventSink: it lacks the method "
            "handle(event); mend or uninstall it, or set enabled = false in [sinks.mine]",
            "sinks.mine",
            sink="Sink()",
        )

    def test_a_module_that_cannot_be_imported(self) -> None:
        home = self.directory()
        plugins = home / "rsscloud_broker" / "plugins"
        plugins.mkdir(parents=True)
        broken = plugins / "broken.py"
        broken.write_text("import no_such_module", encoding="utf-8")
        (plugins / "mistaken.py").write_text(dedent(PLUGIN).replace("SINK", "None"))
        self.env = {"PYTHONPATH": str(home)}
        file = home / "broker.toml"
        file.write_text("[sinks.broken]\n[sinks.mine]\n", encoding="utf-8")
        said = f"rsscloud_broker.plugins.broken ({broken}) cannot be imported: ModuleNotFoundError"
        for output in self.outputs("--config", file, "--data", home / "data"):
            self.assertIn(said, output)
            self.assertNotIn("Unhandled", output)
        done = subprocess.run(
            nursery.command_line("rsscloud-broker", "plugins", "--config", file),
            check=False,
            env=os.environ | self.env,
            capture_output=True,
            encoding="utf-8",
            timeout=TIMEOUT,
        )
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"(?m)^sinks +mine +yes ")
        self.assertRegex(done.stdout, r"(?m)^sinks +archive +yes ")
        self.assertTrue(done.stderr.startswith("Error: plugins cannot be used:\n"), done.stderr)
        self.assertIn(said, done.stderr)
        self.assertNotIn("Traceback", done.stderr)

    def test_two_of_one_protocol(self) -> None:
        self.assert_refused(
            "two notifiers carry the protocol 'http-post': the notifier 'http_post' of "
            f"rsscloud-broker {__version__}, and the notifier 'mine' of PACKAGE; set enabled = "
            "false in [notifiers.http_post] or [notifiers.mine]",
            "notifiers.mine",
        )

    def test_a_route_that_is_taken(self) -> None:
        self.assert_refused(
            "the front door 'mine' offers GET /changes.xml, as does 'change_lists'; set another "
            "path for one of them if it has an option for that, or enabled = false in its table, "
            "such as [front_doors.mine]",
            "front_doors.mine",
        )


class WarningTests(EndToEndTestCase):
    def test_an_address_that_is_derived(self) -> None:
        port = free_port()
        broker = Process(
            self,
            nursery.command_line(
                *("twistd", "-n", "--pidfile=", "rsscloud-broker", "--data", self.directory()),
                *("--listen", f"tcp:{port}:interface=127.0.0.1"),
            ),
        )
        broker.wait_for(
            f"#warn.*public_url is not set: .* URLs under http://localhost:{port}, which leads"
        )

    def test_a_proxy_that_nobody_named(self) -> None:
        broker = self.own_broker()
        broker.start()
        for number in range(20):
            headers = {"X-Forwarded-For": f"198.51.100.{number}"}
            self.assertEqual(request(f"{broker.url}/", headers=headers).status, 200)
        broker.stop()
        said = "X-Forwarded-For comes from 127.0.0.1, which is not named in trusted_proxies"
        self.assertEqual(broker.log.count(said), 1)

    def test_a_proxy_that_is_named(self) -> None:
        broker = self.own_broker("[http]\ntrusted_proxies = ['127.0.0.1']\n")
        broker.start()
        self.assertEqual(
            request(f"{broker.url}/", headers={"X-Forwarded-For": "198.51.100.5"}).status, 200
        )
        broker.stop()
        self.assertNotIn("X-Forwarded-For", broker.log)


class BesideTests(EndToEndTestCase):
    def test_beside_a_running_broker(self) -> None:
        broker = self.own_broker()
        broker.start()
        options = ["--local", "--data", broker.data, "--config", broker.configuration]
        listen = f"tcp:{broker.port}:interface=127.0.0.1"
        broker.ping(self.origin().feed())
        until((broker.data / "broker.sqlite-wal").exists, "the database to be in use")
        files = sorted(broker.data.iterdir())
        done = run("rsscloud-broker", "check-config", *options, "--listen", listen)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn(f"note: {listen} is in use: a broker runs with this data", done.stdout)
        self.assertIn("which is up to date)", done.stdout)
        self.assertEqual(sorted(broker.data.iterdir()), files)
        broker.ping(self.origin().feed())
        broker.restart()
        until(lambda: "Server Shut Down." in broker.log, "a clean end")
        self.assertNotIn("#warn", broker.log)
        self.assertNotIn("#error", broker.log)

    def test_what_somebody_else_has(self) -> None:
        port = self.origin().port
        listen = f"tcp:{port}:interface=127.0.0.1"
        done = run_here("check-config", "--local", "--listen", listen)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"127.0.0.1:{port}", done.stderr)
        self.assertIn("in use", done.stderr)
