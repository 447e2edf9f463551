"""The ``rsscloud-broker`` command, with which people start a broker, talk to one and look after it.

It is a thin layer over ``client``, ``storage`` and ``runtime``, which do the work.

``serve``       starts a broker: serve
``calling``     talks to any broker: ping, publish, listen, feed-state, resourcesync
``following``   follows a Simplefeed: follow
``maintenance`` looks after a broker: backup, restore, export, import, nodes, sweep, topic
``accounts``    manages accounts: account add, passwd, list, remove, token
``admin``       looks after a running broker, by its administration API: admin ...
``check_config`` examines a configuration: check-config, plugins
``doctor``      examines an installed broker, or a feed: doctor
``doctor_checks`` has the checks of an installed broker
``connected``   has what the commands share that use the network
``configured``  has what the commands share that read the broker's configuration
``examples``    has the examples in the help of each command
``output``      prints tables, and stops the output when nobody reads it any more

A command's module is imported only when that command runs, so that a ping need not wait for the
modules of the database.
"""

from __future__ import annotations

from importlib import import_module

import click

from rsscloud_broker import __version__
from rsscloud_broker.commands.examples import epilog

#: Each command: its name, where it is (module and attribute), and the first sentence of its help.
COMMANDS = {
    "account": (
        "accounts:account",
        "Manage the accounts of people and programs that look after a broker.",
    ),
    "admin": ("admin:admin", "Look after a running broker, by its administration API."),
    "backup": (
        "maintenance:backup",
        "Save all that a broker has stored to FILE, which must not exist; it may run meanwhile.",
    ),
    "check-config": (
        "check_config:check_config",
        "Check whether a broker would start, and show what would run.",
    ),
    "doctor": ("doctor:examine", "Check a broker on this machine, or the feed at FEED_URL."),
    "export": ("maintenance:export", "Write topics, subscriptions and blocks to FILE, as JSON."),
    "feed-state": (
        "calling:show_feed_state",
        "Fetch the feed at URL as a feed reader does, and report what is good and bad about it.",
    ),
    "follow": (
        "following:follow",
        "Hand on each entry of the Simplefeed at URL, in order, and all that come later.",
    ),
    "import": (
        "maintenance:import_",
        "Import a file of export, or a data file of rsscloud-server.",
    ),
    "listen": ("calling:listen", "Subscribe to feeds, and print a line for each notification."),
    "nodes": ("maintenance:nodes", "Show which brokers work on a database, and what each does."),
    "ping": ("calling:ping", "Tell a broker that a feed or a site has changed."),
    "plugins": (
        "check_config:plugins",
        "List all installed plugins, and show which of them a configuration enables.",
    ),
    "publish": ("calling:publish", "Tell a WebSub hub that the topic at each URL has changed."),
    "resourcesync": (
        "calling:resourcesync",
        "Tell a hub what has changed in a ResourceSync source.",
    ),
    "restore": (
        "maintenance:restore",
        "Restore a FILE of backup into a data directory that has no database yet.",
    ),
    "serve": ("serve:serve", "Start a broker in the foreground; Ctrl-C ends it."),
    "sweep": (
        "maintenance:sweep",
        "Drop expired and failing subscriptions and unused topics, as the broker does each hour.",
    ),
    "topic": (
        "maintenance:topic",
        "Show the status of the topic at URL: its last fetch, its next poll, what its feed says.",
    ),
}


class Group(click.Group):
    """A group of commands.  Groups in it are of the same class."""

    group_class = type

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command.  No other one is suggested: it might be one that changes data."""
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            ctx.fail(f"There is no command {args[0]!r}.")
        return super().resolve_command(ctx, args)


class LazyGroup(Group):
    """A group that imports the module of a command when that command is asked for.

    Its ``commands`` only have the names and the first sentences of the help.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse arguments of all commands that are not UTF-8.

        Python has surrogates in place of the other bytes, which neither a database nor a request
        can have.
        """
        for each in args:
            try:
                each.encode()
            except UnicodeEncodeError:
                ctx.fail(f"The argument {each!r} is not UTF-8.")
        return super().parse_args(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None if there is no such command."""
        if cmd_name not in self.commands:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        found = getattr(import_module(f"{__name__}.{module}"), attribute)
        assert isinstance(found, click.Command)
        found.epilog = epilog(cmd_name)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing any."""
        click.Group(commands=self.commands).format_commands(ctx, formatter)


@click.group(
    cls=LazyGroup,
    commands=[click.Command(name, help=sentence) for name, (_, sentence) in COMMANDS.items()],
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=epilog("serve"),
)
@click.version_option(__version__, prog_name="rsscloud-broker")
def main() -> None:
    """Start a broker, talk to one, and look after it."""
