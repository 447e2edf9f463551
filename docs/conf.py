"""Sphinx configuration."""

import logging
import sys
from pathlib import Path

from rsscloud_broker import __version__

project = "rsscloud-broker"
author = "The rsscloud-broker maintainers"
project_copyright = "2026, the rsscloud-broker maintainers"
release = version = __version__

sys.path.insert(0, str(Path(__file__).parent / "_ext"))
extensions = ["sphinx.ext.autodoc", "bundled_plugins", "zope_interfaces"]
exclude_patterns = ["_build", "examples"]
templates_path = ["_templates"]
html_theme = "furo"
html_title = f"rsscloud-broker {release}"
autodoc_typehints = "description"

# ``make man``
man_pages = [
    ("command", "rsscloud-broker", "start a broker, talk to one, and look after it", [author], 1),
    ("configuration", "rsscloud-broker.toml", "configuration of a broker", [author], 5),
]

# autodoc imports what is documented; what Alembic says then is not about pages.
logging.getLogger("alembic").setLevel(logging.WARNING)
