"""The group of all commands, which imports the module of a command when that command runs."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from click.shell_completion import ShellComplete

import rsscloud_broker
from rsscloud_broker import __version__
from rsscloud_broker.commands import COMMANDS, main
from rsscloud_broker.commands.examples import EXAMPLES
from tests.commands.cases import CommandTests

#: Runs a command, and then prints which modules of a list it has imported.
IMPORTED = """
import sys
from rsscloud_broker.commands import main
main(sys.argv[2:], prog_name="rsscloud-broker", standalone_mode=False)
print(*(name for name in sys.argv[1].split() if name in sys.modules))
"""


class GroupTests(CommandTests):
    def test_version(self) -> None:
        self.assertIn(__version__, self.output_of("--version"))

    def test_every_command_explains_itself(self) -> None:
        context = click.Context(main)
        for name, (_, sentence) in COMMANDS.items():
            command = main.get_command(context, name)
            assert command is not None
            self.assertEqual((command.name, command.get_short_help_str(1000)), (name, sentence))
            self.assertIn(sentence, " ".join(self.output_of(name, "--help").split()))

    def test_every_command_has_examples(self) -> None:
        """Their options exist."""
        for name in ("", *self.names(main)):
            told = self.output_of(*name.split(), "--help")
            _, heading, examples = told.partition("Example")
            self.assertTrue(heading, name)
            for example in examples.splitlines()[1:]:
                self.assertTrue(example.strip().startswith(f"rsscloud-broker {name}"), example)
                program, *words = shlex.split(example)
                self.assertEqual(program, "rsscloud-broker")
                self.assert_parses(words)

    def names(self, group: click.Group, above: str = "") -> Iterator[str]:
        """The names of all commands, and of the groups of commands."""
        context = click.Context(group)
        for each in group.list_commands(context):
            name = f"{above} {each}".strip()
            yield name
            command = group.get_command(context, each)
            if isinstance(command, click.Group):
                yield from self.names(command, name)

    def test_the_examples_are_those_of_the_manual(self) -> None:
        page = Path(rsscloud_broker.__file__).parents[1] / "docs" / "command.rst"
        manual = " ".join(page.read_text(encoding="utf-8").replace("\\\n", " ").split())
        for name, examples in EXAMPLES.items():
            told = self.output_of(*name.split(), "--help")
            for example in examples:
                self.assertIn(f"  rsscloud-broker {example}\n", told)
                self.assertIn(f" rsscloud-broker {example} ", f"{manual} ")

    def assert_parses(self, words: list[str]) -> None:
        command: click.Command = main
        context = click.Context(main)
        while isinstance(command, click.Group):
            found = command.get_command(context, words.pop(0))
            assert found is not None
            command = found
        parser = command.make_parser(click.Context(command))
        parser.parse_args(words)

    def test_completion(self) -> None:
        for words, incomplete, expected in (
            ([], "p", ["ping", "plugins", "publish"]),
            (["ping"], "--proto", ["--protocol"]),
            (["ping", "--protocol"], "", ["rest", "xml-rpc", "soap"]),
            (["account", "token"], "a", ["add"]),
        ):
            found = ShellComplete(main, {}, "rsscloud-broker", "").get_completions(
                words, incomplete
            )
            self.assertEqual([each.value for each in found], expected)

    def test_the_help_lists_every_command(self) -> None:
        commands = self.output_of("--help").partition("Commands:\n")[2].partition("\n\n")[0]
        self.assertEqual([line.split()[0] for line in commands.splitlines()], sorted(COMMANDS))
        line = "  ping          Tell a broker that a feed or a site has changed.\n"
        self.assertIn(line, commands)

    def test_a_command_that_is_nearly_right(self) -> None:
        """No other one is suggested: ``sweep`` drops subscriptions."""
        for wrong in ("pinf", "sweeep", "imprt", "admin remov", "account token remov"):
            told = self.run_command(*wrong.split()).stderr
            self.assertIn(f"There is no command '{wrong.split()[-1]}'.", told)
            self.assertNotIn("Did you mean", told)

    def test_arguments_that_are_not_utf_8(self) -> None:
        for arguments in (
            ["topic", "--data", self.data, "http://feeds.example/\udcff"],
            ["account", "link", "--data", self.data, "da\udcff"],
            ["ping", "http://feeds.example/\udcff"],
        ):
            self.assertIn("\\udcff' is not UTF-8.", self.misuse_of(*arguments))

    def test_only_what_is_needed_is_imported(self) -> None:
        for arguments, imported in (
            (["--help"], []),
            (["ping", "--help"], ["treq"]),
            (["listen", "--help"], ["treq"]),
            (["topic", "--help"], ["sqlalchemy"]),
        ):
            command = [sys.executable, "-c", IMPORTED, "treq sqlalchemy", *arguments]
            printed = subprocess.check_output(command, text=True)
            self.assertEqual(printed.splitlines()[-1].split(), imported, arguments)

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
            self.assertIn("Usage:", self.misuse_of(*arguments))
