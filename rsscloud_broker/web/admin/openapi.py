"""Describes the administration API by a document of OpenAPI 3.1, made from the table of operations.

https://spec.openapis.org/oas/v3.1.1
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import msgspec

from rsscloud_broker import __version__
from rsscloud_broker.web.admin import shapes
from rsscloud_broker.web.admin.api_operation import Operation
from rsscloud_broker.web.admin.operations import OPERATIONS

#: Where the API is.  A change that breaks clients gets another number.
BASE: Final = "/api/v1"

_REF: Final = "#/components/schemas/{name}"
_JSON: Final = "application/json"

#: The problems that each operation may answer with, by status.
_PROBLEMS: Final = {
    400: "The request is malformed.",
    401: "There is no valid API token.",
    403: "The token lacks the scope admin, or its account is not an administrator's.",
    503: "The broker lacks what it needs, such as its database; the answer says what.",
}
_MISSING: Final = {404: "What it concerns does not exist."}
_SENSELESS: Final = {422: "It makes no sense, or breaks a rule."}
_BODY: Final = {413: "The body is too large.", 415: "The body is not JSON."}


def document(public_url: str) -> dict[str, Any]:
    """The document.

    :param public_url: the broker's own URL, without a slash at the end.
    """
    kinds = [shapes.Problem, *(each.answers for each in OPERATIONS)]
    _, schemas = msgspec.json.schema_components(kinds, ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for each in OPERATIONS:
        paths.setdefault(each.path, {})[each.method.lower()] = _describe(each)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "The administration of rsscloud-broker",
            "version": __version__,
            "description": "What an administrator may see and do. Times are in UTC. What no "
            "operation gets to see, such as another method than GET and POST or a very large "
            "body, is refused in plain text.",
        },
        "servers": [{"url": f"{public_url}{BASE}"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API token with the scope admin.",
                }
            },
        },
    }


def fields_of(operation: Operation) -> tuple[Mapping[str, Any], frozenset[str]]:
    """The JSON schemas of what an operation takes, by name; and the names that are required."""
    return _schema_of(operation.asks)


@cache  # each page of the console asks several times
def _schema_of(asks: type[msgspec.Struct]) -> tuple[Mapping[str, Any], frozenset[str]]:
    _, schemas = msgspec.json.schema_components([asks], ref_template=_REF)
    (schema,) = schemas.values()
    return schema["properties"], frozenset(schema.get("required", ()))


def _describe(operation: Operation) -> dict[str, Any]:
    """An operation as an object of OpenAPI."""
    takes, required = fields_of(operation)
    in_path = {name for name in takes if f"{{{name}}}" in operation.path}
    has_query = operation.method == "GET"
    parameters = [
        _parameter(operation, name, schema, in_path=name in in_path, required=name in required)
        for name, schema in takes.items()
        if has_query or name in in_path
    ]
    body = {name: schema for name, schema in takes.items() if name not in in_path}
    problems = _PROBLEMS | ({} if has_query else _BODY)
    if takes:
        problems |= _SENSELESS | _MISSING
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.help,
        "parameters": parameters,
        "responses": {
            "200": {
                "description": "It worked.",
                "content": {_JSON: {"schema": _reference(operation.answers)}},
            },
            **{str(status): _problem(text) for status, text in sorted(problems.items())},
        },
    }
    if body and not has_query:
        described["requestBody"] = _body(operation, body, sorted(required - in_path))
    return described


def _parameter(
    operation: Operation, name: str, schema: Any, in_path: bool, required: bool
) -> dict[str, Any]:
    """A parameter in the path or the query, as an object of OpenAPI."""
    parameter = {
        "name": name,
        "in": "path" if in_path else "query",
        "required": in_path or required,
        "schema": schema,
    }
    if name in operation.example:
        parameter["example"] = operation.example[name]
    return parameter


def _body(operation: Operation, fields: Mapping[str, Any], required: list[str]) -> dict[str, Any]:
    """The body that an operation takes, as an object of OpenAPI."""
    schema: dict[str, Any] = {
        "type": "object",
        "properties": fields,
        "additionalProperties": False,
    }
    if required:
        schema["required"] = required
    example = {name: value for name, value in operation.example.items() if name in fields}
    return {
        "required": bool(required),
        "content": {_JSON: {"schema": schema, "example": example}},
    }


def _problem(text: str) -> dict[str, Any]:
    """The answer to a request that failed, as an object of OpenAPI."""
    content = {"application/problem+json": {"schema": _reference(shapes.Problem)}}
    return {"description": text, "content": content}


def _reference(kind: type) -> dict[str, str]:
    """A reference to the schema of a class."""
    return {"$ref": _REF.format(name=kind.__name__)}
