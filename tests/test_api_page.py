"""The API page of the documentation has every public name, interfaces too."""

from __future__ import annotations

import html
import re
import subprocess
import zlib
from functools import cache
from pathlib import Path
from types import GenericAlias, ModuleType

from twisted.trial.unittest import SynchronousTestCase
from zope.interface.interface import InterfaceClass

import rsscloud_broker
from rsscloud_broker import counters, events, interfaces, model, testing
from rsscloud_broker.config import building
from rsscloud_broker.runtime import plugin_discovery
from tests.processes import BIN

DOCS = Path(rsscloud_broker.__file__).parent.parent / "docs"

#: What authors of plugins use of modules that are mostly for the broker itself.
USED = {
    counters: {"Counters"},
    plugin_discovery: {"KINDS", "Makers", "PluginError", "discover", "select"},
    building: {"ConfigError", "build"},
}


@cache
def built() -> Path:
    """The documentation as it is: what ``make docs`` has built, or else built here."""
    made = DOCS / "_build" / "html"
    inventory = made / "objects.inv"
    if inventory.exists() and inventory.stat().st_mtime > _last_change():
        return made
    place = Path("documentation").absolute()
    command: list[str | Path] = [BIN / "sphinx-build", "--quiet", "--fail-on-warning", DOCS, place]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(f"sphinx-build failed:\n{done.stderr}")
    return place


def _last_change() -> float:
    """When something was last changed of what the documentation is made of."""
    package = Path(rsscloud_broker.__file__).parent
    sources = [*package.rglob("*.py"), *DOCS.glob("*.rst"), *DOCS.glob("[!_]*/**/*.rst")]
    return max(path.stat().st_mtime for path in sources)


def inventory(place: Path) -> dict[str, str]:
    """Where each object is documented, by name: the format is that of ``objects.inv``."""
    packed = (place / "objects.inv").read_bytes().split(b"\n", 4)[4]
    lines = [line.split(" ") for line in zlib.decompress(packed).decode().splitlines()]
    return {line[0]: line[3] for line in lines if line[1].startswith("py:")}


def own_names(module: ModuleType) -> set[str]:
    """The public names of a module, or of the modules of a package that it imports."""
    if hasattr(module, "__all__"):
        named = {name: getattr(module, name) for name in module.__all__}
        aliases = {name for name, value in named.items() if isinstance(value, GenericAlias)}
        return {name for name, value in named.items() if callable(value)} - aliases
    return {
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and f"{getattr(value, '__module__', '')}.".startswith(f"{module.__name__}.")
    }


class ApiPageTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.places = inventory(built())

    def assert_documented(self, name: str) -> None:
        place = self.places.get(name, "is nowhere")
        self.assertTrue(place.startswith("api.html#"), f"{name}: {place}")

    def test_public_names(self) -> None:
        names = {module: own_names(module) for module in (interfaces, model, events, testing)}
        for module, found in (names | USED).items():
            self.assertTrue(found)
            for name in found:
                # An interface is documented under the module that defines it.
                home = getattr(module, name).__module__ if module is interfaces else module.__name__
                self.assert_documented(f"{home}.{name}")

    def test_interfaces_with_everything_in_them(self) -> None:
        own = own_names(interfaces)
        seen = 0
        for name, interface in vars(interfaces).items():
            if isinstance(interface, InterfaceClass) and name in own:
                for member in interface.names():
                    self.assert_documented(f"{interface.__identifier__}.{member}")
                    seen += 1
        self.assertGreater(seen, 70)

    def test_docstrings_and_signatures_are_shown(self) -> None:
        page = (built() / "api.html").read_text(encoding="utf-8")
        text = " ".join(html.unescape(re.sub("<[^>]+>", "", page)).split())
        for shown in (
            "interface rsscloud_broker.interfaces.broker.IBroker",
            "ping(ping: Ping, repeat_window: float, source: str) → Awaitable[None]",
            "A frozenset of the protocols that subscribers may ask for.",
            "If the topic has changed, its subscribers are notified.",
        ):
            self.assertTrue(shown in text, shown)
