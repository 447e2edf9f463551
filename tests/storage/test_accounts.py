"""The store of accounts on SQLite passes the contract, with and without threads."""

from __future__ import annotations

from rsscloud_broker.storage import AccountStore
from rsscloud_broker.testing.memory import memory_accounts
from tests.storage.databases import threaded_account_store
from tests.store_contract import accounts


class MemoryAccountStoreTests(accounts.AccountsContract):
    """The store of accounts without threads, which other tests use, passes the contract."""

    def make_store(self) -> AccountStore:
        return memory_accounts()


class ThreadedAccountStoreTests(accounts.AccountsContract):
    """The store of accounts with threads, which the broker uses, passes the contract."""

    def make_store(self) -> AccountStore:
        return threaded_account_store(self)
