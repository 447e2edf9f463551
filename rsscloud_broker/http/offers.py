"""Collects what all front doors offer, and raises an error if two offer the same thing.

``site`` calls it when the broker starts.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from typing import Any

from attrs import field, frozen
from twisted.web.xmlrpc import XMLRPC, NoSuchFunction

from rsscloud_broker.interfaces import IFrontDoor, Route, SoapService
from rsscloud_broker.wire.text import clean


class FrontDoorsError(Exception):
    """Front doors cannot run together.  The text says which, why, and what to do."""


#: The procedures of the broker itself: ``system.listMethods`` and the like.
_SYSTEM = ("XML-RPC procedures system.*",)


class Procedures(XMLRPC):
    """The procedures with one prefix, of all front doors that have some."""

    def __init__(self) -> None:
        super().__init__()
        self._handlers: list[XMLRPC] = []
        self.body_limit = 0

    def add(self, handler: XMLRPC) -> None:
        """Add the procedures of a front door, with the ``body_limit`` that it may have."""
        self._handlers.append(handler)
        self.body_limit = max(self.body_limit, getattr(handler, "body_limit", 0))

    def lookupProcedure(self, procedurePath: str) -> Callable[..., Any]:
        """The procedure of the first handler that has it; Twisted calls this."""
        for handler in self._handlers:
            with suppress(NoSuchFunction):
                found: Callable[..., Any] = handler.lookupProcedure(procedurePath)
                return found
        raise NoSuchFunction(self.NOT_FOUND, f"procedure {procedurePath} not found")

    def listProcedures(self) -> list[str]:
        return [name for handler in self._handlers for name in handler.listProcedures()]


@frozen
class Offers:
    """The routes, XML-RPC procedures and SOAP services of all front doors.

    :ivar handlers: the handlers of XML-RPC procedures, by prefix.
    :ivar services: the SOAP services, by SOAPAction.
    :ivar _owners: which front door offers each thing; None for the broker itself.
    """

    routes: list[Route] = field(factory=list)
    handlers: dict[str, Procedures] = field(factory=dict)
    services: dict[str, SoapService] = field(factory=dict)
    _owners: dict[Hashable, IFrontDoor | None] = field(factory=dict)

    @classmethod
    def of(cls, doors: Iterable[IFrontDoor]) -> Offers:
        """Ask front doors for what they offer.

        :raises FrontDoorsError: two doors offer the same thing, or one raised an exception.
        """
        offers = cls(owners={_SYSTEM: None})
        for door in doors:
            try:
                offers._add(door)
            except FrontDoorsError:
                raise
            except Exception as error:  # the front door may be a third party's
                said = f"{type(error).__name__}: {clean(str(error))}"
                raise FrontDoorsError(
                    f"the front door {door.name!r} cannot say what it offers: {said}; fix or "
                    f"uninstall it, or set enabled = false in [front_doors.{door.name}]"
                ) from error
        return offers

    def _add(self, door: IFrontDoor) -> None:
        """Take what a front door offers, and claim each thing for it."""
        for route in door.routes():
            what = f"{route.method} {route.path}"
            self._claim(door, what, route.requires, route.content_types)
            self.routes.append(route)
        for prefix, handler in door.xmlrpc_handlers().items():
            if prefix == "system":
                self._claim(door, *_SYSTEM)
            for name in handler.listProcedures():
                self._claim(door, f"the XML-RPC procedure {prefix}.{name}")
            self.handlers.setdefault(prefix, Procedures()).add(handler)
        for service in door.soap_services():
            for name in service.operations:
                self._claim(door, f"the SOAP operation {name} for {service.action}")
            # Front doors may share a service, but an alias belongs to one.
            shared = service.action in self.services
            for action in (*([] if shared else [service.action]), *service.aliases):
                self._claim(door, f"SOAP operations for {action}")
            for path in service.description.paths if service.description else ():
                self._claim(door, f"GET {path}", frozenset({"wsdl"}), frozenset())
            self.services[service.action] = _merged(self.services.get(service.action), service)

    def _claim(self, door: IFrontDoor, what: str, *details: Hashable) -> None:
        """Note that a front door offers something; an error if it is offered already.

        :param details: what distinguishes it from another offer with the same words.
        """
        key = (what, *details)
        if key not in self._owners:
            self._owners[key] = door
            return
        first, name = self._owners[key], f"the front door {door.name!r}"
        if first is door:
            raise FrontDoorsError(f"{name} offers {what} twice; fix or uninstall it")
        other = "the broker itself"
        if first is not None:
            other = "another of that name" if first.name == door.name else f"{first.name!r}"
        raise FrontDoorsError(
            f"{name} offers {what}, as does {other}; set another path for one of them if it has "
            f"an option for that, or enabled = false in its table, such as "
            f"[front_doors.{door.name}]"
        )


def _merged(first: SoapService | None, second: SoapService) -> SoapService:
    """A service with the operations of two front doors."""
    if first is None:
        return second
    return SoapService(
        first.action,
        {**first.operations, **second.operations},
        (*first.aliases, *second.aliases),
        first.description or second.description,
        (*first.described, *second.described),
        max(first.body_limit, second.body_limit),
    )
