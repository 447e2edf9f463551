"""Sphinx configuration."""

import logging

from rsscloud_broker import __version__

project = "rsscloud-broker"
author = "The rsscloud-broker maintainers"
project_copyright = "2026, the rsscloud-broker maintainers"
release = version = __version__

extensions = ["sphinx.ext.autodoc"]
exclude_patterns = ["_build", "examples"]
html_theme = "furo"
html_title = "rsscloud-broker"
autodoc_typehints = "description"

# autodoc imports what is documented; what Alembic says then is not about pages.
logging.getLogger("alembic").setLevel(logging.WARNING)
