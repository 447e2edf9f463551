"""follow: in a process of its own, against a server in another whose documents change meanwhile."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from time import monotonic, sleep

from treq.client import HTTPClient
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.client import Agent

from tests.client.recording import Answer, Server, fields_of
from tests.commands.cases import Command, CommandTests, ProcessTests, running
from tests.processes import BIN, TIMEOUT, Process, new_directory, no_proxies

TOP = Path(__file__).parent.parent.parent

ATOM = '<feed xmlns="http://www.w3.org/2005/Atom">{}</feed>'
ENTRY = "<entry><id>urn:{0}</id><title>{0}</title><updated>2013-01-0{0}T00:00:00Z</updated></entry>"


def feed(*numbers: int, more: str = "") -> Answer:
    """A feed with entries, newest first."""
    return Answer(ATOM.format(more + "".join(map(ENTRY.format, numbers))).encode())


class UsageTests(CommandTests):
    def test_wrong_usage(self) -> None:
        for arguments in (
            (),
            ("--exec", "true", "--jsonl"),
            ("--push", "--once"),
            ("--port", "1234"),
            ("--from", "middle"),
        ):
            url = ("http://a.example/",) if arguments else ()
            self.assertIn("Usage:", self.misuse_of("follow", *url, *arguments))

    def test_what_is_no_web_address(self) -> None:
        told = self.misuse_of("follow", "ftp://a.example/feed", "--once")
        self.assertIn("must begin with http:// or https://", told)


class FollowTests(ProcessTests):
    def setUp(self) -> None:
        self.directory = new_directory(self)
        self.marker = str(self.directory / "marker")

    def marked(self) -> str:
        """The id of the entry that was processed last."""
        entry: str = json.loads(Path(self.marker).read_text())["entry"]
        return entry

    def follow(self, url: str, *options: str) -> Command:
        return self.start("follow", url, *options)

    async def titles(self, command: Command) -> list[str]:
        """What a command prints until it ends, which it does without an error."""
        self.assertEqual((await command.ended, command.errors), (0, b""))
        return [json.loads(line)["title"] for line in command.lines.pending]

    async def test_lines_of_json(self) -> None:
        more = '<link rel="self" href="/recent"/>'
        url = self.serve(Server(feed(2, 1, more=more)))
        command = self.follow(url, "--once", "--jsonl")
        first = json.loads(await command.lines.get())
        updated = "2013-01-01T00:00:00.000000Z"
        expected = {"id": "urn:1", "title": "1", "updated": updated, "document": url}
        self.assertEqual(first, expected)
        self.assertEqual(await self.titles(command), ["2"])

    async def test_marker(self) -> None:
        server = Server(feed(2, 1), feed(3, 2, 1), feed(4), feed(5, 4), feed(6), feed(7, 6))
        url = self.serve(server)
        options = ("--once", "--marker", self.marker)
        for more, expected in (((), ["1", "2"]), ((), ["3"])):
            self.assertEqual(await self.titles(self.follow(url, *options, *more)), expected)
        gone = self.follow(url, *options)
        why = "Error: the entry that was processed last, urn:3, is not in"
        await self.assert_fails(gone, why, "--from oldest")
        again = self.follow(url, *options, "--from", "oldest")
        self.assertEqual(await again.ended, 0)
        ids = [json.loads(each)["id"] for each in again.lines.pending]
        self.assertEqual(ids, ["urn:4", "urn:5"])
        other = self.follow(f"{url}/other", *options)
        await self.assert_fails(other, "is the marker of another feed")

    async def test_exec(self) -> None:
        url = self.serve(Server(feed(2, 1)))
        output = self.directory / "output"
        command = self.follow(url, "--once", "--exec", f"cat >> {output}; echo did")
        self.assertEqual((await command.ended, command.errors), (0, b""))
        self.assertEqual(command.lines.pending, ["did", "did"])
        lines = output.read_text().splitlines()
        self.assertEqual([json.loads(line)["title"] for line in lines], ["1", "2"])

    async def test_command_that_fails(self) -> None:
        url = self.serve(Server(feed(2, 1)))
        attempts = self.directory / "attempts"
        program = f"echo >> {attempts}; grep -q urn:1 || exit 3"
        options = ("--once", "--marker", self.marker, "--exec", program, "--tries", "2")
        command = self.follow(url, *options)
        self.assertEqual(await command.ended, 1)
        self.assertIn(b"the command ended with exit status 3. Trying again in 1 s.", command.errors)
        self.assertIn(b"Error: the entry urn:2 of", command.errors)
        self.assertIn(b"Gave up after 2 attempts", command.errors)
        self.assertEqual(len(attempts.read_text()), 3)
        self.assertEqual(self.marked(), "urn:1")
        self.assertEqual(
            await self.titles(self.follow(url, "--once", "--marker", self.marker)), ["2"]
        )

    async def test_command_that_reads_nothing(self) -> None:
        url = self.serve(Server(feed(2, 1)))
        command = self.follow(url, "--once", "--exec", "exec true")
        self.assertEqual((await command.ended, command.errors), (0, b""))

    async def test_stops_after_the_present_entry(self) -> None:
        url = self.serve(Server(feed(3, 2, 1)))
        for name in ("INT", "TERM"):
            self.marker = str(self.directory / name)
            go = self.directory / f"go-{name}"
            program = f"echo began; until test -e {go}; do sleep 0.05; done; echo done"
            command = self.follow(url, "--marker", self.marker, "--exec", program)
            self.assertEqual(await command.lines.get(), "began")
            command.signal(name)
            go.touch()
            self.assertEqual((await command.ended, command.errors), (0, b""))
            self.assertEqual(command.lines.pending, ["done"])
            self.assertEqual(self.marked(), "urn:1")

    async def test_reader_that_goes_away(self) -> None:
        first, second = feed(1), feed(2, 1)
        first.headers = second.headers = {"Cache-Control": "max-age=0"}
        url = self.serve(Server(first, second))
        command = self.follow(url, "--poll", "1", "--marker", self.marker)
        await command.lines.get()
        command.close_stdout()
        self.assertEqual((await command.ended, command.errors), (0, b""))
        self.assertEqual(self.marked(), "urn:1")

    async def test_push(self) -> None:
        """A hub that calls makes the follower read at once, and not after an hour."""
        hub = Server(Answer(b"Accepted.", 202))
        more = f'<link rel="hub" href="{self.serve(hub)}"/>'
        answers = [feed(1, more=more), feed(1, more=more), feed(2, 1, more=more)]
        url = self.serve(Server(*answers))
        command = self.follow(url, "--push", "--host", "127.0.0.1", "--poll", "3600")
        self.assertEqual(json.loads(await command.lines.get())["title"], "1")
        callback = fields_of(hub.asked[0])["hub.callback"]
        posted = await HTTPClient(Agent(running)).post(callback, data=b"new content")
        self.assertEqual(posted.code, 202)
        self.assertEqual(json.loads(await command.lines.get())["title"], "2")
        command.signal("INT")
        self.assertEqual(await command.ended, 0)

    async def test_push_without_a_hub(self) -> None:
        command = self.follow(self.serve(Server(feed(1))), "--push", "--host", "127.0.0.1")
        await self.told(command, b"Polling only: ")
        self.assertEqual(json.loads(await command.lines.get())["title"], "1")


class KilledTests(SynchronousTestCase):
    """A follower that is killed at random misses nothing, and nothing comes in a wrong order."""

    COUNT = 250

    def test_killed_at_random(self) -> None:
        server = Process(
            self, [sys.executable, "-m", "tests.simplefeed.server", "0", str(self.COUNT)], cwd=TOP
        )
        port = server.wait_for(r"listening on (\d+)")[1]
        directory = new_directory(self)
        output = directory / "output"
        command = [BIN / "rsscloud-broker", "follow", f"http://127.0.0.1:{port}/recent"]
        command += ["--marker", directory / "marker", "--poll", "0.1"]
        handlers = (["--jsonl"], ["--exec", "cat"])
        expected = [str(number) for number in range(1, self.COUNT + 1)]
        deadline = monotonic() + 2 * TIMEOUT
        kills = 0
        titles: list[str] = []
        while not titles or titles[-1] != expected[-1]:
            self.assertLess(monotonic(), deadline)
            more = handlers[0] if kills > 3 else handlers[kills % 2]
            with output.open("ab") as file:
                follower = subprocess.Popen(
                    [*map(str, command), *more], stdout=file, env=no_proxies(), process_group=0
                )
                before = output.stat().st_size
                while output.stat().st_size == before and monotonic() < deadline:
                    sleep(0.01)
                sleep(random.uniform(0, 0.3))
                # With what it runs, which would go on printing.
                os.killpg(follower.pid, signal.SIGKILL)
                follower.wait()
            kills += 1
            titles = handed_on(output)
        self.assertGreater(kills, 1)
        # In order: each run goes on right after what is in the marker, or with what came after.
        first_times = list(dict.fromkeys(titles))
        self.assertEqual(first_times, expected)
        steps = {int(b) - int(a) for a, b in pairwise(titles)}
        self.assertEqual({step for step in steps if step > 0}, {1})


def handed_on(output: Path) -> list[str]:
    """The titles of the entries in an output, whose lines may be cut off by a kill."""
    # A line that was cut off stands before the first one of the next run.
    parts = output.read_bytes().replace(b'{"id"', b'\n{"id"').splitlines()
    whole = [part for part in parts if part.startswith(b"{") and part.endswith(b"}")]
    return [json.loads(part)["title"] for part in whole]
