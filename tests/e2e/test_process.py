"""The process: how it starts, or says why not, how it ends, and where its log goes."""

from __future__ import annotations

import contextlib  # not suppress from it: trial looks for a list of that name in modules
import os
import re
import signal
import socket
from pathlib import Path
from resource import RLIMIT_NOFILE, getrlimit, prlimit, setrlimit
from subprocess import CompletedProcess
from urllib.parse import quote

from tests.e2e.fixture import Broker, EndToEndTestCase, request, run, run_here, until
from tests.e2e.servers import RECEIVERS, HttpPostReceiver
from tests.processes import BIN, LISTENS, Process, free_port

_LEVEL = re.compile(r"#(\w+)\]")


class StopTests(EndToEndTestCase):
    def assert_clean_end(self, broker: Broker) -> None:
        """Wait for the end of a broker that was asked to end, after which all is well."""
        # twistd ends its process by the signal that it was sent, when all is done.
        self.assertEqual(broker.ended(), -signal.SIGTERM)
        self.assertIn("Server Shut Down.", broker.log)
        self.assertEqual(set(_LEVEL.findall(broker.log)), {"info"})
        self.assertNotIn("Traceback", broker.log)

    def test_after_work(self) -> None:
        broker, origin = self.running_broker(), self.origin()
        feed, receiver = origin.feed(), self.served(HttpPostReceiver())
        self.subscribed(broker, receiver, feed)
        origin.change(feed)
        broker.ping(feed)
        self.assert_told(receiver, feed)
        until(lambda: request(f"{broker.url}/changes.xml").status == 200, "the change list")
        with socket.create_connection(("127.0.0.1", broker.port)):  # a client that says nothing
            broker.terminate()
            self.assert_clean_end(broker)

    def test_by_a_notification_under_way_it_is_awaited(self) -> None:
        broker, origin = self.running_broker(), self.origin()
        feed, receiver = origin.feed(), self.served(HttpPostReceiver())
        self.subscribed(broker, receiver, feed)
        receiver.called = 0
        receiver.open.clear()
        origin.change(feed)
        broker.ping(feed)
        until(lambda: receiver.called, "a notification under way")
        broker.terminate()
        receiver.open.set()
        self.assert_clean_end(broker)
        broker.start()
        broker.stop()
        self.assertEqual(receiver.called, 1)  # it was not repeated


class KilledBeforeNotificationTests(EndToEndTestCase):
    """What was acknowledged outlives the process; see also `tests.e2e.test_kill`."""

    def test_the_next_process_notifies(self) -> None:
        """The ping is acknowledged, and the broker is killed."""
        broker, origin = self.running_broker(), self.origin()
        feed = origin.feed()
        receivers = [self.served(make()) for make in RECEIVERS]
        for receiver in receivers:
            self.subscribed(broker, receiver, feed)
        origin.change(feed)
        for receiver in receivers:
            receiver.open.clear()
        self.assertIn("Thanks", broker.ping(feed).text)
        broker.kill()
        for receiver in receivers:
            receiver.open.set()
        self.assertEqual([receiver.heard for receiver in receivers], [[], [], []])
        broker.start()
        for receiver in receivers:
            self.assert_told(receiver, feed)


class DescriptorTests(EndToEndTestCase):
    """Each connection takes a file descriptor, and shells give their processes few."""

    def test_it_takes_as_many_as_it_needs(self) -> None:
        soft, hard = getrlimit(RLIMIT_NOFILE)
        self.addCleanup(setrlimit, RLIMIT_NOFILE, (soft, hard))
        setrlimit(RLIMIT_NOFILE, (512, hard))
        limits = "max_connections = 100\n[sinks.distribution]\nin_flight = 20"
        broker = self.running_broker(f"[http]\n{limits}")
        self.assertGreater(prlimit(broker.pid, RLIMIT_NOFILE)[0], 800)
        self.assertNotIn("file descriptors", broker.log)


class StartErrorTests(EndToEndTestCase):
    """Each is one clear message and an exit status.

    What else may be wrong is tested without a start, in ``tests.runtime.test_start_checks``,
    ``tests.config.test_config``, ``tests.plugins`` and ``tests.http.test_listening``.
    """

    def refusal(self, *options: object) -> str:
        """What twistd says where the broker does not start."""
        twistd = ("-n", "--pidfile=", "rsscloud-broker", "--local", *options)
        done = run("twistd", *twistd, cwd=self.directory())
        self.assertEqual(done.returncode, 1)
        return done.stdout + done.stderr

    def test_another_broker_on_the_same_data(self) -> None:
        broker = self.running_broker()
        listen = "tcp:0:interface=127.0.0.1"
        said = self.refusal("--listen", listen, "--data", broker.data)
        self.assertIn("another broker", said)
        self.assertEqual(said.count("rsscloud-broker: "), 1, said)
        self.assertNotIn("Traceback", said)
        broker.restart()  # one that was killed holds nothing

    def test_what_cannot_be_used(self) -> None:
        """It is the same sentence in check-config."""
        file = self.directory() / "broker.toml"
        for text, said in (
            ('data = "\\u0000x"', "data: holds the character NUL"),
            ("listen = ['systemd:nonsense']", "listen: 'systemd:nonsense' is no endpoint"),
        ):
            file.write_text(f"{text}\n", encoding="utf-8")
            checked = run_here("check-config", "--config", file)
            self.assertEqual(checked.returncode, 1)
            for output in (self.refusal("--config", file), checked.stdout + checked.stderr):
                self.assertIn(said, output)
                self.assertNotIn("Traceback", output)
                self.assertNotIn(" starting on ", output)  # nobody has connected in vain

    def test_a_wrong_option_names_the_right_ones(self) -> None:
        said = self.refusal("--nonsense")
        self.assertIn("option --nonsense not recognized", said)
        self.assertIn("--public-url=", said)

    def test_a_check_beside_a_running_broker(self) -> None:
        broker = self.running_broker()
        listen = f"tcp:{broker.port}:interface=127.0.0.1"
        broker.ping(self.origin().feed())
        until((broker.data / "broker.sqlite-wal").exists, "the database to be in use")
        files = sorted(broker.data.iterdir())
        options = ("--local", *broker.where, "--listen", listen)
        done = run("rsscloud-broker", "check-config", *options)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn(f"note: {listen} is in use: a broker runs with this data", done.stdout)
        self.assertIn("which is up to date)", done.stdout)
        self.assertEqual(sorted(broker.data.iterdir()), files)
        broker.ping(self.origin().feed())
        broker.restart()
        until(lambda: "Server Shut Down." in broker.log, "a clean end")
        self.assertNotIn("#warn", broker.log)
        self.assertNotIn("#error", broker.log)


