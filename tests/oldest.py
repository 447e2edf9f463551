"""Names the oldest version that pyproject.toml allows of each package that the broker needs.

``make test-oldest`` installs them.  A dependency for one platform keeps its condition.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def requirements() -> list[str]:
    """What the broker needs at run time, and for PostgreSQL, as pyproject.toml says it."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    return [*project["dependencies"], *project["optional-dependencies"]["postgresql"]]


def oldest() -> list[str]:
    """The same requirements, each of one version only."""
    found = []
    for line in requirements():
        requirement = Requirement(line)
        (bound,) = requirement.specifier
        requirement.specifier = SpecifierSet(f"=={bound.version}")
        found.append(str(requirement))
    return found


if __name__ == "__main__":
    print("\n".join(oldest()))  # noqa: T201 # make reads it
