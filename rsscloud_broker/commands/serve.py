"""The command that starts a broker: serve."""

from __future__ import annotations

from typing import Any

import click
from twisted.python import usage

from rsscloud_broker.runtime.command_line import Options


def _parameters() -> list[click.Parameter]:
    """The options of ``twistd rsscloud-broker``, so that both have the same."""
    found: list[click.Parameter] = []
    for name, short, _default, text, *_ in Options.optParameters:
        names = [f"--{name}", *([f"-{short}"] if short else [])]
        found.append(click.Option([name.replace("-", "_"), *names], help=text, metavar="TEXT"))
    found += [
        click.Option([f"--{name}"], is_flag=True, help=text) for name, _, text in Options.optFlags
    ]
    listen = click.Option(["--listen", "-l"], multiple=True, help=Options.opt_listen.__doc__)
    return [*found, listen]


def _serve(**given: Any) -> None:
    """Run ``twistd rsscloud-broker`` in this process, with the options that were given."""
    from twisted.scripts import twistd  # noqa: PLC0415 # it is slow, and --help does not need it

    arguments = ["--nodaemon", "--pidfile=", "rsscloud-broker"]
    for name, value in given.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            arguments.append(option)
        elif value not in (None, False):
            values = [value] if isinstance(value, str) else value
            arguments += [f"{option}={each}" for each in values]
    options: Any = twistd.ServerOptions()  # type: ignore[attr-defined] # that of the platform
    try:
        options.parseOptions(arguments)
    except usage.UsageError as error:
        raise click.UsageError(str(error)) from error
    twistd.runApp(options)


serve = click.Command(
    "serve",
    callback=_serve,
    params=_parameters(),
    help="""Start a broker in the foreground; Ctrl-C ends it.

    It keeps its data in rsscloud-broker-data below the working directory, unless --data or the
    configuration names another place.  --local tries it out on this machine, and prints a link to
    sign in.  "twistd rsscloud-broker" is the same with the options of twistd.
    """,
)
