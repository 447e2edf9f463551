"""Deletes expired sessions and API tokens, at the top of each hour."""

from __future__ import annotations

from typing import Final

from rsscloud_broker.account_options import Accounts as AccountOptions
from rsscloud_broker.interfaces import IAccountStore, IClock
from rsscloud_broker.timing import EachPeriod

#: How many sessions and how many tokens one transaction deletes.
PORTION: Final = 500


class AccountSweeper(EachPeriod):
    """Deletes sessions and API tokens that nobody can use any more.

    A service: it runs ``sweep`` each hour, a few minutes after the sweep of subscriptions.
    """

    def __init__(self, store: IAccountStore, clock: IClock, options: AccountOptions) -> None:
        super().__init__(clock, 3600.0, self.sweep, name="sweep of accounts", after=300.0)
        self._store = store
        self._idle = options.session_idle

    async def sweep(self) -> None:
        """Delete what has expired, in portions, so that other writers need not wait long."""
        now = self._clock.wall_seconds()
        while await self._store.sweep_accounts(now, now - self._idle, PORTION) >= PORTION:
            pass
