"""Turns a TOML table into an instance of an attrs class, and reports all faults at once.

``config`` uses it for the configuration, ``plugin_discovery`` for the options of plugins.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

import attrs
import msgspec

T = TypeVar("T", bound=attrs.AttrsInstance)
_Attribute: TypeAlias = "attrs.Attribute[Any]"


@attrs.frozen
class NoOptions:
    """The options of a plugin that has none."""


class ConfigError(Exception):
    """The configuration cannot be used.  Its text says why, a line for each fault."""


def build(
    cls: type[T],
    table: Mapping[str, Any],
    where: str,
    *,
    path: tuple[str, ...] = (),
    others: Iterable[str] = (),
    further: Iterable[str] = (),
) -> T:
    """Make an instance of an attrs class from a TOML table.

    The types of its fields are checked without conversion (but a whole number may stand for a
    float, a list for a tuple), then its validators run.  A field whose type is an attrs class or
    a ``dict`` takes a table within the table; a field whose type is ``tuple[C, ...]`` of an attrs
    class ``C`` takes a list of tables.

    :param where: the name of the document in messages, usually its file.
    :param path: the names of the table, outermost first.
    :param others: further keys that the table may have, which the caller has already removed;
        messages suggest them for misspelt keys.
    :param further: faults that the caller found, to be reported with the others.
    :raises ConfigError: keys are unknown or missing, types are wrong, or validators fail.  The
        error lists all faults; but a validator that compares keys runs only if there are no
        others.
    """
    problems: list[str] = []
    made = _make_or_report(cls, table, path, problems, others)
    problems.extend(further)
    if made is None or problems:
        prefix = f"{where}: " if where else ""
        raise ConfigError("\n".join(prefix + problem for problem in problems))
    return made


def nearest(name: str, known: Iterable[str]) -> str:
    """A clause that suggests the nearest known name in place of an unknown one."""
    names = sorted(known)
    if not names:
        return "none is known here"
    # No cutoff: the whole list of names follows anyway.
    (close,) = get_close_matches(name, names, n=1, cutoff=0.0)
    return f"the nearest known is {close!r}, of {', '.join(names)}"


def _key_path(path: tuple[str, ...], key: str = "") -> str:
    """The name of a key in messages: ``[http] body_limit``."""
    return f"[{'.'.join(path)}] {key}".rstrip() if path else key


def _make_or_report(
    cls: type[T],
    table: Mapping[str, Any],
    path: tuple[str, ...],
    problems: list[str],
    others: Iterable[str] = (),
) -> T | None:
    """An instance made from a table; None if that failed, with the faults added to ``problems``."""
    before = len(problems)
    hints = get_type_hints(cls, include_extras=True)
    known = {key.alias: key for key in attrs.fields(cls) if key.init}
    for name in table:
        if name not in known:
            help_ = nearest(name, {*known, *others})
            problems.append(f"{_key_path(path, name)}: unknown key; {help_}")
    problems.extend(
        f"{_key_path(path, name)}: missing; it has no default"
        for name, key in known.items()
        if key.default is attrs.NOTHING and name not in table
    )
    values: dict[str, Any] = {}
    for name, key in known.items():
        faults: list[str] = []
        if name in table:
            values[name] = _convert(hints[key.name], table[name], path, name, faults)
            if not faults:
                faults.extend(_rules_broken_by(key, values[name], path, known))
        problems.extend(faults)
    if len(problems) > before:
        return None
    try:
        return cls(**values)
    except (TypeError, ValueError) as error:
        problems.append(broken_rule(error, path, known))
        return None


def _convert(hint: Any, value: Any, path: tuple[str, ...], name: str, problems: list[str]) -> Any:
    """The value of one key; None if it is faulty, with the faults added to ``problems``."""
    if attrs.has(hint) and isinstance(value, dict):
        return _make_or_report(hint, value, (*path, name), problems)
    # Of ``tuple[X, ...]``, the type of the elements.
    inside = get_args(hint)[:1] if get_args(hint)[1:] == (...,) else ()
    if inside and attrs.has(inside[0]) and isinstance(value, list):
        return tuple(
            _convert(inside[0], each, path, f"{name}[{number}]", problems)
            for number, each in enumerate(value)
        )
    try:
        return msgspec.convert(value, hint, strict=True)
    except msgspec.ValidationError as error:
        kinds = (hint,) if get_origin(hint) is Literal else get_args(hint)
        words = [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
        if words and isinstance(value, str):
            others = [_WORDS.get(each.__name__, "") for each in kinds if isinstance(each, type)]
            named = " or ".join(filter(None, others))
            allowed = ", ".join(map(repr, words))
            rule = f"must be {named} or {allowed}" if named else f"must be one of {allowed}"
            problems.append(f"{_key_path(path, name)}: {rule}, not {value!r}")
        else:
            problems.append(_wrong_type(str(error), value, path, name))
        return None


def _rules_broken_by(
    key: _Attribute, value: Any, path: tuple[str, ...], known: Iterable[str]
) -> Iterator[str]:
    """The faults that the validator of one key finds without the other keys."""
    try:
        if callable(key.converter):
            value = key.converter(value)
        if key.validator:
            key.validator(None, key, value)
    except ValueError as error:
        yield broken_rule(error, path, known)
    except (AttributeError, TypeError):
        pass  # it needs other keys: attrs calls it again when the instance is made


def broken_rule(error: Exception, path: tuple[str, ...], known: Iterable[str]) -> str:
    """The message of a validator's error, with the full name of the key that it names first."""
    text = str(error.args[0]) if error.args else type(error).__name__
    quoted = re.match(r"'(\w+)' ", text)
    if quoted and quoted[1] in known:
        return f"{_key_path(path, quoted[1])}: {text[quoted.end() :]}"
    return f"{_key_path(path)}: {text}" if path else text


#: msgspec's names of types, in words for people who write TOML.
_WORDS = {
    "array": "a list",
    "str": "a string in quotes",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "a table",
    "date": "a date",
    "datetime": "a date and time",
    "time": "a time",
}


def _wrong_type(message: str, value: Any, path: tuple[str, ...], name: str) -> str:
    """A message of msgspec about a wrong type, in the words of TOML, with how to write it."""
    rule, _, inside = message.partition(" - at `$")
    key_path = _key_path(path, name) + inside.rstrip("`")
    found = re.fullmatch(r"Expected `([^`]*)`, got `([^`]*)`", rule)
    if not found:
        return f"{key_path}: {rule[:1].lower()}{rule[1:]}"
    types = [word for word in found[1].split(" | ") if word != "null"]  # TOML has no null
    expected = " or ".join(_WORDS.get(word, word) for word in types)
    got = _WORDS.get(found[2], found[2])
    hint = ""
    if "array" in types and not inside and isinstance(value, str):
        hint = f"; write {name} = [{json.dumps(value, ensure_ascii=False)}]"
    elif {"int", "float", "bool"}.issuperset(types) and found[2] == "str":
        hint = "; write it without quotes"
    return f"{key_path}: must be {expected}, not {got}{hint}"
