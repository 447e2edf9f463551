"""The page ``/api/docs``: the document of OpenAPI for people, with examples for ``curl``.

Everything on it comes from the document, so it has every operation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from shlex import quote
from typing import Any
from urllib.parse import urlencode

from twisted.web.template import Flattenable, Tag, tags

from rsscloud_broker.web.words import facts


def slots(document: Mapping[str, Any]) -> dict[str, Flattenable]:
    """The slots of the template, from a document of OpenAPI."""
    server = document["servers"][0]["url"]
    described = [
        (path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    names = [operation["operationId"] for _, _, operation in described]
    refusals = {
        status: response["description"]
        for _, _, operation in described
        for status, response in operation["responses"].items()
        if status != "200"
    }
    return {
        "url": server.removesuffix("/api/v1"),
        "contents": [tags.li(tags.a(name, href=f"#{name}")) for name in names],
        "operations": [_operation(server, *each) for each in described],
        "refusals": facts((tags.code(each), refusals[each]) for each in sorted(refusals)),
        "objects": [_object(*each) for each in document["components"]["schemas"].items()],
    }


def _operation(server: str, path: str, method: str, operation: Mapping[str, Any]) -> Tag:
    """The section about an operation: what it takes and answers, and a command."""
    name = operation["operationId"]
    answer = operation["responses"]["200"]["content"]["application/json"]["schema"]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    needed = body.get("schema", {}).get("required", ())
    fields = [(each, each["name"], each["required"]) for each in operation["parameters"]]
    fields += [
        ({"in": "body", "schema": schema}, key, key in needed)
        for key, schema in body.get("schema", {}).get("properties", {}).items()
    ]
    takes = [
        (
            tags.code(key),
            _about(each["schema"], f"In the {each['in']}{', required' if is_needed else ''}: "),
        )
        for each, key, is_needed in fields
    ]
    return tags.section(
        tags.h3(operation["summary"], id=name),
        tags.p(tags.code(f"{method.upper()} {server}{path}"), " answers ", _type(answer), "."),
        facts(takes) if takes else "",
        tags.pre(_curl(server, path, method, operation, body.get("example")), class_="copy"),
        **{"aria-labelledby": name},
    )


def _curl(
    server: str,
    path: str,
    method: str,
    operation: Mapping[str, Any],
    body: Mapping[str, Any] | None,
) -> str:
    """The curl command that does an operation, with the examples of what the operation takes."""
    examples = {
        each["in"]: {
            other["name"]: other["example"]
            for other in operation["parameters"]
            if other["in"] == each["in"] and "example" in other
        }
        for each in operation["parameters"]
    }
    path = re.sub(r"\{(\w+)\}", lambda found: str(examples["path"][found[1]]), path)
    query = urlencode(examples.get("query", {}))
    command = f"curl {quote(f'{server}{path}?{query}' if query else f'{server}{path}')}"
    lines = [command, '-H "Authorization: Bearer $TOKEN"']
    if method == "post":
        lines += ["-H 'Content-Type: application/json'", f"-d {quote(json.dumps(body or {}))}"]
    return " \\\n  ".join(lines)


def _object(name: str, schema: Mapping[str, Any]) -> Tag:
    """The section about a kind of JSON object that operations answer."""
    fields = [(tags.code(key), _about(each)) for key, each in schema.get("properties", {}).items()]
    return tags.section(
        tags.h3(name, id=name),
        tags.p(*_marked(schema.get("description", ""))),
        facts(fields) if fields else "",
        **{"aria-labelledby": name},
    )


def _about(schema: Mapping[str, Any], place: str = "") -> Flattenable:
    """What a value means, where it is and what it is."""
    said = schema.get("description", "")
    one_of = ", ".join(str(each) for each in schema.get("enum", ()) if each != "")
    words: list[Flattenable] = [*_marked(said), " "] if said else []
    kind = f"one of {one_of}" if one_of else _type(schema)
    return [*words, tags.span(place, kind, ".", class_="quiet")]


def _type(schema: Mapping[str, Any]) -> Flattenable:
    """The type of a value in words, with a link if it is an object of its own."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return tags.a(name, href=f"#{name}")
    if several := schema.get("anyOf"):
        first, *others = map(_type, several)
        return [first, *(part for each in others for part in (" or ", each))]
    if schema.get("type") == "array":
        return ["list of ", _type(schema["items"])]
    return str(schema.get("type", "any value"))


def _marked(text: str) -> Iterator[Flattenable]:
    """A text whose words between backticks are code."""
    for number, part in enumerate(text.split("`")):
        yield tags.code(part) if number % 2 else part
