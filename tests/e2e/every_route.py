"""The routes of a whole broker, with the parameters that each may have.

Nothing is listed by hand: the doors are those of a broker with all that comes with it, and the
names of parameters are those in the sources of each door, and of the codecs that it uses.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

from attrs import frozen
from twisted.internet import reactor

import rsscloud_broker
from rsscloud_broker.composition.server import Server
from rsscloud_broker.config import Config
from rsscloud_broker.runtime.plugin_discovery import discover
from rsscloud_broker.web.assets import AssetsDoor

#: How sources name parameters: of requests, such as ``parameter(request, "url")``; and of what is
#: read from them, such as ``values.get("url")``.
_OF_REQUESTS = re.compile(r"""request,\s*["']([\w.]+)["']""")
_OF_VALUES = re.compile(r"""(?:values,\s*|\.get\(\s*|(?:fields|values)\[)["']([\w.]+)["']""")


@frozen
class KnownRoute:
    """A route.

    :ivar path: with the name of an account where anything may stand.
    :ivar parameters: the names of those that it may have.
    :ivar requires: those that it needs.
    """

    method: str
    path: str
    parameters: frozenset[str]
    requires: frozenset[str]


@cache
def applications() -> tuple[str, ...]:
    """The names of the applications that come with the broker."""
    return tuple(maker.name for maker in discover().of_kind("apps").values())


def with_applications() -> str:
    """The configuration that enables all of them."""
    return "".join(f"[apps.{name}]\nenabled = true\n" for name in applications())


@contextmanager
def whole_server() -> Iterator[Server]:
    """The parts of a broker that has everything that comes with it; nothing is started."""
    apps = {name: {"enabled": True} for name in applications()}
    with TemporaryDirectory() as data:
        yield Server(Config(data=data, apps=apps), reactor)


@cache
def every_route(account: str) -> tuple[KnownRoute, ...]:
    """All routes of a broker that has everything that comes with it.

    :param account: stands where a path may end in anything.
    """
    with whole_server() as server:
        doors = [server.monitoring, AssetsDoor(), *server.doors, *server.of_apps("front_doors")]
    return tuple(
        KnownRoute(route.method, route.path.replace("*", account), names, route.requires)
        for door in doors
        for names in [_names_of(sys.modules[type(door).__module__])]
        for route in door.routes()
    )


def _names_of(module: ModuleType) -> frozenset[str]:
    """The names of parameters in the module of a door and in those that it uses: the others of its
    package if that is an application, and the codecs of WebSub and rssCloud.
    """
    file = Path(inspect.getfile(module))
    is_shared = file.parent.name in {"web", "front_doors"}
    home = Path(rsscloud_broker.__file__).parent
    files = [file] if is_shared else sorted(file.parent.glob("*.py"))
    used = re.findall(r"rsscloud_broker\.(wire\.(?:websub|rsscloud))\b", file.read_text())
    codecs = [home / f"{each.replace('.', '/')}.py" for each in used]
    found: set[str] = set()
    for each in [*files, *codecs]:
        text = each.read_text(encoding="utf-8")
        found.update(_OF_REQUESTS.findall(text))
        if each in codecs or "parameter" in text:
            found.update(_OF_VALUES.findall(text))
    return frozenset(found)
