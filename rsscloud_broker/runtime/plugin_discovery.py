"""Finds plugins, and selects those that run.

`discover` finds the makers of front doors, notifiers, sinks, credentials checkers and applications:
the bundled ones and those that other packages installed into ``rsscloud_broker.plugins``.  `select`
picks the makers that the configuration enables, and checks their options.  A plugin of another
package runs only if the configuration has a table for it, and an application only if that table
says so.

``twisted.plugin`` silently skips modules that it cannot import, and objects that provide none of
the broker's interfaces.  This module reports all of these at once, and the broker does not start
with plugins missing.
"""

from __future__ import annotations

import pkgutil
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.metadata import Distribution, distributions, packages_distributions
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeVar, get_type_hints

import attrs
from attrs import field, frozen
from twisted.plugin import IPlugin, getPlugins
from zope.interface import Invalid
from zope.interface.interface import InterfaceClass
from zope.interface.verify import verifyObject

from rsscloud_broker import __version__, plugins
from rsscloud_broker.config import ConfigError, build, nearest
from rsscloud_broker.interfaces import (
    IAppMaker,
    ICheckerMaker,
    IFrontDoorMaker,
    INotifierMaker,
    IPluginMaker,
    ISinkMaker,
)

Maker = TypeVar("Maker", bound=IPluginMaker)

#: The kinds of plugins: the name of their tables, and the interface of their makers.
KINDS: Final[Mapping[str, InterfaceClass]] = {
    "front_doors": IFrontDoorMaker,
    "notifiers": INotifierMaker,
    "sinks": ISinkMaker,
    "checkers": ICheckerMaker,
    "apps": IAppMaker,
}

_KINDS_IN_WORDS: Final = ", ".join(interface.__name__ for interface in KINDS.values())


#: The module of the plugins that come with the broker; they run unless the configuration disables
#: them.
BUNDLED = "rsscloud_broker.plugins.bundled"

_OURS = "rsscloud_broker"


class PluginError(Exception):
    """Plugins cannot be used.  Its lines say which and why, and which other ones were found."""


@frozen
class PluginLocation:
    """Where a plugin is defined.

    :ivar module: the dotted name of the module on the drop-in path.
    :ivar attribute: the name of the plugin in that module.
    :ivar file: the file of the module.
    :ivar made_by: the dotted name of the module that defines the plugin's class.
    """

    module: str
    attribute: str
    file: str
    made_by: str

    def __str__(self) -> str:
        return f"{self.module}.{self.attribute} ({self.file})"

    @property
    def package(self) -> str:
        """The distribution that installed the plugin, and its version, for people.

        If no installed distribution contains the plugin: its module and file.
        """
        if self.module == BUNDLED:  # other packages install their modules beside that one
            return f"rsscloud-broker {__version__}"
        top = self.made_by.partition(".")[0]
        named = packages_distributions().get(top, []) if top != _OURS else []
        found = _with_file(self.file, distributions())
        if found is None and named:
            return f"{named[0]} {Distribution.from_name(named[0]).version}"
        return f"{self.module} ({self.file})" if found is None else f"{found.name} {found.version}"


def _with_file(file: str, among: Iterable[Distribution]) -> Distribution | None:
    """The distribution that installed a file; None if there is none."""
    path = Path(file).resolve()
    for distribution in among:
        for installed in distribution.files or ():
            if installed.name == path.name and Path(str(installed.locate())).resolve() == path:
                return distribution
    return None


@frozen
class Makers:
    """The makers that were found, by name."""

    front_doors: dict[str, IFrontDoorMaker] = field(factory=dict)
    notifiers: dict[str, INotifierMaker] = field(factory=dict)
    sinks: dict[str, ISinkMaker] = field(factory=dict)
    checkers: dict[str, ICheckerMaker] = field(factory=dict)
    apps: dict[str, IAppMaker] = field(factory=dict)
    _locations: dict[int, PluginLocation] = field(factory=dict, eq=False, repr=False)

    def package_of(self, maker: IPluginMaker) -> str:
        """The distribution of a maker and its version, for people; its module if not known."""
        location = self._locations.get(id(maker))
        return location.package if location else type(maker).__module__

    def of_kind(self, kind: str) -> dict[str, Any]:
        """The makers of one of the `KINDS`."""
        found: dict[str, Any] = getattr(self, kind)
        return found

    def __str__(self) -> str:
        return "; ".join(
            f"{kind}: {', '.join(sorted(self.of_kind(kind))) or 'none'}" for kind in KINDS
        )


