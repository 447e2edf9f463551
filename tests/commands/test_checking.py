"""check-config and plugins."""

from __future__ import annotations

import re

from rsscloud_broker import __version__
from rsscloud_broker.discovery import KINDS, discover
from tests.commands.cases import CommandTests


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


class PluginsTests(CommandTests):
    def rows(self, *arguments: str) -> dict[tuple[str, str], list[str]]:
        """The cells of each line besides its kind and its name, which they are found by."""
        heading, *lines = self.output_of("plugins", *arguments).splitlines()
        self.assertEqual(heading.split(), ["KIND", "NAME", "RUNS", "PACKAGE", "HELP"])
        cells = [re.split("  +", line) for line in lines]
        return {(kind, name): rest for kind, name, *rest in cells}

    def test_all_are_listed(self) -> None:
        makers = discover()
        rows = self.rows()
        for kind in KINDS:
            for name, maker in makers.of_kind(kind).items():
                expected = ["yes", f"rsscloud-broker {__version__}", maker.help]
                self.assertEqual(rows.pop((kind, name)), expected)
        self.assertEqual(rows, {})

    def test_what_the_configuration_says(self) -> None:
        file = self.written("c.toml", "[sinks.archive]\nenabled = false\n")
        rows = self.rows("--config", file)
        self.assertEqual(rows["sinks", "archive"][0], "no")
        self.assertEqual(rows["sinks", "change_list"][0], "yes")

    def test_a_plugin_that_is_not_there(self) -> None:
        file = self.written("c.toml", "[sinks.archiv]\n")
        self.assertIn("no such plugin", self.complaint_of("plugins", "--config", file))
