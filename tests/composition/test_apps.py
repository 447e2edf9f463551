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

    def test_faulty_applications(self) -> None:
        from unittest import TestResult  # noqa: PLC0415 # the name would be collected

        async def read(url: str) -> None:
            return None

        tables, topics = "test_migrations_make_the_same_tables", [ServedTopics("/feeds/", read)]
        for fault, changes, test in (
            ("none", {"tables": SECOND}, tables),
            ("other tables", {"tables": evolve(SECOND, metadata=FIRST.metadata)}, tables),
            ("a wrong revision", {"tables": evolve(FIRST, latest="0002")}, tables),
            ("topics without a host", made_as(topics=topics), "test_topics_are_of_one_host"),
            ("services of one name", made_as(services=[Service(), Service()]), "test_names"),
        ):
            result = TestResult()
            make_app_tests(evolve(NOTES, **changes))(test).run(result)
            failed = (result.errors, len(result.failures))
            self.assertEqual(failed, ([], 0 if fault == "none" else 1), fault)


def made_as(**parts: Any) -> dict[str, Any]:
    """A maker's ``make`` that makes an application with some parts."""
    return {"make": lambda options, given: App("notes", **parts)}


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
