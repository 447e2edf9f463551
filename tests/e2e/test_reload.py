"""SIGHUP: a broker that runs takes what has changed in its configuration."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess

from tests import nursery
from tests.e2e.fixture import EndToEndTestCase, until
from tests.e2e.servers import HttpPostReceiver
from tests.terminals import open_terminal


class ReloadTests(EndToEndTestCase):
    def test_subscriptions_and_connections_go_on(self) -> None:
        broker, origin = self.running_broker(), self.origin()
        feed, receiver = origin.feed(), self.served(HttpPostReceiver())
        self.subscribed(broker, receiver, feed)
        connection = http.client.HTTPConnection("127.0.0.1", broker.port, timeout=60)
        self.addCleanup(connection.close)
        connection.request("GET", "/")
        connection.getresponse().read()
        said = broker.reload(
            "[http]\nbody_limit = 100\n[limits]\nverifications_burst = 1\n[topics]\npublish = []\n"
        )
        self.assertIn(
            "Changed: [http] body_limit, [limits] verifications_burst, [topics] publish.\n", said
        )
        # The same connection, or else this would fail: it is not made again.
        connection.auto_open = 0
        connection.request("POST", "/rsscloud/ping", b"url=" + b"x" * 100)
        self.assertEqual(connection.getresponse().status, 413)
        broker.reload("[topics]\nsubscribe = []\n")
        origin.change(feed)
        self.assertIn('success="true"', broker.ping(feed).text)
        self.assert_told(receiver, feed)
        again = broker.subscribe(self.served(HttpPostReceiver()), feed)
        self.assertIn("does not allow subscriptions to", again.text)


class TerminalTests(EndToEndTestCase):
    """A terminal that is closed sends SIGHUP as well."""

    def setUp(self) -> None:
        super().setUp()
        self.here = self.directory()
        self.terminal, self.inside = open_terminal()

    def in_terminal(self, *options: str) -> subprocess.Popen[bytes]:
        """Run twistd in a terminal of its own."""
        process = subprocess.Popen(
            [
                *("setsid", "--ctty"),
                *nursery.command_line("twistd", *options, "--logfile", "log", "rsscloud-broker"),
                *("--config", "broker.toml", "--listen", "tcp:0:interface=127.0.0.1"),
            ],
            cwd=self.here,
            stdin=self.inside,
            stdout=self.inside,
            stderr=self.inside,
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        os.close(self.inside)
        return process

    def await_line(self, text: str) -> None:
        """Wait until the log has a text."""
        log = self.here / "log"
        until(lambda: log.exists() and text in log.read_text(encoding="utf-8"), f"the line {text}")

    def test_closing_it_ends_the_broker(self) -> None:
        (self.here / "broker.toml").touch()
        process = self.in_terminal("--nodaemon", "--pidfile=")
        self.await_line("BrokerService#info] rsscloud-broker ")
        process.send_signal(signal.SIGHUP)  # of somebody, and not of the terminal
        self.await_line("Reloaded the configuration.")
        os.close(self.terminal)
        self.assertEqual(process.wait(60), -signal.SIGTERM)
        self.await_line("Server Shut Down.")

    def test_a_daemon_has_left_it(self) -> None:
        """It works in another directory, too, and finds its configuration all the same."""
        (self.here / "broker.toml").touch()
        (self.here / "elsewhere").mkdir()
        process = self.in_terminal("--pidfile", "broker.pid", "--rundir", "elsewhere")
        self.assertEqual(process.wait(60), 0)
        os.close(self.terminal)
        pid_file = self.here / "broker.pid"
        pid = int(pid_file.read_text(encoding="ascii"))
        self.addCleanup(until, lambda: not pid_file.exists(), "the daemon to end")
        self.addCleanup(os.kill, pid, signal.SIGTERM)
        self.await_line("BrokerService#info] rsscloud-broker ")
        (self.here / "broker.toml").write_text("[limits]\npings_burst = 3\n", encoding="utf-8")
        os.kill(pid, signal.SIGHUP)
        self.await_line("Changed: [limits] pings_burst.")
