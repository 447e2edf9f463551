"""Two brokers reach their PostgreSQL through pgbouncer, set up as the manual says."""

from __future__ import annotations

import re
from collections.abc import Callable
from json import loads
from pathlib import Path
from typing import Any

from sqlalchemy import text
from twisted.internet.interfaces import IReactorFromThreads
from zope.interface import implementer

from rsscloud_broker.counters import Counters
from rsscloud_broker.database.engine import open_engine
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.events import Event, WorkHinted
from rsscloud_broker.storage import Pulse, Store, examine, migrate, open_database
from rsscloud_broker.storage.hints import FANOUT, hint
from tests.e2e.fixture import run_here, until
from tests.e2e.pgbouncer import PgBouncer
from tests.e2e.test_cluster import Node
from tests.e2e.test_database_faults import DatabaseFaultsTestCase

_MANUAL = Path(__file__).parents[2] / "docs" / "scaling.rst"

_LIMITS = ("lock_timeout", "idle_in_transaction_session_timeout", "statement_timeout")


def settings_of_manual() -> str:
    """The settings of pgbouncer that the manual gives."""
    section = _MANUAL.read_text(encoding="utf-8").partition("\npgbouncer\n---------\n")[2]
    block = re.search(r"::\n\n((?: {4}.+\n)+)", section)
    assert block is not None
    return "\n".join(line.strip() for line in block[1].splitlines())


@implementer(IReactorFromThreads)
class Here:
    """Calls functions in the thread that asks for it."""

    def callFromThread(
        self,
        callable: Callable[..., object],  # noqa: A002 # Twisted's name
        *args: Any,
        **kwargs: Any,
    ) -> None:
        callable(*args, **kwargs)


class PgBouncerTestCase(DatabaseFaultsTestCase):
    def through(self, settings: str) -> PgBouncer:
        """A pgbouncer before the server, which runs."""
        bouncer = PgBouncer(self.server.url("broker"), settings)
        bouncer.start()
        self.addCleanup(bouncer.end)
        return bouncer

    def second(self, url: str) -> Node:
        """A second broker that does not run yet."""
        return self.owned(Node(self.directory(), url))


class SessionTests(PgBouncerTestCase):
    """``pool_mode = session``."""

    def setUp(self) -> None:
        super().setUp()
        self.bouncer = self.through(settings_of_manual())

    def living(self) -> int:
        """How many brokers live, as the command says."""
        done = run_here("nodes", "--config", self.node.configuration, "--json")
        assert done.returncode == 0, done.stderr
        return len(loads(done.stdout))

    def limits(self, *, of_broker: bool) -> list[str]:
        engine = open_engine(self.bouncer.url, of_broker=of_broker)
        try:
            with engine.connect() as connection:
                connection.rollback()
                return [connection.execute(text(f"SHOW {name}")).scalar_one() for name in _LIMITS]
        finally:
            engine.dispose()

    def test_time_limits(self) -> None:
        """The broker has its own, and commands wait as long as they need."""
        self.assertEqual(self.limits(of_broker=True), ["12s", "8s", "14250ms"])
        self.assertEqual(self.limits(of_broker=False), ["12s", "0", "0"])

    def test_hints(self) -> None:
        """A node hears what another one tells it, and does not only look each second."""
        url, here = self.bouncer.url, Here()
        migrate(url)
        heard: list[Event] = []
        pulse = Pulse(here, url, Store(here, url), heard.append, Counters())
        pulse.startService()
        self.addCleanup(pulse.stopService)
        until(lambda: WorkHinted() in heard, "a heartbeat")
        with open_database(url) as connection:
            hint(connection, FANOUT, 7)
        until(lambda: WorkHinted(FANOUT, 7) in heard, "the hint")

    def test_two_brokers_and_a_restart(self) -> None:
        self.begin(self.bouncer.url)
        other = self.second(self.bouncer.url)
        other.start()
        until(lambda: self.living() == 2, "both to live")
        self.source.change(self.feed)
        self.assertEqual(other.ping(self.feed).status, 200)
        self.assert_told(self.receiver, self.feed)

        before = self.pinger.refused
        self.bouncer.kill()
        until(lambda: self.pinger.refused > before, "a ping to be refused")
        self.bouncer.start()
        self.assert_goes_on()
        self.source.change(self.feed)
        until(lambda: other.ping(self.feed).status == 200, "the other one to take a ping")
        self.assert_told(self.receiver, self.feed)
        until(lambda: self.living() == 2, "both to live")
        self.assert_nothing_lost(self.server.url("broker"))


class UnfitSettingsTests(PgBouncerTestCase):
    """Anyone who set pgbouncer up in another way reads what to do."""

    def advice(self, settings: str, options: str = "") -> str:
        url = f"{self.through(settings).url}{options}"
        return str(self.assertRaises(Unavailable, examine, url)).partition("Nothing was changed. ")[
            2
        ]

    def test_what_to_do(self) -> None:
        session = "pool_mode = session\n"
        for said, *given in (
            ("Set pool_mode = session", "pool_mode = statement"),
            (
                "Take what pgbouncer does not know, such as options=",
                session,
                "?options=-c%20a.b%3D1",
            ),
            ("Raise default_pool_size", f"{session}default_pool_size = 1\nquery_wait_timeout = 1"),
        ):
            self.assertIn(said, self.advice(*given))


class TransactionTests(PgBouncerTestCase):
    """``pool_mode = transaction``, with which statements would fail now and then."""

    def test_broker_does_not_start(self) -> None:
        url = self.through("pool_mode = transaction").url
        node = self.second(url)
        wanted = "set pool_mode = session for it"
        self.assertIn(wanted, str(self.assertRaises(AssertionError, node.start)))
        done = run_here("check-config", "--config", node.configuration, "--data", node.data)
        self.assertEqual(done.returncode, 1)
        self.assertIn(wanted, done.stdout + done.stderr)
