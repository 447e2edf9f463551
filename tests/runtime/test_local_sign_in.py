"""The link that a broker prints for everybody who started it with ``--local``."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from attrs import evolve
from twisted.internet import reactor
from twisted.internet.defer import Deferred, fail, succeed
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.accounts import check_name, digest_of
from rsscloud_broker.composition.server import Server
from rsscloud_broker.config import Config
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.runtime.local_sign_in import LINK_LIFE, NAME, LocalSignIn, command
from rsscloud_broker.testing.clock import Clock
from rsscloud_broker.testing.memory import memory_accounts
from tests.terminals import open_terminal


class LocalSignInTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.store: Any = memory_accounts()
        self.clock: Any = Clock()
        self.said: list[str] = []
        self.has_terminal = True

    def say(self, text: str) -> bool:
        if self.has_terminal:
            self.said.append(text)
        return self.has_terminal

    def start(self, data: str = Config().data) -> LocalSignIn:
        known = (self.store, self.clock, "http://localhost:5337", "/write", self.say)
        service = LocalSignIn(*known, data)
        service.startService()
        return service

    def account(self) -> str:
        """The name of the account that the last printed link is for."""
        found = re.search(
            r"http://localhost:5337/signin/once\?key=([\w-]{43})&next=/write\n", self.said[-1]
        )
        assert found is not None, self.said
        now = self.clock.wall_seconds()
        account = self.successResultOf(self.store.account_of_link(digest_of(found[1]), now))
        later = self.store.account_of_link(digest_of(found[1]), now + LINK_LIFE)
        self.assertIsNone(self.successResultOf(later))
        assert account is not None
        return str(account.name)

    def add(self, name: str, *, is_admin: bool = False) -> None:
        self.successResultOf(self.store.add_account(name, "a hash", is_admin, 1.0))

    def test_first_start(self) -> None:
        with capturedLogs() as logs:
            self.start()
        self.assertEqual(list(logs), [], "links are not logged")
        self.assertEqual(self.account(), NAME)
        (made,) = self.successResultOf(self.store.accounts())
        self.assertTrue(made.is_admin)
        stored = self.successResultOf(self.store.stored_password(NAME))
        self.assertEqual(stored.hash, "")
        self.assertIn(f"account link {NAME}\n", self.said[0])
        self.start("other data")
        self.assertIn(f"account link {NAME} --data 'other data'\n", self.said[1])
        keys = re.findall(r"key=([\w-]{43})", "".join(self.said))
        self.assertEqual(len(set(keys)), 2, "each start prints another link")
        self.assertEqual(len(self.successResultOf(self.store.accounts())), 1)

    def test_the_command_can_be_pasted(self) -> None:
        """Unless it is on the path, it is named by where it is."""
        directory = Path(self.mktemp()).absolute() / ".venv" / "bin"
        directory.mkdir(parents=True)
        script = directory / "rsscloud-broker"
        script.touch(0o755)
        self.patch(sys, "executable", str(directory / "python3"))
        self.patch(os, "environ", {**os.environ, "PATH": "/nowhere"})
        self.assertEqual(command(), str(script.relative_to(Path.cwd())))
        self.patch(os, "environ", {**os.environ, "PATH": str(directory)})
        self.assertEqual(command(), "rsscloud-broker")
        script.unlink()
        self.assertEqual(command(), "rsscloud-broker")

    def test_accounts_that_are_there(self) -> None:
        self.add("anna")
        self.start()
        self.assertEqual(self.account(), "anna")
        self.add("zoe", is_admin=True)
        self.start()
        self.assertEqual(self.account(), "zoe")
        self.add(NAME)
        self.start()
        self.assertEqual(self.account(), NAME)

    def test_nobody_can_sign_in_to_a_disabled_account(self) -> None:
        for name in (NAME, "anna"):
            self.add(name)
        accounts = self.successResultOf(self.store.accounts())
        self.store.accounts = lambda: succeed(
            [evolve(each, disabled="spam" if each.name == NAME else "") for each in accounts]
        )
        self.start()
        self.assertEqual(self.account(), "anna")

    def test_the_name_may_be_had(self) -> None:
        check_name(NAME)

    def test_without_a_terminal(self) -> None:
        self.has_terminal = False
        with capturedLogs() as logs:
            self.start()
        (event,) = logs
        self.said.append(f"{formatEvent(event)}\n")
        self.assertEqual(self.account(), NAME)

    def test_database_is_away(self) -> None:
        self.store.accounts = lambda: fail(Unavailable("the disk is full"))
        with capturedLogs() as logs:
            self.start()
        self.assertEqual(formatEvent(logs[0]), "No link to sign in could be made: the disk is full")
        self.assertEqual(self.said, [])

    def test_stop_while_it_waits(self) -> None:
        self.store.accounts = Deferred
        self.start().stopService()
        self.assertEqual(self.said, [])


class TerminalTests(SynchronousTestCase):
    def test_terminal(self) -> None:
        """A process whose stdout is a terminal, as the log of twistd takes ``sys.stdout``."""
        script = (
            "from rsscloud_broker.runtime.local_sign_in import write_to_terminal as w; w('here\\n')"
        )
        ours, theirs = open_terminal()
        self.addCleanup(os.close, ours)
        subprocess.run([sys.executable, "-c", script], stdout=theirs, check=True)
        os.close(theirs)
        self.assertEqual(os.read(ours, 100), b"here\r\n")

    def test_no_terminal(self) -> None:
        script = (
            "from rsscloud_broker.runtime.local_sign_in import write_to_terminal as w; exit(w('x'))"
        )
        for stdout in (subprocess.PIPE, subprocess.DEVNULL):
            done = subprocess.run([sys.executable, "-c", script], stdout=stdout, check=True)
            self.assertIn(done.stdout, (b"", None))


class ComposedTests(SynchronousTestCase):
    def made(self, *, is_local: bool) -> list[LocalSignIn]:
        config = evolve(Config(), public_url="https://broker.example", listen=("tcp:8080",))
        broker = Server(config, reactor, is_local=is_local).service
        return [part for part in broker if isinstance(part, LocalSignIn)]

    def test_only_on_request(self) -> None:
        self.assertEqual(self.made(is_local=False), [])

    def test_link_is_for_a_browser_on_this_machine(self) -> None:
        (service,) = self.made(is_local=True)
        self.assertEqual(service._broker, "http://localhost:8080")