# --- finding ----------------------------------------------------------------


def discover(package: ModuleType = plugins) -> Makers:
    """Find every maker on a drop-in path.

    :raises PluginError: a module cannot be imported, holds no maker or is hidden by another; or
        a maker does not provide its interface, has a name that cannot be a table or that
        another maker has, or its options are no attrs class.  The error lists all faults.
    """
    makers, problems = survey(package)
    if problems:
        raise PluginError(f"{report(problems)}\n  found: {makers}")
    return makers


def survey(package: ModuleType = plugins) -> tuple[Makers, list[str]]:
    """Find the usable makers on a drop-in path, and the faults of the others.

    :returns: the makers, and a sentence for each fault.
    """
    problems: list[str] = []
    modules = _import_all(package, problems)
    locations = _locations(modules, problems)
    makers, seen = Makers(locations=locations), set()
    for plugin in _plugins(package, modules, complete=not problems):
        # A plugin is seen several times if one module imports it from another.
        if id(plugin) in locations and id(plugin) not in seen:
            seen.add(id(plugin))
            _add(plugin, locations, makers, problems)
    problems.extend(
        f"{location} is not in the cache of Twisted, which is out of date: "
        "remove the file dropin.cache beside that module"
        for maker, location in locations.items()
        if maker not in seen
    )
    return makers, problems


def report(problems: Sequence[str]) -> str:
    """The faults that `survey` returned, as text for people."""
    return "plugins cannot be used:" + "".join(f"\n  {problem}" for problem in problems)


def _plugins(
    package: ModuleType, modules: Mapping[str, tuple[ModuleType, str]], *, complete: bool
) -> Iterator[Any]:
    """Every plugin on a drop-in path.

    ``getPlugins`` is called only if no module is faulty: it imports the modules again, and would
    log a traceback for each that fails.

    :param modules: what `_import_all` returned.
    :param complete: whether no module is faulty.
    """
    if complete:
        yield from getPlugins(IPlugin, package)
        return
    for module, _ in modules.values():
        yield from filter(IPlugin.providedBy, vars(module).values())


def _import_all(package: ModuleType, problems: list[str]) -> dict[str, tuple[ModuleType, str]]:
    """Import every module of a drop-in path; return them by name, each with its file."""
    modules: dict[str, tuple[ModuleType, str]] = {}
    for name, file in _modules(package, problems):
        # A plugin may raise anything, even SystemExit.
        try:
            modules[name] = (import_module(name), file)
        except (Exception, SystemExit) as error:
            problems.append(
                f"{name} ({file}) cannot be imported: {type(error).__name__}: {error}; "
                "fix or uninstall the package that it belongs to"
            )
    return modules


def _locations(
    modules: Mapping[str, tuple[ModuleType, str]], problems: list[str]
) -> dict[int, PluginLocation]:
    """The location of each plugin in the imported modules, by the plugin's ``id``."""
    locations: dict[int, PluginLocation] = {}
    for name, (module, file) in modules.items():
        here = {
            id(value): PluginLocation(name, key, file, type(value).__module__)
            for key, value in vars(module).items()
            if IPlugin.providedBy(value)
        }
        if not here:
            problems.append(
                f"{name} ({file}) holds no plugin: one of its names must be an instance of "
                f"a class that implements one of {_KINDS_IN_WORDS}"
            )
        locations = here | locations
    return locations


def _modules(package: ModuleType, problems: list[str]) -> Iterator[tuple[str, str]]:
    """The names and files of the modules on a drop-in path: of those with one name, the first."""
    files: dict[str, str] = {}
    for directory in dict.fromkeys(package.__path__):
        for info in pkgutil.iter_modules([directory], f"{package.__name__}."):
            spec = info.module_finder.find_spec(info.name, None)
            file = (spec.origin if spec else None) or directory
            if info.name in files:
                problems.append(
                    f"{info.name} ({file}) is hidden by {files[info.name]}: "
                    "modules of different packages need different names"
                )
            else:
                files[info.name] = file
                yield info.name, file


def _add(
    plugin: Any, locations: Mapping[int, PluginLocation], makers: Makers, problems: list[str]
) -> None:
    location = locations[id(plugin)]
    kinds = [kind for kind, interface in KINDS.items() if interface.providedBy(plugin)]
    if not kinds:
        problems.append(f"{location} provides none of {_KINDS_IN_WORDS}")
    for kind in kinds:
        faults = list(_faults(plugin, KINDS[kind]))
        problems.extend(f"{location}: {fault}" for fault in faults)
        if faults:
            continue
        found = makers.of_kind(kind)
        first = found.setdefault(plugin.name, plugin)
        if first is not plugin:
            problems.append(
                f"{location} has the name {plugin.name!r}, which is taken among the {kind} "
                f"by {locations[id(first)]}; names must be unique"
            )


