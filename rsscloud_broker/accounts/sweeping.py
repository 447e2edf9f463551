"""Deletes what belongs to nobody: expired sessions and tokens, and data of removed accounts."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Final

from twisted.logger import Logger

from rsscloud_broker.config.accounts import AccountsConfig as AccountOptions
from rsscloud_broker.interfaces import AccountData, IClock, IJobs
from rsscloud_broker.storage import AccountStore
from rsscloud_broker.util.clock import EachPeriod
from rsscloud_broker.util.cluster_jobs import PeriodicClusterJob

#: How many sessions and how many tokens one transaction deletes.
PORTION: Final = 500

#: Seconds after the removal of an account until none of its requests is under way any more: one
#: that names a file elsewhere waits for the server of that file, twice for half a minute.
LATE: Final = 120.0


class AccountSweeper(PeriodicClusterJob):
    """Deletes sessions and API tokens that nobody can use any more.

    A service: it runs ``sweep`` each hour, a few minutes after the sweep of subscriptions.
    """

    def __init__(
        self, store: AccountStore, jobs: IJobs, clock: IClock, options: AccountOptions
    ) -> None:
        super().__init__(clock, 3600.0, self.sweep, jobs, name="sweep of accounts", after=300.0)
        self._store = store
        self._idle = options.session_idle

    async def sweep(self, due_at: float = 0.0) -> None:
        """Delete what has expired, in portions, so that other writers need not wait long."""
        now = self._clock.wall_seconds()
        while await self._store.sweep_accounts(now, now - self._idle, PORTION) >= PORTION:
            pass


class RemovedAccounts(EachPeriod):
    """Notices when accounts are removed, and has applications delete what they keep for these.

    An account may be removed by a command, while the broker runs or does not.  So nobody has to
    tell this service: it compares the ids in the tables of applications with those of the accounts.

    It looks every few seconds.  It reads the tables of applications when it starts, and
    when an account was removed.  A request of the account may be under way then and store something
    later, so the next look reads them once more, and so does one when all such requests are over.
    """

    log = Logger()

    def __init__(self, store: AccountStore, clock: IClock, data: Sequence[AccountData]) -> None:
        # Seconds between two looks.
        super().__init__(clock, 5.0, self.look, name="removed accounts", at_start=True)
        self._store = store
        self._data = data
        # How many accounts there were at the last look, and the largest id: no id is used twice, so
        # each removal and each new account changes one of them.
        self._census: tuple[int, int] | None = None
        # Whether the next look reads the tables even if no account was removed.
        self._once_more = False
        # When the tables are read for the last time after a removal (see ``LATE``), by the
        # monotonic clock; infinite if nothing was removed lately.
        self._late_at = inf

    async def look(self) -> None:
        """Delete what belongs to accounts that are gone.

        :raises Unavailable: the database cannot be used; the next look goes on.
        """
        census = await self._store.census()
        is_other, self._census = census != self._census, census
        now = self._clock.seconds()
        if is_other:
            self._late_at = now + LATE
        is_late = now >= self._late_at
        if not (is_other or self._once_more or is_late):
            return
        self._once_more = True  # even if this look fails
        found = 0
        for data in self._data:
            # The data of this many accounts is deleted in one look.
            for account in await self._store.ids_without_account(data.column, 100):
                found += 1
                await self._have_deleted(data, account)
        self._once_more = bool(found) or is_other
        if is_late:
            self._late_at = inf

    async def _have_deleted(self, data: AccountData, account: int) -> None:
        """Have an application delete the data of an account; an error is logged."""
        try:
            await data.remove(account)
        except Exception:  # the data of other accounts can be deleted all the same
            self.log.failure(
                "What belongs to the removed account {account} could not be deleted from {table}.",
                account=account,
                table=data.column.table.name,
            )
            return
        self.log.info(
            "What belonged to the removed account {account} is deleted from {table}.",
            account=account,
            table=data.column.table.name,
        )
