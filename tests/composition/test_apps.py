"""Applications are made with parts of their own, and those that would clash are refused."""

from __future__ import annotations

from typing import Any

from attrs import evolve
from sqlalchemy import Column, Integer, Table
from twisted.application.service import Service
from twisted.python.filepath import FilePath
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.composition.apps import make_apps, tables_of
from rsscloud_broker.database.columns import new_metadata
from rsscloud_broker.interfaces import App, AppParts, AppTables, IApp, ServedTopics
from rsscloud_broker.plugins.bundled import AppMaker
from rsscloud_broker.runtime.plugin_discovery import Makers, PluginError
from rsscloud_broker.testing import (
    FakeNotifier,
    RecordingSink,
    app_parts,
    make_app_tests,
)
from tests.notes import FIRST, NOTES, SECOND, NotesOptions


class NotesContract(make_app_tests(NOTES)):  # type: ignore[misc] # made at run time
    """The smallest application keeps the contract."""


class NewerNotesContract(make_app_tests(evolve(NOTES, tables=SECOND), NotesOptions(2))):  # type: ignore[misc] # made at run time
    """So does its next version, whose migrations have two steps."""


class ContractTests(SynchronousTestCase):
    """The contract finds what is wrong."""

    def failures(self, maker: AppMaker, test: str) -> int:
        from unittest import TestResult  # noqa: PLC0415 # the name would be collected

        result = TestResult()
        make_app_tests(maker)(test).run(result)
        self.assertEqual(result.errors, [])
        return len(result.failures)

    def test_migrations_that_make_other_tables(self) -> None:
        wrong = evolve(SECOND, metadata=FIRST.metadata)
        test = "test_migrations_make_the_same_tables"
        self.assertEqual(self.failures(evolve(NOTES, tables=wrong), test), 1)
        self.assertEqual(self.failures(evolve(NOTES, tables=SECOND), test), 0)

    def test_wrong_latest_revision(self) -> None:
        wrong = evolve(FIRST, latest="0002")
        test = "test_migrations_make_the_same_tables"
        self.assertEqual(self.failures(evolve(NOTES, tables=wrong), test), 1)

    def test_topics_without_a_host(self) -> None:
        async def read(url: str) -> None:
            return None

        def make(options: Any, parts: AppParts) -> App:
            return App("notes", topics=[ServedTopics("/feeds/", read)])

        self.assertEqual(self.failures(evolve(NOTES, make=make), "test_topics_are_of_one_host"), 1)

    def test_two_services_of_one_name(self) -> None:
        def make(options: Any, parts: AppParts) -> App:
            return App("notes", services=[Service(), Service()])

        self.assertEqual(self.failures(evolve(NOTES, make=make), "test_names"), 1)


class TablesTests(SynchronousTestCase):
    def test_tables_by_application(self) -> None:
        bare = evolve(NOTES, name="bare", tables=None)
        self.assertEqual(tables_of([(NOTES, None), (bare, None)]), {"notes": FIRST})

    def test_tables_of_another_name(self) -> None:
        metadata = new_metadata()
        for name in ("notes_a", "notesb", "topic"):
            Table(name, metadata, Column("id", Integer, primary_key=True))
        maker = evolve(NOTES, tables=AppTables(metadata, "tests.notes:migrations", "0001"))
        error = self.assertRaises(PluginError, tables_of, [(maker, None)])
        self.assertIn("the tables notesb, topic of the application 'notes'", str(error))
        self.assertIn("set enabled = false in [apps.notes]", str(error))


class MakeTests(SynchronousTestCase):
    def made(self, *apps: App) -> list[IApp]:
        self.given: list[AppParts] = []

        def maker(app: App) -> AppMaker:
            def make(options: Any, parts: AppParts) -> App:
                self.given.append(parts)
                return app

            return AppMaker(app.name, "for tests", NotesOptions, make, needs=("directory",))

        makers = [maker(app) for app in apps]
        found = Makers(apps={each.name: each for each in makers})
        chosen = [(each, NotesOptions()) for each in makers]
        return make_apps(found, chosen, app_parts(), FilePath("/data"), {"http-post"})

    def test_each_has_a_directory(self) -> None:
        self.made(App("a"), App("b"))
        directories = [parts.directory.path for parts in self.given]
        self.assertEqual(directories, ["/data/apps/a", "/data/apps/b"])

    def test_in_the_order_of_the_makers(self) -> None:
        apps = [App("a", sinks=[RecordingSink()]), App("b", services=[Service()])]
        self.assertEqual(self.made(*apps), apps)

    def test_protocol_that_another_notifier_has(self) -> None:
        for apps in (
            [App("b", notifiers=[FakeNotifier("http-post")])],
            [App("a", notifiers=[FakeNotifier("x")]), App("b", notifiers=[FakeNotifier("x")])],
        ):
            error = self.assertRaises(PluginError, self.made, *apps)
            self.assertIn("which another notifier carries already", str(error))
            self.assertIn("[apps.b]", str(error))
