"""``[log]`` of the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs
from attrs import field, frozen

from rsscloud_broker.config.validators import is_path

_Attribute: TypeAlias = "attrs.Attribute[Any]"

#: The levels that a configuration may name.  "critical" is not one of them: without the errors
#: nobody would learn why the broker does not start.
Level: TypeAlias = Literal["debug", "info", "warn", "error"]
LEVELS: Final = ("debug", "info", "warn", "error")


def _are_levels(_: object, key: _Attribute, levels: Mapping[str, object]) -> None:
    """Require a table of namespaces, each with one of the ``LEVELS``."""
    for namespace, level in levels.items():
        if level not in LEVELS:
            hint = "; write a name that has dots in quotes" if isinstance(level, dict) else ""
            raise ValueError(
                f"'{key.name}' has {level!r} for {namespace!r}; it must be one of "
                f"{', '.join(map(repr, LEVELS))}{hint}"
            )


@frozen
class Log:
    """``[log]``: which events are logged, and in which form.

    :ivar level: the lowest level that is logged.
    :ivar levels: the lowest level for single namespaces: a package or module, and all below it.
    :ivar format: the form of each line: text for people, or a JSON object for programs.
    :ivar access: the file of the access log; ``-`` for stdout, empty for no access log.
    """

    level: Level = "info"
    levels: dict[str, Any] = field(factory=dict, validator=_are_levels)
    format: Literal["text", "json"] = "text"
    access: str = field(default="", validator=is_path)
