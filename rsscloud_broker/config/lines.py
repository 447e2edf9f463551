"""Finds the line of a TOML document that sets a key, for messages about faults.

Python's parser says no positions.  So the beginning of the document is parsed up to each line that
names the key: the first beginning that sets the key ends with the line that is searched.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any

#: The key that a message begins with: ``[http] body_limit`` or ``listen``.
_KEY = re.compile(r"(?:\[([^\s]+)\] ?)?([\w-]*)")


def with_line(message: str, document: str) -> str:
    """A message about a key, followed by the line that sets the key, or begins its table.

    :param message: one that begins with the name of the key.
    :param document: a whole TOML document.
    """
    found = _KEY.match(message)
    path = re.sub(r"\[\d+\]", "", found[1] or "").split(".") if found and found[1] else []
    path += [found[2]] if found and found[2] else []
    while path:
        if number := _line_of(path, document):
            return f"{message} (line {number})"
        path.pop()
    return message


def _line_of(path: Sequence[str], document: str) -> int | None:
    """The number of the line that sets a key; None if none does."""
    lines = document.splitlines(keepends=True)
    name = re.compile(rf"\b{re.escape(path[-1])}\b.*[=\]]")
    for number, line in enumerate(lines):
        if name.search(line) and _has(lines[:number], path) is False:
            for end in range(number + 1, len(lines) + 1):
                has = _has(lines[:end], path)
                if has is not None:
                    break
            if has:
                return number + 1
    return None


def _has(lines: Sequence[str], path: Sequence[str]) -> bool | None:
    """Whether the beginning of a document sets a key; None if it ends within a value."""
    try:
        table = tomllib.loads("".join(lines))
    except tomllib.TOMLDecodeError:
        return None
    return any(_values(table, path))


def _values(table: Any, path: Sequence[str]) -> Iterator[bool]:
    """True once for each value at a path, of which there are several below a list of tables."""
    if not path:
        yield True
    elif isinstance(table, list):
        for each in table:
            yield from _values(each, path)
    elif isinstance(table, dict) and path[0] in table:
        yield from _values(table[path[0]], path[1:])
