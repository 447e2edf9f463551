"""The sweep of expired sessions and API tokens."""

from __future__ import annotations

from twisted.internet.defer import Deferred, succeed
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.accounts import AccountSweeper
from rsscloud_broker.accounts.sweeping import PORTION
from rsscloud_broker.interfaces import SignIn
from rsscloud_broker.testing import memory_store
from tests.accounts.fixture import PASSWORD, PATIENT, AccountHouse


class SweeperTests(SynchronousTestCase):
    def test_each_hour(self) -> None:
        house = AccountHouse(self, PATIENT)
        caller = house.result(house.accounts.sign_in(SignIn("dave", PASSWORD, "192.0.2.7"))).caller
        sweeper = AccountSweeper(house.store, memory_store(), house.clock, PATIENT)
        sweeper.startService()
        self.addCleanup(sweeper.stopService)
        house.clock.pump([5.0] * 800)
        sessions = self.successResultOf(house.store.sessions(caller.account.id))
        self.assertEqual(len(sessions), 1)
        house.clock.advance(PATIENT.session_idle)
        house.clock.pump([5.0] * 800)
        self.assertEqual(self.successResultOf(house.store.sessions(caller.account.id)), [])

    def test_in_portions(self) -> None:
        house = AccountHouse(self, PATIENT)
        left = [2 * PORTION, PORTION, PORTION - 1]
        limits = []

        def sweep(now: float, used_before: float, limit: int) -> Deferred[int]:
            limits.append(limit)
            return succeed(left.pop(0))

        self.patch(house.store, "sweep_accounts", sweep)
        house.result(AccountSweeper(house.store, memory_store(), house.clock, PATIENT).sweep())
        self.assertEqual((limits, left), ([PORTION] * 3, []))
