"""Stores on SQLite and PostgreSQL do the same as a simple model, in any order of calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from hypothesis import HealthCheck, settings
from twisted.internet import reactor
from twisted.internet.interfaces import IReactorFromThreads
from twisted.internet.threads import blockingCallFromThread, deferToThread
from twisted.trial.unittest import SynchronousTestCase, TestCase

from rsscloud_broker.storage import Store
from rsscloud_broker.testing import memory_store
from tests import examples
from tests.machines import run_machine
from tests.postgresql import borrowed_database
from tests.storage.databases import file_database
from tests.store_contract.machine import StoreMachine

MANY = settings(max_examples=examples(15), stateful_step_count=40, deadline=None)
FEW = settings(MANY, max_examples=examples(3), suppress_health_check=[HealthCheck.too_slow])


@contextmanager
def store_in_memory() -> Iterator[Store]:
    store = memory_store()
    yield store
    store.stopService()


class MemoryStoreMachineTests(SynchronousTestCase):
    def test_as_the_model(self) -> None:
        run_machine(partial(StoreMachine, store_in_memory), MANY)


class ThreadedStoreMachineTests(TestCase):
    async def test_as_the_model(self) -> None:
        """Hypothesis runs in a thread, and calls the store in the reactor's thread."""
        machine = partial(StoreMachine, self.store_on_file, in_reactor_thread)
        await deferToThread(run_machine, machine, FEW)

    async def test_as_the_model_on_postgresql(self) -> None:
        with borrowed_database():  # skips this test if there is no PostgreSQL
            machine = partial(StoreMachine, self.store_on_postgresql, in_reactor_thread)
            await deferToThread(run_machine, machine, FEW)

    @contextmanager
    def store_on_file(self) -> Iterator[Store]:
        with running_store(file_database(self)) as store:
            yield store

    @contextmanager
    def store_on_postgresql(self) -> Iterator[Store]:
        with borrowed_database() as url, running_store(url) as store:
            yield store


@contextmanager
def running_store(url: str) -> Iterator[Store]:
    """Start a store in the reactor's thread; call this in another thread."""
    store = Store(IReactorFromThreads(reactor), url)
    in_reactor_thread(store.startService)
    yield store
    in_reactor_thread(store.stopService)


def in_reactor_thread(method: Callable[..., Any], *arguments: Any) -> Any:
    """Call a method in the reactor's thread, and wait for the result of its Deferred."""
    return blockingCallFromThread(IReactorFromThreads(reactor), method, *arguments)
