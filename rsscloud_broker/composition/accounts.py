"""Makes the parts of accounts and connects them; ``tap`` calls it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen
from twisted.application.service import IService
from twisted.cred.credentials import IUsernamePassword
from twisted.cred.portal import Portal

from rsscloud_broker.accounts import (
    AccountRealm,
    Accounts,
    AnyOf,
    Hasher,
    Passwords,
)
from rsscloud_broker.config import Config
from rsscloud_broker.interfaces import CheckerParts, IAccounts, IAccountStore, ICallers, IClock
from rsscloud_broker.policy.rate_limits import RateLimit
from rsscloud_broker.runtime.plugin_building import described, make_all
from rsscloud_broker.runtime.plugin_discovery import Makers, PluginError
from rsscloud_broker.util.threads import Workers
from rsscloud_broker.web.callers import Callers


@frozen
class AccountParts:
    """The parts of accounts.

    :ivar accounts: what accounts can do.
    :ivar callers: finds out who makes a request.
    :ivar services: the parts that start and stop with the broker.
    """

    accounts: IAccounts
    callers: ICallers
    services: Sequence[IService]


def make_accounts(
    store: IAccountStore,
    config: Config,
    reactor: Any,
    clock: IClock,
    makers: Makers,
    chosen: Mapping[str, Sequence[tuple[Any, Any]]],
) -> AccountParts:
    """Make the parts of accounts.

    :param chosen: the makers that the configuration enables with their options, by kind.
    :raises PluginError: a checker cannot be made, or checks no passwords.
    """
    options = config.accounts
    # How many passwords are hashed at the same time: each takes ``hash_memory_kib`` and processor
    # time from everything else.
    hashing = Workers(reactor, "passwords", 2)
    passwords = Passwords(store, Hasher(options), hashing)
    parts = CheckerParts(passwords, clock, hashing)
    checkers = make_all(makers, "checkers", chosen["checkers"], parts)
    for (maker, _), checker in zip(chosen["checkers"], checkers, strict=True):
        if IUsernamePassword not in checker.credentialInterfaces:
            raise PluginError(
                f"{described(makers, 'checkers', maker)} checks no passwords: its "
                "credentialInterfaces lack IUsernamePassword; mend or uninstall it, or set "
                f"enabled = false in [checkers.{maker.name}]"
            )
    accounts = Accounts(
        store,
        Portal(AccountRealm(store), [AnyOf(checkers)]),
        passwords,
        clock,
        options,
        RateLimit(options.attempts_per_source, options.attempts_burst, clock).take,
        RateLimit(options.attempts_per_name, options.attempts_burst, clock).take,
    )
    return AccountParts(accounts, Callers(accounts, config.address), [hashing])