def _faults(maker: Any, interface: InterfaceClass) -> Iterator[str]:
    """A clause for people about each fault of a maker."""
    try:
        verifyObject(interface, maker)
    except Invalid as error:
        yield f"does not keep to {interface.__name__}: {error}"
        return
    if not isinstance(maker.name, str) or not re.fullmatch(r"[A-Za-z0-9_-]+", maker.name):
        yield (
            f"its name is {maker.name!r}; it must be a str of letters, digits, '_' and '-' "
            "of ASCII, for it names a table in the configuration"
        )
    if not isinstance(maker.help, str):
        yield f"its help is {maker.help!r}; it must be a str that says what the plugin does"
    if not isinstance(maker.needs, tuple) or not all(isinstance(each, str) for each in maker.needs):
        yield (
            f"its needs are {maker.needs!r}; they must be a tuple of the names of what make() is "
            "given, such as ('broker', 'clock')"
        )
    if not isinstance(maker.options, type) or not attrs.has(maker.options):
        yield f"its options are {maker.options!r}; they must be an attrs class"
        return
    try:
        get_type_hints(maker.options)
    except Exception as error:
        yield f"the types of its options cannot be found out: {type(error).__name__}: {error}"


# --- selecting --------------------------------------------------------------


def select(
    makers: Mapping[str, Maker], tables: Mapping[str, Mapping[str, Any]], kind: str, where: str = ""
) -> list[tuple[Maker, Any]]:
    """Select the makers that the configuration enables.

    :param makers: the makers of one kind, by name, such as ``discover().sinks``.
    :param tables: the tables of that kind in the configuration, by name.
    :param kind: one of the `KINDS`.
    :param where: the configuration file, for messages.
    :returns: each enabled maker with an instance of its options, in the order of their names.
    :raises ConfigError: a table names no plugin that was found, or has faults.  The error lists
        all faults.
    """
    chosen: list[tuple[Maker, Any]] = []
    problems: list[str] = []
    for name in sorted({*makers, *tables}):
        try:
            if name not in makers:
                raise ConfigError(
                    f"[{kind}.{name}]: no such plugin was found; {nearest(name, makers)}"
                )
            maker = makers[name]
            table = dict(tables.get(name, {}))
            runs = kind != "apps" and (name in tables or _is_bundled(maker))
            if _take_enabled(table, default=runs, location=f"[{kind}.{name}]"):
                options = build(maker.options, table, "", path=(kind, name), others={"enabled"})
                chosen.append((maker, options))
        except ConfigError as error:
            problems.extend(str(error).splitlines())
    if problems:
        prefix = f"{where}: " if where else ""
        raise ConfigError("\n".join(prefix + problem for problem in problems))
    return chosen


def faults(makers: Makers, configuration: Mapping[str, Any]) -> list[str]:
    """The faults that `select` would find in the tables of every kind, a line for each.

    :param configuration: the parsed TOML document, which may have other faults.
    """
    problems: list[str] = []
    for kind in KINDS:
        tables = configuration.get(kind, {})
        if not isinstance(tables, dict) or not all(isinstance(t, dict) for t in tables.values()):
            continue  # `config` reports this fault
        try:
            select(makers.of_kind(kind), tables, kind)
        except ConfigError as error:
            problems.extend(str(error).splitlines())
    return problems


def _take_enabled(table: dict[str, Any], *, default: bool, location: str) -> bool:
    """Remove and return ``enabled`` from a plugin's table: the broker's key, not the plugin's."""
    enabled = table.pop("enabled", default)
    if not isinstance(enabled, bool):
        raise ConfigError(f"{location} enabled: must be true or false, not {enabled!r}")
    return enabled


def bundled(makers: Mapping[str, Maker]) -> list[str]:
    """The names of those makers that come with the broker."""
    return [name for name, maker in makers.items() if _is_bundled(maker)]


def _is_bundled(maker: IPluginMaker) -> bool:
    # By identity: another package may use a bundled class for a maker of its own.
    bundled = sys.modules.get(BUNDLED)
    return bundled is not None and any(maker is value for value in vars(bundled).values())
