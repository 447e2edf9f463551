"""The commands for accounts: account add, passwd, list, remove, link; account token add, list,
remove.

They use the broker's database directly, and may do so while the broker runs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from getpass import GetPassWarning
from warnings import catch_warnings

import click
from sqlalchemy import Connection

from rsscloud_broker import storage
from rsscloud_broker.accounts import (
    Hasher,
    check_name,
    check_password,
    check_token,
    digest_of,
    new_secret,
    new_token,
)
from rsscloud_broker.accounts.accounts import MAX_TOKENS
from rsscloud_broker.commands import Group
from rsscloud_broker.commands.configured import ConfiguredBroker, with_broker_options
from rsscloud_broker.commands.examples import epilog
from rsscloud_broker.commands.output import print_table
from rsscloud_broker.config import AccountsConfig
from rsscloud_broker.interfaces import Account
from rsscloud_broker.interfaces.accounts import SCOPES
from rsscloud_broker.runtime import data_lock
from rsscloud_broker.runtime.local_sign_in import LINK_LIFE
from rsscloud_broker.storage import accounts as rows
from rsscloud_broker.web.admin.asked import MAX_ID
from rsscloud_broker.web.sign_in_link import link_to

password_option = click.option(
    "--password-stdin", is_flag=True, help="Read the password from stdin: its first line."
)
name_argument = click.argument("name")


@click.group(cls=Group)
def account() -> None:
    """Manage the accounts of people and programs that look after a broker."""


@account.command("add", epilog=epilog("account add"))
@with_broker_options
@click.option("--admin", is_flag=True, help="Make it an administrator's account.")
@click.option(
    "--no-password",
    is_flag=True,
    help="Store no password: for API tokens only, or if another checker knows the password.",
)
@password_option
@name_argument
def add(
    broker: ConfiguredBroker, admin: bool, no_password: bool, password_stdin: bool, name: str
) -> None:
    """Make an account with the name NAME, and ask for its password.

    If the broker has no database yet, the command makes it.
    """
    if no_password and password_stdin:
        raise click.UsageError("give --no-password or --password-stdin, not both")
    check_name(name)
    settings = broker.settings()
    storage.migrate(settings.database_url)
    with storage.open_database(settings.database_url, writes=False) as connection:
        _check_free(connection, name)
    password = "" if no_password else _ask_for_hash(name, settings.accounts, password_stdin)
    with storage.open_database(settings.database_url) as connection:
        _check_free(connection, name)
        rows.add_account(connection, name, password, admin, storage.present_time(connection))
    click.echo(f"{name} is {'an administrator' if admin else 'an account'} now")


def _check_free(connection: Connection, name: str) -> None:
    """End the command if there is an account with a name."""
    if rows.stored_password(connection, name) is not None:
        raise click.ClickException(
            f"there is an account {name} already; account passwd changes its password"
        )


@account.command(epilog=epilog("account passwd"))
@with_broker_options
@password_option
@name_argument
def passwd(broker: ConfiguredBroker, password_stdin: bool, name: str) -> None:
    """Set another password for the account NAME, and end its sessions."""
    options = broker.settings().accounts
    url = broker.existing_database()
    with storage.open_database(url, writes=False) as connection:
        _find_account(connection, name)
    password = _ask_for_hash(name, options, password_stdin)
    with storage.open_database(url) as connection:
        _find_account(connection, name)
        rows.set_password(connection, name, password)
    click.echo(f"{name} has another password now, and is signed out everywhere")


@account.command("list", epilog=epilog("account list"))
@with_broker_options
def list_(broker: ConfiguredBroker) -> None:
    """List the accounts."""
    url = broker.existing_database()
    names = ("NAME", "ADMIN", "DISABLED", "CREATED", "SIGNED IN", "SESSIONS", "TOKENS")
    table: list[tuple[str, ...]] = [names]
    with storage.open_database(url, writes=False) as connection:
        for each in rows.accounts(connection):
            numbers = (len(found(connection, each.id)) for found in (rows.sessions, rows.tokens))
            times = (_to_the_minute(each.created_at), _to_the_minute(each.signed_in_at))
            is_so = ("yes" if each.is_admin else "no", "yes" if each.disabled else "no")
            table.append((each.name, *is_so, *times, *map(str, numbers)))
    print_table(table)


@account.command(epilog=epilog("account remove"))
@with_broker_options
@name_argument
def remove(broker: ConfiguredBroker, name: str) -> None:
    """Remove the account NAME, with its sessions and API tokens.

    The broker deletes what the account has published: within seconds, or when it starts.
    """
    with storage.open_database(broker.existing_database()) as connection:
        _find_account(connection, name)
        rows.remove_account(connection, name)
    click.echo(f"{name} is no account any more")


@account.command(epilog=epilog("account link"))
@with_broker_options
@click.option(
    "--url",
    metavar="URL",
    help="Where a browser on this machine reaches the broker.  [default: where the running one "
    "listens, or else by the configuration]",
)
@name_argument
def link(broker: ConfiguredBroker, url: str | None, name: str) -> None:
    """Print a link that signs a browser in to the account NAME, once.

    It works for 15 minutes, in a browser on the machine of the broker, and replaces any link from
    before.
    """
    settings = broker.settings()
    broker_url = url or data_lock.address_of(settings.data) or settings.local_address
    secret = new_secret()
    with storage.open_database(broker.existing_database()) as connection:
        owner = _find_account(connection, name)
        if owner.disabled:
            raise click.ClickException(
                f"{name} is disabled ({owner.disabled}), so no link signs anybody in to it; enable "
                "it first, at /admin/accounts or by rsscloud-broker admin enable"
            )
        expires_at = storage.present_time(connection) + LINK_LIFE
        rows.add_link(connection, owner.id, digest_of(secret), expires_at)
    click.echo(link_to(broker_url.rstrip("/"), secret))


@account.group(epilog=epilog("account token"))
def token() -> None:
    """Manage API tokens, which programs send in the header Authorization: Bearer TOKEN."""


@token.command("add", epilog=epilog("account token add"))
@with_broker_options
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    metavar="SCOPE",
    help="What the token allows; may be repeated.  "
    + "  ".join(f"{scope}: {help_}." for scope, help_ in SCOPES.items()),
)
@click.option("--days", type=int, help="After how many days it expires.  [default: never]")
@click.option("--for", "label", default="", metavar="TEXT", help="What it is for.")
@name_argument
def add_token(
    broker: ConfiguredBroker, scopes: Sequence[str], days: int | None, label: str, name: str
) -> None:
    """Make an API token for the account NAME, and print it; nobody can show it again."""
    with storage.open_database(broker.existing_database()) as connection:
        owner = _find_account(connection, name)
        label = label or "made on the command line"
        label = check_token(label, scopes, days, is_admin=owner.is_admin)
        secret, now = new_token(), storage.present_time(connection)
        expires_at = None if days is None else now + days * 86_400
        made = rows.add_token(
            connection, owner.id, digest_of(secret), label, set(scopes), now, expires_at, MAX_TOKENS
        )
        if made is None:
            raise click.ClickException(
                f"{name} has {MAX_TOKENS} tokens, as many as an account may have; remove one first"
            )
    click.echo(secret)


@token.command("list", epilog=epilog("account token list"))
@with_broker_options
@name_argument
def list_tokens(broker: ConfiguredBroker, name: str) -> None:
    """List the API tokens of the account NAME."""
    table: list[tuple[str, ...]] = [("ID", "SCOPES", "CREATED", "USED", "EXPIRES", "FOR")]
    with storage.open_database(broker.existing_database(), writes=False) as connection:
        for each in rows.tokens(connection, _find_account(connection, name).id):
            times = map(_to_the_minute, (each.created_at, each.used_at, each.expires_at))
            table.append((str(each.id), ",".join(sorted(each.scopes)), *times, each.name))
    print_table(table)


@token.command("remove", epilog=epilog("account token remove"))
@with_broker_options
@name_argument
@click.argument("number", metavar="ID", type=click.IntRange(0, MAX_ID))
def remove_token(broker: ConfiguredBroker, name: str, number: int) -> None:
    """Remove the API token ID of the account NAME; token list shows the ids."""
    with storage.open_database(broker.existing_database()) as connection:
        if not rows.remove_token(connection, _find_account(connection, name).id, number):
            raise click.ClickException(
                f"{name} has no token {number}; account token list shows all"
            )
    click.echo(f"the token {number} of {name} is removed")


def _find_account(connection: Connection, name: str) -> Account:
    """The account with a name; the command ends if there is none."""
    found = rows.stored_password(connection, name)
    if found is None:
        raise click.ClickException(f"there is no account {name!r}; account list shows all")
    return found.account


def _ask_for_hash(name: str, options: AccountsConfig, from_stdin: bool) -> str:
    """Read a new password, twice unless it comes from stdin, and return its hash."""
    if from_stdin:
        if sys.stdin is None:  # Python's sign that it was closed
            raise click.ClickException("stdin is closed; nothing was changed")
        try:
            password = sys.stdin.buffer.readline().decode().rstrip("\r\n")
        except UnicodeDecodeError:
            raise click.ClickException("the password is not UTF-8; nothing was changed") from None
    else:
        password = _ask_twice(f"Password for {name}")
    check_password(password, name, options.min_password)
    return Hasher(options).hash(password)


def _ask_twice(prompt: str) -> str:
    """Have a password typed twice, unseen, at the terminal."""
    try:
        with catch_warnings(action="error", category=GetPassWarning):
            password: str = click.prompt(
                prompt, hide_input=True, confirmation_prompt="The same again", err=True
            )
    except GetPassWarning:
        raise click.ClickException(
            "there is no terminal to type the password at; nothing was changed. Give "
            "--password-stdin, and the password as the first line of stdin"
        ) from None
    return password


def _to_the_minute(seconds: float | None) -> str:
    """A time in UTC to the minute; "never" for None."""
    if seconds is None:
        return "never"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%MZ")
