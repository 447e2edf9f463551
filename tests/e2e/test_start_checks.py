"""What keeps a broker from starting is a sentence each, at the start and in check-config.

Which sentences there are is tested without a start, in ``tests.runtime.test_start_checks``,
``tests.config.test_config`` and ``tests.storage.test_examination``.
"""

from __future__ import annotations

from tests.e2e.fixture import EndToEndTestCase, run, run_here, until


class StartChecksTests(EndToEndTestCase):
    def test_what_cannot_be_used(self) -> None:
        file = self.directory() / "broker.toml"
        for text, said in (
            ('data = "\\u0000x"', "data: holds the character NUL"),
            ("listen = ['systemd:nonsense']", "listen: 'systemd:nonsense' is no endpoint"),
        ):
            file.write_text(f"{text}\n", encoding="utf-8")
            twistd = ("-n", "--pidfile=", "rsscloud-broker", "--config", file)
            for done in (
                run("twistd", *twistd, cwd=self.directory()),
                run_here("check-config", "--config", file),
            ):
                output = done.stdout + done.stderr
                self.assertEqual(done.returncode, 1, output)
                self.assertIn(said, output)
                self.assertNotIn("Traceback", output)
                self.assertNotIn(" starting on ", output)  # nobody has connected in vain

    def test_beside_a_running_broker(self) -> None:
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
