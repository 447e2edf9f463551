"""Lists the plugins that come with the broker, from their makers.

``.. plugins::`` is a table of them: the kind, the name, and what the plugin does.
"""

from __future__ import annotations

import inspect
from typing import Final

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata

from rsscloud_broker.plugins import bundled
from rsscloud_broker.runtime.plugin_discovery import KINDS

#: What each kind is called.
_WORDS: Final = {
    "front_doors": ":term:`front door`",
    "notifiers": ":term:`notifier`",
    "sinks": ":term:`sink`",
    "checkers": ":term:`checker`",
    "apps": ":term:`application`",
}


class Plugins(SphinxDirective):
    """``.. plugins::``."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(inspect.getfile(bundled))
        lines = [
            *(".. list-table::", "   :header-rows: 1", "   :widths: 20 20 60", ""),
            *("   * - Kind", "     - Name", "     - What it does"),
        ]
        for kind, interface in KINDS.items():
            for maker in vars(bundled).values():
                if interface.providedBy(maker):
                    lines += [
                        f"   * - {_WORDS[kind]}",
                        f"     - ``{maker.name}``",
                        f"     - {maker.help}",
                    ]
        return self.parse_text_to_nodes("\n".join(lines))


def setup(app: Sphinx) -> ExtensionMetadata:
    """Add the directive."""
    app.add_directive("plugins", Plugins)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
