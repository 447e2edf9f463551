"""Makes the applications; ``tap`` calls it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import evolve, frozen
from twisted.application.service import IService

from rsscloud_broker.interfaces import (
    AccountData,
    AppParts,
    AppTables,
    IApp,
    IEventSink,
    IFrontDoor,
    IKeepsFeeds,
    INotifier,
    ServedTopics,
)
from rsscloud_broker.runtime.plugin_building import described, make_all
from rsscloud_broker.runtime.plugin_discovery import Makers, PluginError

#: The directory with a directory for the files of each application, below that for all data.
DIRECTORY = "apps"


@frozen
class Apps:
    """The parts of all applications that run."""

    front_doors: Sequence[IFrontDoor]
    sinks: Sequence[IEventSink]
    notifiers: Mapping[str, INotifier]
    services: Sequence[IService]
    topics: Sequence[ServedTopics]
    account_data: Sequence[AccountData]


def tables_of(chosen: Sequence[tuple[Any, Any]]) -> dict[str, AppTables]:
    """The tables of the applications that run, by the names of the applications.

    :raises PluginError: a table has a name that does not begin with that of its application.
    """
    found = {maker.name: maker.tables for maker, _ in chosen if maker.tables is not None}
    for name, tables in found.items():
        if strange := [each for each in tables.metadata.tables if not each.startswith(f"{name}_")]:
            raise PluginError(
                f"the tables {', '.join(strange)} of the application {name!r} must have names that "
                f"begin with {name}_; mend or uninstall it, or set enabled = false in [apps.{name}]"
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


def make_apps(makers: Makers, chosen: Sequence[tuple[Any, Any]], parts: AppParts) -> Apps:
    """Make the applications, each with a directory of its own.

    :param chosen: the makers that the configuration enables, with their options.
    :param parts: what each is given; ``directory`` is that of all data.
    :raises PluginError: an application cannot be made, or brings a protocol that exists already.
    """
    apps: list[IApp] = []
    for maker, options in chosen:
        own = parts.directory.descendant([DIRECTORY, maker.name])
        apps += make_all(makers, "apps", [(maker, options)], evolve(parts, directory=own))
    notifiers: dict[str, INotifier] = {}
    for (maker, _), app in zip(chosen, apps, strict=True):
        for notifier in app.notifiers:
            if notifier.protocol in parts.broker.protocols | set(notifiers):
                raise PluginError(
                    f"{described(makers, 'apps', maker)} carries the protocol "
                    f"{notifier.protocol!r}, which another notifier carries already; "
                    f"set enabled = false in [apps.{maker.name}]"
                )
            notifiers[notifier.protocol] = notifier
    return Apps(
        front_doors=[door for app in apps for door in app.front_doors],
        sinks=[sink for app in apps for sink in app.sinks],
        notifiers=notifiers,
        services=[service for app in apps for service in app.services],
        topics=[topics for app in apps for topics in app.topics],
        account_data=[data for app in apps for data in app.account_data],
    )
