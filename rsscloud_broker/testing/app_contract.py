"""Contract tests that every application must pass."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import Connection, inspect
from twisted.application.service import IService
from twisted.internet.defer import maybeDeferred
from twisted.python.filepath import FilePath
from twisted.trial.unittest import TestCase
from zope.interface.verify import verifyObject

from rsscloud_broker.database.engine import for_writing, open_engine
from rsscloud_broker.http.offers import Offers
from rsscloud_broker.interfaces import AppTables, IApp, IAppMaker, IEventSink, INotifier
from rsscloud_broker.runtime.plugin_building import Given
from rsscloud_broker.storage import alembic_steps
from rsscloud_broker.storage.schema import metadata
from rsscloud_broker.testing.apps import app_parts
from rsscloud_broker.testing.contracts import DoorChecks


class AppContract(DoorChecks):
    """The tests that every application must pass; ``maker`` makes it with the options ``given``."""

    maker: Any
    given: Any

    def setUp(self) -> None:
        """Make the application, given only those parts that its maker names in ``needs``."""
        tables = self.maker.tables
        self.parts = app_parts(tables, directory=FilePath(self.mktemp()))
        options = self.maker.options() if self.given is None else self.given
        things = {name: getattr(self.parts, name) for name in self.maker.needs}
        self.app = self.maker.make(options, Given(self.maker.name, things))

    def test_interface(self) -> None:
        self.assertTrue(verifyObject(IAppMaker, self.maker))
        self.assertTrue(verifyObject(IApp, self.app))
        self.assertEqual(self.app.name, self.maker.name)
        for interface, parts in (
            (IEventSink, self.app.sinks),
            (INotifier, self.app.notifiers),
            (IService, self.app.services),
        ):
            for part in parts:
                self.assertTrue(verifyObject(interface, part))

    def test_names(self) -> None:
        for parts in (self.app.front_doors, self.app.sinks, self.app.services):
            names = [part.name for part in parts]
            self.assertEqual(len(set(names)), len(names), names)

    async def test_front_doors(self) -> None:
        for door in self.app.front_doors:
            await self.check_door(door)

    def test_nothing_is_offered_twice(self) -> None:
        offers = Offers.of(self.app.front_doors)
        self.assertEqual(
            len(offers.routes), sum(len(door.routes()) for door in self.app.front_doors)
        )

    def test_topics_are_of_one_host(self) -> None:
        for served in self.app.topics:
            parts = urlsplit(served.prefix)
            self.assertIn(parts.scheme, ("http", "https"), served.prefix)
            self.assertTrue(parts.netloc, served.prefix)
            self.assertTrue(parts.path.startswith("/"), served.prefix)

    async def test_topics_that_do_not_exist(self) -> None:
        for served in self.app.topics:
            self.assertIsNone(await served.read(f"{served.prefix}/no/such/topic"))

    async def test_services_start_and_stop(self) -> None:
        for service in self.app.services:
            service.startService()
            self.assertTrue(service.running)
        for service in reversed(self.app.services):
            await maybeDeferred(service.stopService)
            self.assertFalse(service.running)

    def test_names_of_tables(self) -> None:
        """The names of tables begin with that of the application, so that no two share one."""
        if self.maker.tables is not None:
            names = list(self.maker.tables.metadata.tables)
            self.assertTrue(names)
            for name in names:
                self.assertTrue(name.startswith(f"{self.maker.name}_"), name)

    def test_migrations_make_the_same_tables(self) -> None:
        """The migrations, numbered without gaps, make the same tables as the metadata does."""
        tables: AppTables | None = self.maker.tables
        if tables is None:
            return
        revisions = alembic_steps.revisions(tables.migrations)
        count = len(revisions)
        self.assertEqual(revisions, [f"{number:04}" for number in range(count, 0, -1)])
        self.assertEqual(tables.latest, revisions[0])
        made = []
        for by_steps in (False, True):
            engine = open_engine("sqlite://")
            self.addCleanup(engine.dispose)
            with for_writing(engine).begin() as conn:
                metadata.create_all(conn)
                if by_steps:
                    version = f"{self.maker.name}_alembic_version"
                    alembic_steps.run(conn, tables.migrations, version, tables.metadata)
                else:
                    tables.metadata.create_all(conn)
                made.append(definitions(conn, tables))
        self.assertEqual(*made)


def definitions(conn: Connection, tables: AppTables) -> dict[str, Any]:
    """What a database says of the tables of an application: columns, keys, constraints, indexes."""
    seen = inspect(conn)

    def in_order(found: Any) -> list[str]:
        """Some definitions as texts, in an order that is always the same."""
        return sorted(repr(sorted(each.items(), key=str)) for each in found)

    return {
        name: (
            in_order(seen.get_columns(name)),
            in_order([seen.get_pk_constraint(name)]),
            in_order(seen.get_foreign_keys(name)),
            in_order(seen.get_unique_constraints(name)),
            in_order(seen.get_check_constraints(name)),
            in_order(seen.get_indexes(name)),
        )
        for name in seen.get_table_names()
        if name in tables.metadata.tables
    }


def make_app_tests(maker: IAppMaker, options: Any = None) -> type[TestCase]:
    """Make a TestCase that every application must pass.

    The application is made with ``app_parts``.

    :param options: the options that it is made with; by default those of an empty table.
    """

    class AppTests(AppContract):
        pass

    AppTests.maker, AppTests.given = maker, options
    return AppTests
