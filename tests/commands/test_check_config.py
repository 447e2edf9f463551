"""check-config and plugins."""

from __future__ import annotations

import re
from pathlib import Path

from rsscloud_broker import __version__
from rsscloud_broker.runtime.plugin_discovery import KINDS, discover
from tests.commands.cases import CommandTests
from tests.processes import free_port


class CheckConfigTests(CommandTests):
    def checked(self, *arguments: str) -> str:
        """Run check-config with ``--local`` and a free port, and return its output."""
        if "--listen" not in arguments:
            arguments = ("--listen", f"tcp:{free_port()}:interface=127.0.0.1", *arguments)
        return self.output_of("check-config", "--local", "--data", self.data, *arguments)

    def fault_of(self, content: str, *options: str) -> str:
        """What the command says of a configuration that cannot be used."""
        file = self.written("c.toml", content)
        return self.complaint_of("check-config", *options, "--config", file)

    def test_defaults(self) -> None:
        listen = f"tcp:{free_port()}"
        output = self.checked("--listen", listen)
        self.assertIn(f"data         {self.data} (will be made)\n", output)
        self.assertIn(f"listen       {listen}\n", output)
        for kind in ("front_doors", "notifiers", "sinks"):
            self.assertIn(f"\n{kind} ", output)
        self.assertEqual(list(self.directory.iterdir()), [])

    def test_an_address_that_is_derived(self) -> None:
        port = free_port()
        arguments = ("check-config", "--listen", f"tcp:{port}", "--data", self.data)
        result = self.run_command(*arguments)
        self.assertEqual(result.exit_code, 0)
        self.assertEqual(
            result.stderr,
            "Warning: public_url is not set: subscribers, hubs and crawlers are sent URLs under "
            f"http://localhost:{port}, which leads nowhere on other machines; set public_url in "
            "the configuration (or --public-url) to the address by which others reach the "
            "broker.\n",
        )
        self.output_of(*arguments, "--public-url", "https://broker.example")

    def test_the_command_line_goes_before_the_file(self) -> None:
        """The same holds when the broker starts."""
        file = self.written("c.toml", "data = '/no/such/directory'\nlisten = ['tcp:99']\n")
        self.assertNotIn("no/such", self.checked("--config", file))
        complaint = self.complaint_of("check-config", "--listen", "smoke:1")
        self.assertIn("Error: the command line: listen: 'smoke:1' is no endpoint", complaint)

    def test_lines(self) -> None:
        """Each fault names its line, and what an enumeration allows."""
        said = self.fault_of("# here\nlisten = [\n'tcp:x']\n")
        self.assertRegex(said, r"endpoint.* \(line 2\)\n\Z")
        rule = "processes: must be a whole number or 'auto', not 'x' (line 2)"
        said = self.fault_of("[delivery]\nprocesses = 'x'\n")
        self.assertIn(f"c.toml: [delivery] {rule}\n", said)

    def test_a_database_that_cannot_be_used(self) -> None:
        Path(self.data).mkdir()
        Path(self.data, "broker.sqlite").write_bytes(b"This is no database. " * 100)
        arguments = ("check-config", "--local", "--data", self.data)
        said = self.complaint_of(*arguments, "--listen", f"tcp:{free_port()}")
        self.assertIn("file is not a database", said)
        self.assertEqual(len(said.splitlines()), 1)

    def test_a_password_is_not_shown(self) -> None:
        file = self.written("c.toml", 'database = "sqlite://me:sesame@db.example/broker"\n')
        output = self.checked("--config", file)
        self.assertIn("db.example", output)
        self.assertNotIn("sesame", output)

    def test_every_fault_is_told(self) -> None:
        complaint = self.fault_of(
            "lisen = []\n[sinks.no_such_sink]\n[sinks.archive]\nunit = 1\nkeep_hours = 0\n"
            "[front_doors.front_pge]\n[http]\nbody_limit = 0\n",
        )
        for key in ("lisen", "no_such_sink", "archive] unit", "keep_hours", "front_pge", "body_l"):
            self.assertIn(key, complaint)
        self.assertEqual(complaint.count("c.toml: "), 6)

    def test_faults_of_applications_that_local_runs(self) -> None:
        complaint = self.fault_of("data = 5\n\n[apps.test_feed]\nevery = 0\n", "--local")
        self.assertIn("c.toml: [apps.test_feed] every: must be >= 1: 0 (line 4)", complaint)
        self.assertIn("c.toml: apps: ", self.fault_of("apps = 5\n", "--local"))

    def test_a_socket_of_systemd(self) -> None:
        """The socket exists only when systemd starts the broker."""
        file = self.written("c.toml", "listen = ['systemd:domain=INET6:index=0']\n")
        public = ("--public-url", "https://broker.example")
        output = self.output_of("check-config", "--config", file, *public)
        self.assertIn("listen       systemd:domain=INET6:index=0\n", output)
        self.assertIn("note: systemd:domain=INET6:index=0 was not tried", output)

    def test_a_missing_file(self) -> None:
        self.assertIn(self.data, self.complaint_of("check-config", "--config", self.data))


class PluginsTests(CommandTests):
    def rows(self, *arguments: str) -> dict[tuple[str, str], list[str]]:
        """The cells of each line, by its kind and its name."""
        heading, *lines = self.output_of("plugins", *arguments).splitlines()
        self.assertEqual(heading.split(), ["KIND", "NAME", "RUNS", "PACKAGE", "HELP"])
        cells = [re.split("  +", line) for line in lines]
        return {(kind, name): rest for kind, name, *rest in cells}

    def test_all_are_listed(self) -> None:
        makers = discover()
        rows = self.rows()
        for kind in KINDS:
            for name, maker in makers.of_kind(kind).items():
                runs = "no" if kind == "apps" else "yes"
                expected = [runs, f"rsscloud-broker {__version__}", maker.help]
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
