"""The command that starts a broker, beside ``twistd rsscloud-broker``."""

from __future__ import annotations

import gc
import os
import sys
from io import StringIO
from typing import Any

from twisted.scripts import twistd
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker import __version__
from rsscloud_broker.commands.serve import serve
from rsscloud_broker.config import ConfigError
from rsscloud_broker.runtime.command_line import Options
from tests.commands.cases import CommandTests
from tests.e2e.fixture import request
from tests.processes import BIN, LISTENS, Process, new_directory


class ServeOptionsTests(CommandTests):
    def setUp(self) -> None:
        super().setUp()
        self.addCleanup(gc.set_threshold, *gc.get_threshold())  # a broker that starts raises it
        self.started: list[Options] = []
        self.patch(twistd, "runApp", lambda options: self.started.append(options.subOptions))

    def test_the_options_of_twistd(self) -> None:
        self.output_of(
            "serve",
            *("--local", "--config", "b.toml", "-d", "place", "--couriers", "2"),
            *("-l", "tcp:1", "--listen", "tcp:2", "--public-url", "https://broker.example"),
        )
        (options,) = self.started
        self.assertEqual(
            dict(options),
            {
                "local": 1,
                "config": os.path.abspath("b.toml"),
                "data": "place",
                "couriers": "2",
                "listen": ["tcp:1", "tcp:2"],
                "public-url": "https://broker.example",
            },
        )

    def test_an_option_without_a_value_is_passed_on(self) -> None:
        """Such as ``--data "$DATA"``, where that variable is not set."""
        self.output_of("serve", "--data", "", "--public-url", "", "--listen", "")
        (options,) = self.started
        self.assertEqual(
            (options["data"], options["public-url"], options["listen"]), ("", "", [""])
        )
        with self.assertRaisesRegex(ConfigError, "must not be empty"):
            options.configuration()

    def test_each_option_is_explained(self) -> None:
        text = self.output_of("serve", "--help")
        for name in Options():
            self.assertIn(f"--{name}", text)
        self.assertTrue(all(getattr(each, "help", "") for each in serve.params))

    def test_wrong_options(self) -> None:
        self.misuse_of("serve", "--lokal")
        self.misuse_of("serve", "file")
        self.assertEqual(self.started, [])


class ServeTests(SynchronousTestCase):
    def test_a_broker_from_an_empty_directory(self) -> None:
        directory = new_directory(self)
        listen = ("--listen", "tcp:0:interface=127.0.0.1")
        command = [str(BIN / "rsscloud-broker"), "serve", "--local", *listen]
        broker = Process(self, command, cwd=directory, by_command=True)
        port = broker.wait_for(LISTENS)[1]
        broker.wait_for("Sign in as myself")
        self.assertEqual(request(f"http://127.0.0.1:{port}/").status, 200)
        self.assertTrue((directory / "rsscloud-broker-data").is_dir())


class VersionTests(CommandTests):
    def test_version(self) -> None:
        options: Any = twistd.ServerOptions()  # type: ignore[attr-defined]
        said = StringIO()
        self.patch(sys, "stdout", said)
        self.assertRaises(SystemExit, options.parseOptions, ["rsscloud-broker", "--version"])
        self.assertEqual(said.getvalue(), f"rsscloud-broker {__version__}\n")
