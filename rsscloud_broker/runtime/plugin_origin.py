"""Finds out where a plugin comes from: its module, its file, and the package that installed it."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import Distribution, distributions, packages_distributions
from pathlib import Path

from attrs import frozen

from rsscloud_broker import __version__

#: The module of the plugins that come with the broker; they run unless the configuration disables
#: them.
BUNDLED = "rsscloud_broker.plugins.bundled"

_OURS = "rsscloud_broker"


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
    path = Path(file).resolve()
    for distribution in among:
        for installed in distribution.files or ():
            if installed.name == path.name and Path(str(installed.locate())).resolve() == path:
                return distribution
    return None
