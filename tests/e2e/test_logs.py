"""The log of a broker that runs: where it goes, and how its lines look."""

from __future__ import annotations

import re
import signal
from pathlib import Path

from tests.e2e.fixture import EndToEndTestCase, until
from tests.processes import BIN, LISTENS, Process


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
        self.assertTrue(re.search(r"\[log\] of the configuration is ignored", broker.output))
