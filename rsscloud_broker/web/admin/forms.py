"""The forms of the console, made from the operations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec
from twisted.web.template import Tag, tags

from rsscloud_broker.errors import Unadministrable
from rsscloud_broker.web.admin.api_operation import Operation
from rsscloud_broker.web.admin.openapi import fields_of
from rsscloud_broker.web.log_lines import options
from rsscloud_broker.web.words import hidden
from rsscloud_broker.wire.text import sentence


class InvalidField(Unadministrable):
    """What somebody has filled in cannot be used.

    :ivar field: the name of the field.
    :ivar why: what is wrong, without the name of the field.
    """

    def __init__(self, field: str, label: str, why: str, rule: str) -> None:
        text = f"the field {label!r} cannot be used: {why}. {rule}"
        super().__init__(text.replace("`", "").strip())
        self.field = field
        self.why = why


def form(
    heading: str,
    operations: Sequence[Operation],
    csrf: str,
    fixed: Mapping[str, str],
    filled_in: Callable[[str], str],
    *,
    folded: bool = False,
) -> Tag:
    """A section of a page with a form for some operations.

    :param operations: what its buttons do; all have the same fields.
    :param csrf: the value by which the broker knows that the form was on one of its pages.
    :param fixed: the values that people do not fill in.
    :param filled_in: what somebody has filled in before, by the name of the field.
    :param folded: whether only the heading is seen until somebody opens it.
    """
    first = operations[0]
    fields, required = fields_of(first)
    fault = _find_fault(operations, filled_in)
    labels = [
        _labelled_field(
            name,
            schema,
            required=name in required,
            value=filled_in(name),
            fault=fault.why if fault.field == name else "",
        )
        for name, schema in fields.items()
        if name not in fixed
    ]
    # Of several buttons, the one that is pressed says what to do.
    is_choice = len(operations) > 1
    help_text = "" if is_choice else tags.p(first.help)
    buttons = [
        tags.button(
            each.form.button if each.form else each.name,
            **({"name": "do", "value": each.name} if is_choice else {}),
            **({"class": "careful"} if each.final else {}),
        )
        for each in operations
    ]
    title = tags.h2(heading, id=first.name)
    box = tags.section(title)
    if folded:
        # A form that was sent and refused is open.
        was_sent = filled_in("do") in {each.name for each in operations}
        is_open = {"open": "open"} if was_sent else {}
        box = tags.details(tags.summary(title), class_="folded", **is_open)
    return box(
        help_text,
        tags.form(
            *hidden({"csrf": csrf, **({} if is_choice else {"do": first.name}), **fixed}),
            *labels,
            tags.div(*buttons, class_="actions"),
            action=first.form.page if first.form else "",
            method="post",
            **{"aria-labelledby": first.name},
        ),
    )


def _find_fault(operations: Sequence[Operation], filled_in: Callable[[str], str]) -> InvalidField:
    """The fault of a form that was sent; with empty texts if it has none, or was another form."""
    sent = [each for each in operations if each.name == filled_in("do")]
    try:
        for each in sent:
            read_form(each, filled_in)
    except InvalidField as error:
        return error
    return InvalidField("", "", "", "")


def read_form(operation: Operation, filled_in: Callable[[str], str]) -> msgspec.Struct:
    """Make the request for an operation from a form that was sent.

    :param filled_in: what somebody has filled in, by the name of the field.
    :raises InvalidField: a field cannot be used; says which, and the rule.
    """
    fields, required = fields_of(operation)
    values = {
        name: _parse_value(schema, text)
        for name, schema in fields.items()
        if (text := filled_in(name)) or name in required
    }
    try:
        return msgspec.convert(values, operation.asks, strict=False)
    except msgspec.ValidationError as error:
        raise _invalid_field(str(error), fields) from None


def _invalid_field(error: str, fields: Mapping[str, Any]) -> InvalidField:
    """An error for people, from one of msgspec such as ``Expected `int` - at `$.lease```."""
    at_field = re.search(r"\$\.(\w+)", error)
    name = at_field[1] if at_field else ""
    schema = fields[name] if name else {}
    why = _rule_in_words(schema) or error.partition(" - at")[0]
    label = schema.get("title") or name or "form"
    return InvalidField(name, label, why, schema.get("description", ""))


def _rule_in_words(schema: Mapping[str, Any]) -> str:
    """What a field needs, in words; empty if its rule says all of it."""
    if schema.get("type") == "integer":
        return f"write a whole number from {schema['minimum']:,} to {schema['maximum']:,}"
    if "enum" in schema:
        return f"choose one of {', '.join(filter(None, schema['enum']))}"
    if "maxLength" in schema:
        return f"write {schema.get('minLength', 0):,} to {schema['maxLength']:,} characters"
    return ""


def _parse_value(schema: Mapping[str, Any], text: str) -> str | datetime:
    """What somebody has filled in; browsers send times without seconds and without a zone."""
    if "anyOf" in schema:
        with suppress(ValueError):
            return datetime.fromisoformat(text.strip())
    return text


def objects(operation: Operation) -> Iterator[tuple[str, str]]:
    """The names and labels of the fields that say what an operation is about."""
    labels = {"id": "Subscription", "url": "Address", "to": "New address", "name": "Account"}
    return ((name, labels[name]) for name in fields_of(operation)[0] if name in labels)


def _labelled_field(
    name: str, schema: Mapping[str, Any], required: bool, value: str, fault: str = ""
) -> Tag:
    """A field with its label, its rule, and what is wrong with its value."""
    more = {"required": "required"} if required else {}
    more |= {"aria-invalid": "true"} if fault else {}
    field: Tag
    if "enum" in schema:
        chosen = value or schema.get("default", "")
        field = tags.select(*options(schema["enum"], chosen), name=name)
    elif schema.get("type") == "integer":
        most = {"min": str(schema["minimum"]), "max": str(schema["maximum"])}
        field = tags.input(name=name, value=value, type="number", **most, **more)
    elif "anyOf" in schema:
        field = tags.input(name=name, value=value, type="datetime-local", **more)
    else:
        length = str(schema["maxLength"])
        field = tags.input(name=name, value=value, maxlength=length, **more)
    rule = str(schema.get("description", "")).replace("`", "")
    wrong = tags.strong(sentence(fault), " ", class_="fault") if fault else ""
    return tags.label(f"{schema.get('title', name)} ", field, " ", wrong, tags.small(rule))
