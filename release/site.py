"""Builds the manuals of all versions into one directory: ``make site``.

The released versions are the tags such as ``1.0.0``.  To them comes the working tree, if it is not
the same as the tag of its version.  A checkout without tags, and the source distribution, have the
working tree alone.  Each page lists the versions, with links to the same page of each: see
``docs/_templates``.  Where a version has no such page, there is one that leads to its first page.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from zipfile import ZipFile

TOP: Final = Path(__file__).parents[1]

#: What the working tree is called if a tag has its version.
DEVELOPMENT: Final = "development"

_PAGE: Final = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url={target}">
<title>Manual</title>
<p>Go to <a href="{target}">the manual</a>.
"""


def released(top: Path) -> list[str]:
    """The versions that have tags, newest first."""
    if not (top / ".git").exists():  # the repository of somebody else may be above this directory
        return []
    tags = re.findall(r"(?m)^\d+\.\d+\.\d+$", _git(top, "tag").decode())
    return sorted(tags, key=lambda tag: [int(part) for part in tag.split(".")], reverse=True)


def name_of_working_tree(top: Path, tags: Iterable[str]) -> str:
    """What the manual of the working tree is called; empty if it is that of a tag."""
    project = tomllib.loads((top / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version = str(project["version"])
    if version not in tags:
        return version
    compared = subprocess.run(["git", "-C", top, "diff", "--quiet", version], check=False)
    return DEVELOPMENT if compared.returncode else ""


def build(top: Path, site: Path) -> list[str]:
    """Build all manuals, and return the versions, in their order."""
    tags = released(top)
    present = name_of_working_tree(top, tags)
    names = [*filter(None, [present]), *tags]
    shutil.rmtree(site, ignore_errors=True)
    if present:
        build_one(top, site, present, names)
    for tag in tags:
        with TemporaryDirectory() as directory:
            archive = io.BytesIO(_git(top, "archive", "--format=zip", tag))
            with ZipFile(archive) as files:
                files.extractall(directory)
            build_one(Path(directory), site, tag, names)
    fill_up({name: site / name for name in names})
    _lead(site / "index.html", f"{(tags or names)[0]}/index.html")
    return names


def build_one(source: Path, site: Path, name: str, names: Iterable[str]) -> None:
    """Build the manual of one version from its own source, which it also imports."""
    settings = {"version": name, "release": name, "html_title": f"rsscloud-broker {name}"}
    with TemporaryDirectory() as doctrees:
        subprocess.run(
            [
                *(sys.executable, "-m", "sphinx", "--quiet", "-d", doctrees),
                *(f"-D{key}={value}" for key, value in settings.items()),
                f"-Amanual_versions={' '.join(names)}",
                *(source / "docs", site / name),
            ],
            check=True,
            env=os.environ | {"PYTHONPATH": str(source)},
        )


def fill_up(manuals: Mapping[str, Path]) -> None:
    """Where a version lacks a page that another one has, lead to its first page."""
    pages = {
        page.relative_to(manual) for manual in manuals.values() for page in manual.rglob("*.html")
    }
    for manual in manuals.values():
        for page in pages:
            if not (manual / page).exists():
                _lead(manual / page, "../" * (len(page.parts) - 1) + "index.html")


def _lead(page: Path, target: str) -> None:
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(_PAGE.format(target=target), encoding="utf-8")


def _git(top: Path, *words: str) -> bytes:
    return subprocess.run(["git", "-C", top, *words], check=True, capture_output=True).stdout


if __name__ == "__main__":
    built = build(TOP, TOP / "docs" / "_build" / "site")
    print(f"docs/_build/site/index.html leads to the manuals of {', '.join(built)}.")
