"""Finds the line of a TOML document that sets a key, for messages about faults.

Python's parser says no positions.  So the beginning of the document is parsed up to each line that
names the key: the first beginning that sets the key ends with the line that is searched.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from typing import Any

#: The key that a message begins with: ``[http] body_limit`` or ``listen``.
_KEY = re.compile(r"(?:\[([^\s]+)\] ?)?([\w.\[\]-]*)")


def with_line(message: str, document: str) -> str:
    """A message about a key, followed by the line that sets the key, or begins its table.

    :param message: one that begins with the name of the key.
    :param document: a whole TOML document.
    """
    found = _KEY.match(message)
    key = ".".join(filter(None, found.groups())) if found else ""
    path: list[str | int] = [
        int(name) if name.isdecimal() else name for name in re.findall(r"[\w-]+", key)
    ]
    while path:
        if number := _line_of(path, document):
            return f"{message} (line {number})"
        path.pop()
    return message


def _line_of(path: Sequence[str | int], document: str) -> int | None:
    """The number of the line that sets a key; None if none does."""
    lines = document.splitlines(keepends=True)
    last = next((str(name) for name in reversed(path) if isinstance(name, str)), "")
    name = re.compile(rf"\b{re.escape(last)}\b.*[=\]]")
    for number, line in enumerate(lines):
        if name.search(line) and _has(lines[:number], path) is False:
            # Does the document have the key after this line, or after further ones of its value?
            parts = (_has(lines[:end], path) for end in range(number + 1, len(lines) + 1))
            if next((has for has in parts if has is not None), False):
                return number + 1
    return None


def _has(lines: Sequence[str], path: Sequence[str | int]) -> bool | None:
    """Whether the beginning of a document sets a key; None if it ends within a value."""
    try:
        table: Any = tomllib.loads("".join(lines))
        for name in path:
            table = table[name]
    except tomllib.TOMLDecodeError:
        return None
    except (LookupError, TypeError):
        return False
    return True
