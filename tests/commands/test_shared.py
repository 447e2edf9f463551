"""The parts that all commands share."""

from __future__ import annotations

from rsscloud_broker import __version__
from tests.commands.cases import CommandTests


class GroupTests(CommandTests):
    def test_version(self) -> None:
        self.assertIn(__version__, self.output_of("--version"))

    def test_every_command_explains_itself(self) -> None:
        for command in ("check-config", "plugins", "ping", "listen", "export", "import", "sweep"):
            with self.subTest(command):
                self.assertIn("Usage:", self.output_of(command, "--help"))

    def test_wrong_usage(self) -> None:
        for arguments in (
            ["nonsense"],
            ["ping"],
            ["ping", "http://example.org/rss.xml", "--name", "n", "--url", "http://example.org/"],
            ["ping", "--name", "n"],
            ["ping", "--url", "http://example.org/"],
            ["ping", "http://example.org/rss.xml", "--rss", "http://example.org/rss.xml"],
            ["ping", "http://example.org/rss.xml", "--protocol", "smoke"],
            ["listen"],
            ["listen", "http://example.org/rss.xml", "--port", "70000"],
            ["listen", "http://example.org/rss.xml", "--protocol", "rest"],
            ["resourcesync", "notify", __file__, "--topic", "http://example.org/"],
            ["resourcesync", "notify", "--topic", "http://a/", "--hub", "http://b/"],
            ["import"],
            ["import", str(self.directory / "no-such-file")],
        ):
            with self.subTest(arguments):
                result = self.run_command(*arguments)
                self.assertEqual((result.exit_code, result.stdout), (2, ""))
                self.assertIn("Usage:", result.stderr)
