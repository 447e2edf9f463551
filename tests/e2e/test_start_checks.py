"""What keeps a broker from starting is a sentence each, at the start and in check-config."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from unittest import SkipTest

from tests import nursery
from tests.e2e.fixture import (
    TIMEOUT,
    EndToEndTestCase,
    run,
    run_here,
    until,
)
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
    """The broker runs as a user who may not do what it needs.

    What is said of all else that this user may not do is tested in
    ``tests.runtime.test_start_checks``.
    """

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

    def test_data_of_somebody_else(self) -> None:
        data = self.directory()
        self.assert_both_say(
            f"{data} belongs to root (drwxr-xr-x), and the broker runs as nobody: "
            f"chown -R nobody {data}, or --data names another directory",
            *("--data", data),
            prefix=_AS_NOBODY,
        )
        self.assertEqual(list(data.iterdir()), [])


class ConfigurationTests(StartTestCase):
    """What stands in the configuration, or is named by it."""

    listens_by_file = True

    def test_what_cannot_be_used(self) -> None:
        home = self.directory()
        file = home / "broker.toml"
        for text, said in (
            ('data = "\\u0000x"', "data: holds the character NUL"),
            ("listen = ['systemd:nonsense']", "listen: 'systemd:nonsense' is no endpoint"),
        ):
            file.write_text(f"{text}\n", encoding="utf-8")
            for output in self.outputs("--config", file):
                self.assertIn(said, output)


class ServerTests(StartTestCase):
    """A PostgreSQL that the broker cannot work on.

    What is said of other databases is tested in ``tests.storage.test_examination`` and
    ``tests.storage.test_clusters``.
    """

    def assert_refused(self, url: str, said: str) -> None:
        file, data = self.directory() / "broker.toml", self.directory() / "data"
        file.write_text(f'database = "{url}"\n')
        for output in self.outputs("--config", file, "--data", data):
            self.assertIn(said, output)

    def test_driver_that_is_not_installed(self) -> None:
        home = self.directory()
        (home / "psycopg.py").write_text("raise ImportError(\"No module named 'psycopg'\")\n")
        self.env = {"PYTHONPATH": f"{home}:{os.environ.get('PYTHONPATH', '')}"}
        self.assert_refused(
            "postgresql+psycopg://me@db.example/broker",
            "database: needs the driver psycopg, which is not installed: No module named "
            "'psycopg'; install it beside the broker (pip install 'rsscloud-broker[postgresql]')",
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

    def test_its_database_with_other_data(self) -> None:
        broker = self.own_broker()
        broker.start()
        home = self.directory()
        file = home / "broker.toml"
        file.write_text(f"database = 'sqlite:///{broker.data}/broker.sqlite'\n")
        options = ["--local", "--config", file, "--data", home / "data"]
        for command in ("serve", "check-config"):
            done = run("rsscloud-broker", command, *options, "--listen", "tcp:0")
            self.assertEqual(done.returncode, 1)
            self.assertIn("a broker with other data works on", done.stdout + done.stderr)
        broker.ping(self.origin().feed())
