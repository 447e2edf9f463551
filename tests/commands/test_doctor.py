"""The command ``doctor``."""

from __future__ import annotations

import json

from rsscloud_broker.client.feed_push import OwnBroker
from rsscloud_broker.commands import doctor
from tests.commands.cases import CommandTests, ProcessTests
from tests.e2e.servers import Origin
from tests.processes import free_port


class UsageTests(CommandTests):
    def test_a_configuration_that_cannot_be_used(self) -> None:
        """Each fault is a result; nothing else can be checked."""
        file = self.written("c.toml", "lisen = []\n[sinks.no_such_sink]\n")
        result = self.run_command("doctor", "--config", file)
        self.assertEqual((result.exit_code, result.stderr), (1, ""))
        lines = result.stdout.splitlines()
        self.assertEqual([line[:20] for line in lines], ["fail  configuration:"] * 2)
        self.assertIn("lisen", lines[0])
        result = self.run_command("doctor", "--config", file, "--json")
        document = json.loads(result.stdout)
        self.assertEqual((result.exit_code, document["ok"]), (1, False))
        self.assertEqual(len(document["results"]), 2)

    def test_broker_needs_a_feed(self) -> None:
        self.misuse_of("doctor", "--broker", "http://localhost:5337")

    def test_the_broker_of_a_feed(self) -> None:
        usual = frozenset({"http-post", "https-post", "xml-rpc", "soap"})
        named = doctor._named_broker
        self.assertIsNone(named(None, None, None))
        at = OwnBroker("https://b.example", usual, True)
        self.assertEqual(named(None, None, "https://b.example/"), at)
        file = self.written(
            "c.toml",
            'public_url = "https://b.example"\n'
            "[notifiers.soap]\nenabled = false\n[front_doors.websub]\nenabled = false\n",
        )
        expected = OwnBroker("https://b.example", usual - {"soap"}, False)
        self.assertEqual(named(file, None, None), expected)

    def test_the_broker_of_a_feed_with_its_other_options(self) -> None:
        """They mean what they mean where the broker itself is examined."""
        named, file = doctor._named_broker, self.written("c.toml", "")
        for public_url, options, url in (
            ("HTTPS://b.example/", {}, "https://b.example"),
            (None, {"listen": ("tcp:8080",)}, "http://localhost:8080"),
            ("https://b.example", {"local": True}, "https://b.example"),
        ):
            found = named(file, public_url, None, **options)
            self.assertEqual(found and found.url, url)
        feed = ("http://feeds.example/", "--config", file)
        told = self.complaint_of("doctor", *feed, "--public-url", "b.example")
        self.assertIn("must be a whole http or https URL", told)


class RunTests(ProcessTests):
    async def test_a_broker_that_does_not_run(self) -> None:
        """The exit status is 0: nothing is wrong, though something could not be checked."""
        data = self.mktemp()
        command = self.start(
            *("doctor", "--local", "--data", data, "--json"),
            *("--listen", f"tcp:{free_port()}:interface=127.0.0.1"),
        )
        status = await command.ended
        document = json.loads("\n".join(command.lines.pending))
        levels = {(result["name"], result["level"]) for result in document["results"]}
        self.assertEqual((status, document["ok"], command.errors), (0, True, b""), document)
        self.assertIn(("configuration", "ok"), levels)
        self.assertIn(("broker", "warn"), levels)
        self.assertIn(("database", "ok"), levels)

    async def test_a_feed(self) -> None:
        origin = Origin()
        origin.start()
        self.addCleanup(origin.stop)
        hub = f'<link xmlns="http://www.w3.org/2005/Atom" rel="hub" href="{origin.url("/hub")}"/>'
        command = self.start("doctor", origin.feed(elements=hub))
        self.assertEqual(await command.ended, 1)
        text = "\n".join(command.lines.pending)
        self.assertIn(f"fail  hub: The hub {origin.url('/hub')} answers with status 404", text)
        self.assertIn("warn  ETag: ", text)
        self.assertIn("ok    feed: It is an RSS feed, version 2.0", text)
        self.assertIn("ok    WebSub subscribers: ", text)
        for line in command.lines.pending:
            self.assertRegex(line, "^(ok  |warn|fail)  [^:]+: ")
