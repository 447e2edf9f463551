"""The store of accounts on SQLite passes the contract, with and without threads."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from rsscloud_broker.storage import AccountStore
from rsscloud_broker.testing.memory import memory_accounts
from tests.storage.databases import threaded_account_store
from tests.store_contract import make_account_store_tests


def memory_account_store(case: TestCase) -> AccountStore:
    """A store of accounts in memory."""
    return memory_accounts()


class MemoryAccountStoreTests(make_account_store_tests(memory_account_store)):  # type: ignore[misc] # made at run time
    """The store of accounts without threads, which other tests use, passes the contract."""


class ThreadedAccountStoreTests(make_account_store_tests(threaded_account_store)):  # type: ignore[misc] # made at run time
    """The store of accounts with threads, which the broker uses, passes the contract."""
