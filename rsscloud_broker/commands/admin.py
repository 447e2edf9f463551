"""The commands for administrators: ``admin state``, ``admin subscriptions``, ``admin block`` ...

There is a command for each operation of the administration API, made from the table of operations.
The commands call the API of a running broker.  So the broker checks who may do it, and every
process of a broker knows of a change at once; a change of the database by a command would reach
neither the queues nor the caches of the running broker.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import click

from rsscloud_broker.client import administration, publisher
from rsscloud_broker.commands import Group
from rsscloud_broker.commands.connected import cacert_option, run, web_client
from rsscloud_broker.commands.examples import as_epilog
from rsscloud_broker.commands.output import print_table
from rsscloud_broker.util.urls import is_address
from rsscloud_broker.web.admin.api_operation import Operation
from rsscloud_broker.web.admin.openapi import BASE, fields_of
from rsscloud_broker.web.admin.operations import OPERATIONS
from rsscloud_broker.wire.text import clean

#: The environment variable that may have the API token.
TOKEN: Final = "RSSCLOUD_BROKER_ADMIN_TOKEN"  # noqa: S105 - the name of a variable

#: The columns of lists; ``--json`` shows everything.
_COLUMNS: Final[Mapping[str, Sequence[str]]] = {
    "subscriptions": ("id", "states", "protocol", "callback", "topic", "expires_at"),
    "hosts": ("host", "failures", "retry_at"),
    "blocks": ("kind", "object", "account", "at", "reason"),
    "accounts": ("name", "is_admin", "disabled", "signed_in_at", "sessions", "tokens"),
    "announcements": ("id", "since", "until", "account", "text"),
    "changes": ("id", "at", "account", "verb", "object", "reason"),
}


@click.group(cls=Group)
def admin() -> None:
    """Look after a running broker, by its administration API.

    The broker is asked with the API token of an administrator's account, with the scope admin.
    """


def _make_command(operation: Operation) -> click.Command:
    takes, required = fields_of(operation)
    parameters = [
        _make_parameter(name, schema, required=name in required) for name, schema in takes.items()
    ]

    def call(
        broker: str, token_file: str | None, as_json: bool, yes: bool = False, **values: Any
    ) -> None:
        """Call the operation with the values of the command line, and show the answer."""
        token = _read_token(token_file)
        given = {name: value for name, value in values.items() if value is not None}
        if operation.final and not yes:
            text = f"{operation.help} Nobody can undo this. Do it?"
            click.confirm(text, abort=True, err=True)
        _warn_if_readable(broker)

        async def work(reactor: Any) -> None:
            path = operation.path.replace("{id}", str(given.pop("id", "")))
            url = f"{broker.rstrip('/')}{BASE}{path}"
            try:
                answer = await administration.call(
                    web_client(reactor), url, token, operation.method, given
                )
            except administration.NotThere as error:
                click.ClickException(clean(str(error))).show()
                # The caller can tell this from other failures by the status.
                raise SystemExit(3) from error
            _show(operation.name, answer, as_json)

        run(work)

    command = click.Command(
        operation.name,
        callback=call,
        help=operation.help,
        params=parameters,
        epilog=as_epilog([_example(operation, parameters)]),
    )
    for option in _OPTIONS:
        command = option(command)
    if operation.final:
        command = click.option("--yes", is_flag=True, help="Do not ask once more.")(command)
    return command


_OPTIONS: Final = (
    cacert_option,
    click.option("--json", "as_json", is_flag=True, help="Print the whole answer, as JSON."),
    click.option(
        "--token-file",
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE",
        help=f"A file with the API token; otherwise ${TOKEN} has it.",
    ),
    click.option("--broker", default=publisher.DEFAULT_BROKER, show_default=True, metavar="URL"),
)


def _make_parameter(name: str, schema: Mapping[str, Any], *, required: bool) -> click.Parameter:
    """A parameter for a JSON schema: an argument if it is required and no reason, or an option."""
    kind: click.ParamType[Any] = click.STRING
    metavar: str | None = "TIME" if "anyOf" in schema else "TEXT"
    if "enum" in schema:
        kind, metavar = click.Choice([word for word in schema["enum"] if word]), None
    elif schema.get("type") == "integer":
        kind, metavar = click.IntRange(schema["minimum"], schema["maximum"]), "NUMBER"
    if required and name != "reason":
        return click.Argument([name], type=kind, metavar=name.upper())
    text = str(schema.get("description", "")).replace("`", "")
    return click.Option([f"--{name}"], type=kind, required=required, help=text, metavar=metavar)


def _example(operation: Operation, parameters: Iterable[click.Parameter]) -> str:
    """How the operation's example is written as a command."""
    words = ["admin", operation.name]
    for parameter in parameters:
        if parameter.name in operation.example:
            value = str(operation.example[parameter.name])
            words.extend(parameter.opts if isinstance(parameter, click.Option) else ())
            words.append(f'"{value}"' if " " in value else value)
    return " ".join((*words, "--token-file token"))


def _read_token(file: str | None) -> str:
    """The API token; a ``UsageError`` if there is none."""
    token = os.environ.get(TOKEN, "")
    if file:
        token = Path(file).read_text(encoding="utf-8", errors="replace").strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise click.UsageError(
            f"an API token is needed: name a file that holds one and nothing else with "
            f"--token-file, or put one into ${TOKEN}; /account of the broker makes one, or "
            "rsscloud-broker account token add"
        )
    return token


def _warn_if_readable(broker: str) -> None:
    try:
        parts = urlsplit(broker)
    except ValueError:  # nothing is sent there; the call says what is wrong with it
        return
    host = parts.hostname or ""
    is_here = host == "localhost" or (is_address(host) and host.startswith(("127.", "::1")))
    if parts.scheme == "http" and not is_here:
        click.echo(f"Warning: others can read the token on its way to {clean(broker)}.", err=True)


def _show(name: str, answer: Mapping[str, Any], as_json: bool) -> None:
    """Print the answer of the operation ``name``: a list as a table, everything else as lines."""
    if as_json:
        click.echo(json.dumps(answer, indent=2))
    elif name in _COLUMNS:
        columns = _COLUMNS[name]
        headings = [column.replace("_", " ").upper() for column in columns]
        rows = [[_for_people(item.get(column)) for column in columns] for item in answer["items"]]
        print_table([headings, *rows])
        if answer["next"] is not None:
            click.echo(f"There is more: --after {clean(str(answer['next']))!r}", err=True)
    elif answer == {"done": True}:
        click.echo("done")
    else:
        for line in _to_lines(answer):
            click.echo(line)


def _to_lines(answer: Mapping[str, Any], depth: int = 0) -> Iterator[str]:
    """A JSON object as lines of names and values; empty values are left out."""
    indent = "  " * depth
    for name, value in answer.items():
        label = f"{indent}{clean(name).replace('_', ' ')}:"
        if isinstance(value, dict) and value:
            yield label
            yield from _to_lines(value, depth + 1)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for each in value:
                yield label
                yield from _to_lines(each, depth + 1)
        elif value not in (None, "", [], {}):
            yield f"{label} {_for_people(value)}"


def _for_people(value: object) -> str:
    """A value for people, without what could confuse a terminal."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_for_people, value))
    return clean(str(value))


for _operation in OPERATIONS:
    admin.add_command(_make_command(_operation))
