"""Parses the text of a Twisted endpoint, such as ``ssl:443:privateKey=key.pem``.

Twisted parses these texts itself when it makes an endpoint.  The broker parses them too, to say in
plain words what is wrong with an argument, and to know its own port.
"""

from __future__ import annotations

import re

#: One argument: characters other than a colon, or any character after a backslash.
_ARGUMENT = re.compile(r"((?:\\.|[^:\\])*)(?::|$)", re.DOTALL)

#: An argument with its name.
_NAMED = re.compile(r"((?:\\.|[^=\\])*)=(.*)", re.DOTALL)


def arguments(description: str, *positions: str) -> dict[str, str]:
    """The arguments of an endpoint by name.

    :param description: the text of the endpoint: its kind, then arguments, separated by colons.
    :param positions: the names of the positional arguments, in their order.
    """
    found: dict[str, str] = {}
    names = iter(positions)
    for part in _ARGUMENT.findall(description)[1:-1]:  # without the kind and the empty end
        if named := _NAMED.fullmatch(part):
            found[_plain(named[1])] = _plain(named[2])
        elif position := next(names, ""):
            found[position] = _plain(part)
    return found


def _plain(text: str) -> str:
    """A text without its backslash escapes."""
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)
