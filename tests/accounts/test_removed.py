"""What applications keep for accounts goes after the accounts."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Integer, Table, delete, insert, select
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.accounts import RemovedAccounts
from rsscloud_broker.database.columns import new_metadata
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.interfaces import Account, AccountData, AppTables
from rsscloud_broker.storage import AccountStore
from rsscloud_broker.testing import Clock
from rsscloud_broker.testing.memory import memory_database

metadata = new_metadata()
note = Table(
    "notes_note",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("account_id", BigInteger),
)


class RemovedAccountsTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.database = memory_database(AppTables(metadata, "unused", "0001"))
        self.store = AccountStore(self.database)
        self.removed: list[int] = []
        self.fail_for: set[int] = set()
        data = AccountData(note.c.account_id, self.remove)
        self.service = RemovedAccounts(self.store, self.clock, [data])

    async def remove(self, account: int) -> None:
        if account in self.fail_for:
            raise ValueError("a bug")
        self.removed.append(account)
        await self.database.write(
            lambda conn: conn.execute(delete(note).where(note.c.account_id == account))
        )

    def start(self) -> None:
        self.service.startService()
        self.addCleanup(self.service.stopService)

    def account(self, name: str = "dave") -> Account:
        made = self.successResultOf(self.store.add_account(name, "", False, 1000.0))
        assert made is not None
        return made

    def add_note(self, account: int | None) -> None:
        query = insert(note).values(account_id=account)
        self.successResultOf(self.database.write(lambda conn: conn.execute(query)))

    def owners(self) -> list[int | None]:
        query = select(note.c.account_id).order_by(note.c.id)
        return self.successResultOf(
            self.database.read(lambda conn: list(conn.execute(query).scalars()))
        )

    def let_it_look(self) -> None:
        self.clock.pump([1.0] * int(5.0 + 1))

    def test_account_that_is_removed_while_the_broker_runs(self) -> None:
        dave, anna = self.account("dave"), self.account("anna")
        for owner in (dave.id, anna.id, dave.id):
            self.add_note(owner)
        self.start()
        self.let_it_look()
        self.assertEqual(self.owners(), [dave.id, anna.id, dave.id])
        self.successResultOf(self.store.remove_account("dave"))
        self.let_it_look()
        self.assertEqual((self.owners(), self.removed), ([anna.id], [dave.id]))

    def test_rows_of_nobody_stay(self) -> None:
        for nobody in (0, None):
            self.add_note(nobody)
        self.start()
        self.assertEqual((self.removed, self.owners()), ([], [0, None]))

    def test_what_is_stored_a_moment_after_the_removal(self) -> None:
        dave = self.account()
        self.start()
        self.let_it_look()
        self.successResultOf(self.store.remove_account("dave"))
        self.let_it_look()
        self.add_note(dave.id)
        self.let_it_look()
        self.assertEqual(self.removed, [dave.id])

    def test_what_a_long_request_stores_after_the_removal(self) -> None:
        """A message waits, for instance, until the server of its enclosure has answered."""
        dave = self.account()
        self.start()
        self.successResultOf(self.store.remove_account("dave"))
        self.clock.pump([1.0] * 60)
        self.add_note(dave.id)
        self.clock.pump([1.0] * 70)
        self.assertEqual((self.removed, self.owners()), ([dave.id], []))

    def test_no_table_is_read_while_no_account_is_removed(self) -> None:
        self.start()
        self.let_it_look()
        read = []

        def reading(column: object, limit: int) -> Deferred[list[int]]:
            read.append(column)
            return Deferred()

        self.patch(self.store, "ids_without_account", reading)
        self.account()
        self.let_it_look()  # the census is another one
        self.assertEqual(len(read), 1)

    def test_failure_is_logged_and_tried_again(self) -> None:
        for owner in (7, 8):
            self.add_note(owner)
        self.fail_for = {7}
        self.start()
        self.assertEqual(self.removed, [8])
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        self.fail_for = set()
        self.let_it_look()
        self.assertEqual(self.removed, [8, 7])

    def test_database_that_cannot_be_used(self) -> None:
        self.add_note(7)
        reading = self.store.ids_without_account

        def unavailable(column: object, limit: int) -> Deferred[list[int]]:
            self.patch(self.store, "ids_without_account", reading)
            raise Unavailable("the disk is gone")

        self.patch(self.store, "ids_without_account", unavailable)
        self.start()
        self.let_it_look()
        self.assertEqual(self.removed, [7])

    def test_many_accounts_in_portions(self) -> None:
        for owner in range(1, 100 + 2):
            self.add_note(owner)
        self.start()
        self.assertEqual(len(self.removed), 100)
        self.let_it_look()
        self.assertEqual(self.owners(), [])
