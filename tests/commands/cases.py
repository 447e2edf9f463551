"""Runs commands in tests: in this process, or in a process of their own."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Any

from click.testing import CliRunner, Result
from twisted.internet import reactor
from twisted.internet.defer import Deferred, DeferredQueue
from twisted.internet.process import ProcessReader
from twisted.internet.threads import deferToThread
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase, TestCase
from twisted.web.resource import Resource
from twisted.web.server import Site

from rsscloud_broker.commands import main
from tests import nursery
from tests.processes import new_directory

# A reactor is a module; its interfaces are known only at run time.
running: Any = reactor


class CommandTests(SynchronousTestCase):
    """A test case for commands that need no reactor."""

    def setUp(self) -> None:
        self.directory = new_directory(self)
        self.data = str(self.directory / "data")

    def run_command(self, *arguments: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(main, arguments, input=stdin)

    def output_of(self, *arguments: str, stdin: str | None = None) -> str:
        result = self.run_command(*arguments, stdin=stdin)
        self.assertEqual((result.exit_code, result.stderr), (0, ""))
        return result.stdout

    def complaint_of(self, *arguments: str, stdin: str | None = None) -> str:
        result = self.run_command(*arguments, stdin=stdin)
        self.assertEqual((result.exit_code, result.stdout), (1, ""))
        self.assertTrue(result.stderr.startswith("Error: "), result.stderr)
        return result.stderr

    def misuse_of(self, *arguments: str) -> str:
        """What a command line that makes no sense is answered."""
        result = self.run_command(*arguments)
        self.assertEqual((result.exit_code, result.stdout), (2, ""), arguments)
        return result.stderr

    def written(self, name: str, content: str) -> str:
        path = self.directory / name
        path.write_text(content)
        return str(path)


class Command:
    """A command that runs in a process from the `nursery`.

    :ivar lines: the lines that it has printed.
    :ivar ended: its exit status, when it has ended.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        self.lines: DeferredQueue[str] = DeferredQueue()
        self.errors = b""
        self.ended: Deferred[int] = Deferred()
        self._rest = b""
        self._waiting: list[Deferred[None]] = []
        out, its_out = os.pipe()
        errors, its_errors = os.pipe()
        self._child = nursery.start(arguments, stdout=its_out, stderr=its_errors)
        os.close(its_out)
        os.close(its_errors)
        self._open = {
            name: ProcessReader(running, self, name, descriptor)
            for name, descriptor in ((1, out), (2, errors))
        }

    def childDataReceived(self, name: int, data: bytes) -> None:
        if name == 1:
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self.lines.put(line.decode())
            return
        self.errors += data
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.callback(None)

    def childConnectionLost(self, name: int, reason: Failure) -> None:
        os.close(self._open.pop(name).fileno())
        if not self._open:
            deferToThread(self._child.wait).addCallback(self.ended.callback)

    def heard_error(self) -> Deferred[None]:
        """Make a Deferred that fires when the command writes to stderr."""
        self._waiting.append(Deferred())
        return self._waiting[-1]

    def signal(self, name: str) -> None:
        self._child.send_signal(signal.Signals[f"SIG{name}"])

    def close_stdout(self) -> None:
        self._open[1].loseConnection()


class ProcessTests(TestCase):
    """A test case for commands that need a reactor: each is a process, with real sockets."""

    def start(self, *arguments: str) -> Command:
        command = Command(nursery.command_line("rsscloud-broker", *arguments))
        self.addCleanup(self.kill, command)
        return command

    async def kill(self, command: Command) -> None:
        if not command.ended.called:
            command.signal("KILL")
            await command.ended

    async def told(self, command: Command, sentence: bytes) -> None:
        """Wait until a command has written a text to stderr."""
        while sentence not in command.errors:
            await command.heard_error()

    async def assert_fails(self, command: Command, *said: str) -> None:
        """Assert that a command ends with status 1, and why in one line."""
        self.assertEqual(await command.ended, 1)
        errors = command.errors.decode()
        self.assertEqual(errors.count("\n"), 1, errors)
        for part in ("Error: ", *said):
            self.assertIn(part, errors)

    def serve(self, resource: Resource) -> str:
        port = running.listenTCP(0, Site(resource), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        return f"http://127.0.0.1:{port.getHost().port}"
