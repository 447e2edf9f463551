"""Tests that a process from the nursery is what it would be if it were started by its command."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests import nursery
from tests.e2e.fixture import Broker, EndToEndTestCase, until
from tests.processes import BIN, LISTENS, TIMEOUT, Process, new_directory
from tests.test_deployment import TAP


class BrokerTests(EndToEndTestCase):
    def started(self, *, by_command: bool = False) -> Broker:
        """A broker that answers."""
        broker = self.own_broker()
        broker.by_command = by_command
        broker.start()
        return broker

    def test_it_is_a_child_of_the_tests_and_in_their_group(self) -> None:
        stat = Path(f"/proc/{self.started().pid}/stat").read_text(encoding="ascii")
        parent, group = stat.rpartition(")")[2].split()[1:3]
        self.assertEqual((int(parent), int(group)), (os.getpid(), os.getpgrp()))

    def test_it_has_no_descriptors_of_others(self) -> None:
        def kinds(broker: Broker) -> list[str]:
            """What its descriptors are open for, but for files that it writes."""
            place = Path(f"/proc/{broker.pid}")
            self.assertEqual((place / "cwd").resolve(), broker.directory)
            links = [Path(os.path.realpath(link)) for link in (place / "fd").iterdir()]
            outside = [str(link) for link in links if not link.is_relative_to(broker.data)]
            return sorted(link.rpartition("/")[2].split(":")[0] for link in outside)

        one, other = self.started(), self.started(by_command=True)
        until(lambda: kinds(one) == kinds(other), "them to have the same descriptors")


class ProcessTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.directory = new_directory(self)

    def said(self, name: str, *arguments: str, **options: Any) -> str:
        """What a command says, which fails; in both ways of starting it."""
        said = []
        for by_command in (False, True):
            done = nursery.run(
                [str(BIN / name), *arguments],
                cwd=self.directory,
                timeout=TIMEOUT,
                by_command=by_command,
                **options,
            )
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            said.append(done.stderr)
        self.assertEqual(said[0], said[1])
        return said[0]

    def test_it_reads_what_it_is_given_and_its_errors_are_told_apart(self) -> None:
        said = self.said("rsscloud-broker", "import", "--data", "data", "-", stdin="no JSON")
        self.assertIn("Error: ", said)

    def test_it_has_the_environment_that_it_is_given(self) -> None:
        (self.directory / "broker.toml").write_text("nonsense = 1\n", encoding="utf-8")
        env = os.environ | {"RSSCLOUD_BROKER_CONFIG": "broker.toml"}
        tac = str(TAP / "rsscloud-broker.tac")
        self.assertIn("nonsense", self.said("twistd", "-n", "--pidfile=", "-y", tac, env=env))

    def test_it_may_lead_a_group(self) -> None:
        options = ["--data", "data", "--listen", "tcp:0:interface=127.0.0.1"]
        command = [str(BIN / "twistd"), "-n", "--pidfile=", "rsscloud-broker", *options]
        broker = Process(self, command, cwd=self.directory, process_group=0)
        broker.wait_for(LISTENS)
        self.assertEqual(os.getpgid(broker.pid), broker.pid)
        broker.interrupt()
        self.assertEqual(broker.wait(), -signal.SIGINT)


class WhatItStartsTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.patch(os, "environ", {"PATH": "/bin", "PYTHONPATH": "here"})

    def test_scripts_of_this_environment(self) -> None:
        self.assertTrue(nursery.can_start([str(BIN / "twistd"), "-n"]))
        self.assertTrue(nursery.can_start([str(BIN / "twistd")], dict(os.environ)))
        self.assertFalse(nursery.can_start(["/usr/bin/twistd"]))
        self.assertFalse(nursery.can_start(["setpriv", str(BIN / "twistd")]))

    def test_commands_whose_clock_is_ahead(self) -> None:
        command = nursery.command_line("twistd", "-n", ahead=60)
        self.assertTrue(nursery.can_start(command))
        self.assertFalse(nursery.can_start([*command[:2], "pass", *command[3:]]))

    def test_nothing_for_another_python(self) -> None:
        for changed in ({"PYTHONPATH": "there"}, {"PYTHONHASHSEED": "1"}, {"TZ": "Asia/Tokyo"}):
            env = os.environ | changed
            self.assertFalse(nursery.can_start([str(BIN / "twistd")], env), changed)

    def test_nothing_if_it_is_off(self) -> None:
        os.environ["NURSERY"] = "off"
        self.assertFalse(nursery.can_start([str(BIN / "twistd")]))
