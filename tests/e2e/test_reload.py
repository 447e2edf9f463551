"""SIGHUP: a broker that runs takes what has changed in its configuration."""

from __future__ import annotations

import http.client
import os
import signal
import ssl
import subprocess
from pathlib import Path

from tests import nursery
from tests.e2e.fixture import Broker, EndToEndTestCase, request, until
from tests.e2e.servers import HttpPostReceiver
from tests.http.test_tls import served_certificate
from tests.outbound.authority import authority
from tests.processes import free_port
from tests.terminals import open_terminal


class ReloadTests(EndToEndTestCase):
    def started(self, configuration: str = "", options: tuple[str, ...] = ("--local",)) -> Broker:
        broker = self.own_broker(configuration, options)
        broker.start()
        return broker

    def test_subscriptions_and_connections_go_on(self) -> None:
        broker, origin = self.started(), self.origin()
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

    def test_a_file_that_cannot_be_used(self) -> None:
        broker = self.started("[http]\nbody_limit = 1000\n")
        said = broker.reload(
            "lisen = []\n[http]\nbody_limit = 5\n[limits]\npings_burst = 'many'\n[sinks.archiv]\n"
        )
        file = broker.configuration
        for fault in ("lisen: unknown key", "[limits] pings_burst: must be", "[sinks.archiv]: no"):
            self.assertIn(f"#error RB908] The configuration cannot be used: {file}: {fault}", said)
        self.assertIn("#error RB908] Nothing was changed: the broker goes on as it was.\n", said)
        self.assertNotIn("Traceback", said)
        form = {"content-type": "application/x-www-form-urlencoded"}
        answer = request(f"{broker.url}/pingSiteForm", "POST", b"x=" + b"x" * 500, form)
        self.assertNotEqual(answer.status, 413)
        broker.configuration.unlink()
        self.assertIn(f"{file}: cannot be read: No such file", broker.reload())
        self.assertIn("Reloaded the configuration.", broker.reload("[http]\nbody_limit = 5\n"))

    def test_a_certificate(self) -> None:
        directory, port = self.directory(), free_port()
        first = renew(directory)
        listen = (
            f"ssl:{port}:interface=127.0.0.1"
            f":privateKey={directory / 'key.pem'}:certKey={directory / 'cert.pem'}"
        )
        broker = self.started(options=("--local", "--listen", listen))
        self.assertEqual(served_certificate(port), first)
        second = renew(directory)
        said = broker.reload()
        self.assertIn(f"New connections at {listen} get a new certificate, valid until 20", said)
        self.assertEqual(served_certificate(port), second)
        (directory / "cert.pem").write_text("no certificate", encoding="utf-8")
        said = broker.reload("[limits]\npings_burst = 1\n")
        self.assertIn(f"listen: the certificate of '{listen}' cannot be read again", said)
        self.assertIn(f"{directory / 'cert.pem'} holds no certificate in PEM", said)
        self.assertIn("Nothing was changed", said)
        self.assertEqual(served_certificate(port), second)

    def test_the_log(self) -> None:
        broker = self.started("[log]\nlevel = 'error'\n")
        self.assertEqual(broker.log, "")
        said = broker.reload("[log]\nlevel = 'info'\nformat = 'json'\n")
        self.assertIn('"message": "Changed: [log] level, [log] format."', said)


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


def renew(directory: Path) -> bytes:
    """Write a new certificate and its key, as certbot would; the certificate in DER."""
    certificate, key = authority().pem("localhost")
    (directory / "cert.pem").write_bytes(certificate)
    (directory / "key.pem").write_bytes(key)
    return ssl.PEM_cert_to_DER_cert(certificate.decode())
