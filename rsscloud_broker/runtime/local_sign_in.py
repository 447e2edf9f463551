"""Prints a link in the terminal that signs the person in who started the broker, with ``--local``.

At the first start there is no account yet, so one is made, for an administrator without a password.
Each start prints a new link, which works once, in a browser on this machine: see
``web.sign_in_link``.  The link is in the log only if the process has no terminal.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from attrs import define, field
from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger

from rsscloud_broker.accounts import digest_of, new_secret
from rsscloud_broker.config import Config
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.interfaces import Account, IClock
from rsscloud_broker.storage import AccountStore
from rsscloud_broker.web.sign_in_link import link_to

#: The name of the account that is made.
NAME: Final = "myself"

#: Seconds for which a link works.
LINK_LIFE: Final = 900


@define(eq=False)
class LocalSignIn(Service):
    """Prints a sign-in link when the broker starts.

    :param broker: the URL of the broker for a browser on this machine.
    :param next_path: where the link leads after signing in.
    :param say: writes a text to the terminal, and returns whether there is one.
    :param data: the data directory of the broker.
    """

    name = "local sign-in"
    log = Logger()

    _store: AccountStore
    _clock: IClock
    _broker: str
    _next_path: str
    _say: Callable[[str], bool]
    _data: str = Config().data
    _offer_call: Deferred[None] | None = field(default=None, init=False)

    def startService(self) -> None:
        super().startService()
        self._offer_call = Deferred.fromCoroutine(self._offer())

    def stopService(self) -> None:
        super().stopService()
        if self._offer_call is not None:
            self._offer_call.cancel()

    async def _offer(self) -> None:
        """Store a link to the account of the person who started the broker, and print it."""
        try:
            account = await self._find_or_make_account()
            secret = new_secret()
            expires_at = self._clock.wall_seconds() + LINK_LIFE
            if account and await self._store.add_link(account.id, digest_of(secret), expires_at):
                link = link_to(self._broker, secret, self._next_path)
                if not self._say(invitation(link, account.name, self._data)):
                    self.log.info(
                        "Sign in as {name}, once and on this machine: {link}",
                        name=account.name,
                        link=link,
                    )
        except CancelledError:
            pass
        except Unavailable as error:
            self.log.error("No link to sign in could be made: {error}", error=error)
        except Exception:  # a bug: the broker works without the link
            self.log.failure("No link to sign in could be made.")

    async def _find_or_make_account(self) -> Account | None:
        """The account of the person who started the broker; it is made if there is no account at
        all.

        If there are accounts, it is the one of that name, or else an administrator's, or else any
        other that is not disabled; None if all are.
        """
        accounts = await self._store.accounts()
        if not accounts:
            now = self._clock.wall_seconds()
            return await self._store.add_account(NAME, "", is_admin=True, at=now)
        return min(
            (each for each in accounts if not each.disabled),
            key=lambda each: (each.name != NAME, not each.is_admin, each.name),
            default=None,
        )


def invitation(link: str, name: str, data: str) -> str:
    """What is printed beside a link to an account of the broker with a data directory."""
    where = "" if data == Config().data else f" --data {shlex.quote(data)}"
    return (
        f"\nSign in as {name} with this link, in a browser on this machine:\n\n    {link}\n\n"
        f"It works once, within {LINK_LIFE // 60} minutes.  To get another one: "
        f"{command()} account link {name}{where}\n\n"
    )


def command() -> str:
    """How to call ``rsscloud-broker`` in this directory, for people to paste.

    A virtual environment that is not active, as that of ``make run``, is not on the path.
    """
    beside = Path(sys.executable).with_name("rsscloud-broker")
    if shutil.which(beside.name) or not beside.exists():
        return beside.name
    here = Path.cwd()
    return str(beside.relative_to(here) if beside.is_relative_to(here) else beside)


def write_to_terminal(text: str) -> bool:
    """Write a text to the terminal that the process was started in.

    ``sys.stdout`` does not lead there: twistd puts everything that is written to it into the log.

    :returns: whether there is a terminal.
    """
    try:
        if sys.__stdout__ is None or not sys.__stdout__.isatty():
            return False
        sys.__stdout__.write(text)
        sys.__stdout__.flush()
    except (OSError, ValueError):  # it was closed
        return False
    return True
