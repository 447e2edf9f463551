"""The document that describes the API is valid, and the API does what it says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import validate

from rsscloud_broker.interfaces import IAccountAdministration, IAdministration
from rsscloud_broker.web.admin.operations import OPERATIONS
from tests.web.admin.console import PUBLIC_URL, ConsoleCase

#: The verbs of ``IAdministration`` that have the name of no operation, with the one that calls it
#: or says whether it can be done.
CALLED_BY = {
    "find_subscriptions": "subscriptions",
    "remove_subscription": "remove",
    "read_topic": "read",
    "revive_topic": "revive",
    "end_topic": "end",
    "is_published": "take-down",
    "move_topic": "move",
    "taken_down": "published",
    "set_role": "promote",
}
CALLED_BY_ACCOUNTS = CALLED_BY | {"remove": "remove-account"}


class DocumentTests(ConsoleCase):
    def setUp(self) -> None:
        super().setUp()
        self.fill()
        answer = self.browser().ask("GET", "/api", headers={"Accept": "*/*"})
        self.document = json.loads(answer.body)

    def described(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        for path, methods in self.document["paths"].items():
            for method, operation in methods.items():
                yield method.upper(), path, operation

    def matches(self, instance: Any, schema: dict[str, Any]) -> None:
        whole = schema | {"components": self.document["components"]}
        OAS31Validator(whole).validate(instance)

    def schema(self, operation: dict[str, Any], answer: Any) -> dict[str, Any]:
        content = operation["responses"][str(answer.status)]["content"]
        found: dict[str, Any] = content[answer.headers.get_content_type()]["schema"]
        return found

    def test_it_is_valid(self) -> None:
        validate(self.document)
        self.assertEqual(self.document["servers"], [{"url": f"{PUBLIC_URL}/api/v1"}])

    def test_it_has_every_verb(self) -> None:
        names = {operation["operationId"] for _, _, operation in self.described()}
        self.assertEqual(names, {each.name for each in OPERATIONS})
        for verb in IAdministration.names():
            self.assertIn(CALLED_BY.get(verb, verb.replace("_", "-")), names)
        for verb in IAccountAdministration.names():
            self.assertIn(CALLED_BY_ACCOUNTS.get(verb, verb.replace("_", "-")), names)

    def test_examples_work_and_answers_are_as_described(self) -> None:
        seen = 0
        for method, template, operation in self.described():
            path = template
            for each in operation["parameters"]:
                if each["in"] == "path":
                    path = path.replace(f"{{{each['name']}}}", str(each["example"]))
            if method == "GET":
                values = {
                    each["name"]: each["example"]
                    for each in operation["parameters"]
                    if each["in"] == "query" and "example" in each
                }
                for each in operation["parameters"]:
                    if "example" in each:
                        self.matches(each["example"], each["schema"])
            else:
                body = operation["requestBody"]["content"]["application/json"]
                values = body["example"]
                self.matches(values, body["schema"])
            answer = self.call(method, path, values)
            self.assertEqual(answer.status, 200, f"{path}: {answer.text}")
            self.matches(json.loads(answer.body), self.schema(operation, answer))
            seen += 1
        self.assertEqual(seen, len(OPERATIONS))

    def test_problems_are_as_described(self) -> None:
        for method, path, operation in self.described():
            place = path.replace("{id}", "999")
            for token, values in ((self.dave, {"colour": "red"}), (self.dave, {}), ("x", {})):
                answer = self.call(method, place, values, token)
                self.matches(json.loads(answer.body), self.schema(operation, answer))

    def test_what_the_schema_refuses_the_api_refuses(self) -> None:
        """Each required value is needed, and none may be too long."""
        for method, path, operation in self.described():
            if method == "GET":
                continue
            body = operation["requestBody"]["content"]["application/json"]
            place = path.replace("{id}", "1")
            for name in body["schema"].get("required", ()):
                left = {key: value for key, value in body["example"].items() if key != name}
                self.assertEqual(self.call(method, place, left).status, 400, f"{path} {name}")
            for name, schema in body["schema"]["properties"].items():
                if "maxLength" in schema:
                    long = body["example"] | {name: "x" * (schema["maxLength"] + 1)}
                    self.assertEqual(self.call(method, place, long).status, 400, f"{path} {name}")
