"""Front doors that offer the same thing, or that raise an error when they are asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.trial.unittest import SynchronousTestCase
from twisted.web.xmlrpc import XMLRPC, NoSuchFunction

from rsscloud_broker.http.offers import FrontDoorsError, Offers
from rsscloud_broker.http.site import Root
from rsscloud_broker.interfaces import (
    IFrontDoor,
    Route,
    SoapDescription,
    SoapOperation,
    SoapService,
)
from tests.front_doors.fixture import PUBLIC_URL
from tests.http.test_site import Door, get

WAY_OUT = (
    "; set another path for one of them if it has an option for that, or enabled = false in "
    "its table, such as [front_doors."
)


class Greeter(XMLRPC):
    def xmlrpc_hello(self) -> str:
        return "hello"


class Leaver(XMLRPC):
    def xmlrpc_bye(self) -> str:
        return "bye"


class OffersTests(SynchronousTestCase):
    def refusal(self, *doors: IFrontDoor) -> str:
        return str(self.assertRaises(FrontDoorsError, Root, doors, PUBLIC_URL))

    def assert_conflict(self, what: str, first: dict[str, Any], second: dict[str, Any]) -> None:
        said = f"the front door 'second' offers {what}, as does 'first'{WAY_OUT}second]"
        self.assertEqual(self.refusal(Door("first", **first), Door("second", **second)), said)
        said = f"the front door 'one' offers {what}, as does another of that name{WAY_OUT}one]"
        self.assertEqual(self.refusal(Door("one", **first), Door("one", **second)), said)

    def test_one_that_offers_something_twice(self) -> None:
        said = "the front door 'one' offers GET /a twice; fix or uninstall it"
        self.assertEqual(self.refusal(Door("one", pages=[get("/a"), get("/a")])), said)

    def test_routes(self) -> None:
        same = {"pages": [get("/a")]}
        self.assert_conflict("GET /a", same, same)
        more: Sequence[Route] = [get("/a", "url"), get("/a", method="POST"), get("/b")]
        Root([Door("first", pages=[get("/a")]), Door("second", pages=more)], PUBLIC_URL)

    def test_a_route_of_a_wsdl(self) -> None:
        description = SoapDescription("urn:x", ("/soap",), lambda url, more: b"<definitions/>")
        service = SoapService("/x", {}, description=description)
        self.assert_conflict(
            "GET /soap", {"pages": [get("/soap", "wsdl")]}, {"services": [service]}
        )

    def test_procedures(self) -> None:
        same = {"handlers": {"a": Greeter()}}
        self.assert_conflict("the XML-RPC procedure a.hello", same, same)
        self.assertIn(
            "the front door 'mine' offers XML-RPC procedures system.*, as does the broker itself;",
            self.refusal(Door("mine", handlers={"system": XMLRPC()})),
        )

    def test_procedures_of_several_front_doors(self) -> None:
        offers = Offers.of(
            [Door("one", handlers={"a": Greeter()}), Door("two", handlers={"a": Leaver()})]
        )
        procedures = offers.handlers["a"]
        self.assertEqual(procedures.listProcedures(), ["hello", "bye"])
        self.assertEqual(procedures.lookupProcedure("bye")(), "bye")
        self.assertRaises(NoSuchFunction, procedures.lookupProcedure, "other")

    def test_operations_of_several_front_doors(self) -> None:
        async def answer(values: Any, caller: str) -> bool:
            return True

        one, two = (SoapOperation(answer, (name,)) for name in ("x", "y"))
        first = SoapService("/a", {"one": one}, ("/b",))
        second: dict[str, Any] = {"services": [SoapService("/a", {"two": two})]}
        offers = Offers.of([Door("first", services=[first]), Door("second", **second)])
        self.assertEqual(
            offers.services, {"/a": SoapService("/a", {"one": one, "two": two}, ("/b",))}
        )
        self.assert_conflict("the SOAP operation two for /a", second, second)

    def test_operations(self) -> None:
        self.assert_conflict(
            "SOAP operations for /b",
            {"services": [SoapService("/a", {}, ("/b",))]},
            {"services": [SoapService("/b", {})]},
        )

    def test_a_front_door_that_cannot_say_what_it_offers(self) -> None:
        nothing: Any = None
        self.assertEqual(
            self.refusal(Door("mine", pages=nothing)),
            "the front door 'mine' cannot say what it offers: TypeError: 'NoneType' object is "
            "not iterable; fix or uninstall it, or set enabled = false in [front_doors.mine]",
        )