class HelpTests(EndToEndTestCase):
    def test_the_broker(self) -> None:
        done = run("twistd", "rsscloud-broker", "--help", cwd=self.directory(), by_command=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for option in ("--config=", "--data=", "--listen=", "--public-url=", "--local"):
            self.assertIn(option, done.stdout)


class DaemonTests(EndToEndTestCase):
    """Without ``-n`` it goes into the background."""

    def daemonize(self, directory: Path, port: int) -> CompletedProcess[str]:
        return run(
            *("twistd", "--pidfile=broker.pid", "--logfile=broker.log", "rsscloud-broker"),
            *("--local", "--data=data", f"--listen=tcp:{port}:interface=127.0.0.1"),
            cwd=directory,
            by_command=True,
        )

    def test_from_start_to_end(self) -> None:
        directory, port = self.directory(), free_port()
        done = self.daemonize(directory, port)
        pid_file, log = directory / "broker.pid", directory / "broker.log"
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        pid = int(pid_file.read_text(encoding="ascii"))
        self.addCleanup(_kill, pid)

        # It listened before the command came back.
        answer = request(f"http://127.0.0.1:{port}/ping?url={quote('http://a.example/')}")
        self.assertIn("Thanks for the ping.", answer.text)
        self.assertTrue((directory / "data" / "broker.sqlite").exists())

        os.kill(pid, signal.SIGTERM)
        until(lambda: not pid_file.exists(), "the daemon to end")
        said = log.read_text(encoding="utf-8")
        self.assertEqual(set(_LEVEL.findall(said)), {"info"}, said)
        self.assertIn("Server Shut Down", said)

    def test_start_error(self) -> None:
        directory, port = self.directory(), self.origin().port
        done = self.daemonize(directory, port)
        self.assertEqual(done.returncode, 1)
        self.assertIn("Couldn't listen on", done.stdout + done.stderr)
        # The daemon writes why as the last thing, when its parent has gone already.
        log = directory / "broker.log"
        until(lambda: f"127.0.0.1:{port}" in log.read_text(encoding="utf-8"), "a line in the log")
        self.assertFalse((directory / "broker.pid").exists())


def _kill(pid: int) -> None:
    """End the daemon whose number this was, if a test has left it alive."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


class TwistdTests(EndToEndTestCase):
    """twistd's own options for its log keep their meaning."""

    def twistd(self, *options: str, directory: Path) -> Process:
        return Process(
            self,
            [
                *(f"{BIN}/twistd", "--nodaemon", "--pidfile=", *options, "rsscloud-broker"),
                *("--config", "broker.toml", "--listen", "tcp:0:interface=127.0.0.1"),
            ],
            cwd=directory,
        )

    def test_a_file_and_its_rotation(self) -> None:
        directory = self.directory()
        (directory / "broker.toml").write_text("[log]\nformat = 'json'\n", encoding="utf-8")
        broker = self.twistd("--logfile", "broker.log", directory=directory)
        log, earlier = directory / "broker.log", directory / "broker.log.1"

        def has_started() -> bool:
            return log.exists() and '"rsscloud-broker ' in log.read_text(encoding="utf-8")

        until(has_started, "the broker to start")
        broker.signal(signal.SIGUSR1)
        until(earlier.exists, "a rotated file")
        broker.stop()
        self.assertIn('"rsscloud-broker ', earlier.read_text(encoding="utf-8"))
        self.assertIn("Server Shut Down.", log.read_text(encoding="utf-8"))
        self.assertEqual(broker.output, "")

    def test_a_file_that_cannot_be_written(self) -> None:
        directory = self.directory()
        (directory / "broker.toml").touch()
        broker = self.twistd("--logfile", "/no/such/log", directory=directory)
        self.assertEqual(broker.wait(), 1)
        self.assertIn("rsscloud-broker: the log cannot be written: ", broker.output)
        self.assertNotIn("Traceback", broker.output)

    def test_another_observer_is_told_of(self) -> None:
        """Of twistd's options the broker learns nothing where it is started by a .tac file."""
        directory = self.directory()
        (directory / "broker.toml").write_text(
            "listen = ['tcp:0:interface=127.0.0.1']\n[log]\nlevel = 'error'\n", encoding="utf-8"
        )
        tac = Path(__file__).parents[2] / "tap" / "rsscloud-broker.tac"
        broker = Process(
            self,
            [f"{BIN}/twistd", "-n", "--pidfile=", "-y", str(tac)],
            env={"RSSCLOUD_BROKER_CONFIG": "broker.toml"},
            cwd=directory,
        )
        broker.wait_for(LISTENS)
        self.assertIn("[log] of the configuration is ignored", broker.output)
