"""Deletes expired sessions and API tokens, at the top of each hour.

If several nodes share a database, one of them does so for all.
"""

from __future__ import annotations

from typing import Final

from rsscloud_broker.config.accounts import AccountsConfig as AccountOptions
from rsscloud_broker.interfaces import IClock, IJobs
from rsscloud_broker.storage import AccountStore
from rsscloud_broker.util.cluster_jobs import PeriodicClusterJob

#: How many sessions and how many tokens one transaction deletes.
PORTION: Final = 500


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
