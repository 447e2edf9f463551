"""Makes the applications."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from twisted.python.filepath import FilePath

from rsscloud_broker.interfaces import AppTables, IApp, IKeepsFeeds
from rsscloud_broker.runtime.plugin_building import described, make_all
from rsscloud_broker.runtime.plugin_discovery import Makers, PluginError

#: The directory with a directory for the files of each application, below that for all data.
DIRECTORY = "apps"


def tables_of(chosen: Sequence[tuple[Any, Any]]) -> dict[str, AppTables]:
    """The tables of the applications that run, by the names of the applications.

    :raises PluginError: a table has a name that does not begin with that of its application.
    """
    found = {maker.name: maker.tables for maker, _ in chosen if maker.tables is not None}
    for name, tables in found.items():
        if strange := [each for each in tables.metadata.tables if not each.startswith(f"{name}_")]:
            raise PluginError(
                f"the tables {', '.join(strange)} of the application {name!r} must have names that "
                f"begin with {name}_; fix or uninstall it, or set enabled = false in [apps.{name}]"
            )
    return found


def tables_of_feeds(doors: Sequence[tuple[Any, Any]]) -> dict[str, AppTables]:
    """The tables of the front doors that make feeds, by the names with which they begin."""
    found: dict[str, AppTables] = {}
    for maker, _ in doors:
        if IKeepsFeeds.providedBy(maker):
            found |= maker.tables
    return found


def installed_tables(apps: Iterable[Any], doors: Iterable[Any]) -> dict[str, AppTables]:
    """The tables of all applications and front doors, whether they run or not, by the names with
    which they begin.

    :param apps, doors: their makers.
    """
    of_apps = tables_of([(maker, None) for maker in apps])
    return of_apps | tables_of_feeds([(maker, None) for maker in doors])


def make_apps(
    makers: Makers,
    chosen: Sequence[tuple[Any, Any]],
    parts: object,
    data: FilePath[str],
    protocols: Iterable[str],
) -> list[IApp]:
    """Make the applications, each with a directory of its own.

    :param chosen: the makers that the configuration enables, with their options.
    :param parts: has what they need; see ``make_all``.
    :param data: the directory of all data.
    :param protocols: those of the notifiers that are no application's.
    :raises PluginError: an application cannot be made, or brings a protocol that exists already.
    """
    apps: list[IApp] = []
    for maker, options in chosen:
        own = data.descendant([DIRECTORY, maker.name])
        apps += make_all(makers, "apps", [(maker, options)], parts, directory=own)
    carried = set(protocols)
    for (maker, _), app in zip(chosen, apps, strict=True):
        for notifier in app.notifiers:
            if notifier.protocol in carried:
                raise PluginError(
                    f"{described(makers, 'apps', maker)} carries the protocol "
                    f"{notifier.protocol!r}, which another notifier carries already; "
                    f"set enabled = false in [apps.{maker.name}]"
                )
            carried.add(notifier.protocol)
    return apps
