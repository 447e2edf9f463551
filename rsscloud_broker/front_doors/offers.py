"""Collects what the front doors offer, and finds out where two of them offer the same."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from attrs import field, frozen
from twisted.web.xmlrpc import XMLRPC

from rsscloud_broker.interfaces import IFrontDoor, Route, SoapService
from rsscloud_broker.wire.text import clean


class FrontDoorsError(Exception):
    """Front doors cannot be mounted together.  The text says which, why, and what to do."""


#: Who offers ``system.listMethods`` and the like.
_BROKER = "the broker itself"


@frozen
class Offers:
    """What the front doors offer together.

    :ivar handlers: of XML-RPC procedures, by prefix.
    """

    routes: list[Route] = field(factory=list)
    handlers: dict[str, XMLRPC] = field(factory=dict)
    services: list[SoapService] = field(factory=list)
    _owners: dict[Hashable, str] = field(factory=dict)

    @classmethod
    def of(cls, doors: Iterable[IFrontDoor]) -> Offers:
        """What front doors offer.

        :raises FrontDoorsError: two offer the same, or one cannot say what it offers.
        """
        offers = cls()
        offers._claim(_BROKER, "", "XML-RPC procedures system.*")
        for door in doors:
            try:
                offers._take(door)
            except FrontDoorsError:
                raise
            except Exception as error:  # it may be anybody's code
                said = f"{type(error).__name__}: {clean(str(error))}"
                raise FrontDoorsError(
                    f"the front door {door.name!r} cannot say what it offers: {said}; mend or "
                    f"uninstall it, or set enabled = false in [front_doors.{door.name}]"
                ) from error
        return offers

    def _take(self, door: IFrontDoor) -> None:
        owner = f"the front door {door.name!r}"
        for route in door.routes():
            what = f"{route.method} {route.path}"
            self._claim(owner, door.name, what, route.requires, route.content_types)
            self.routes.append(route)
        for prefix, handler in door.xmlrpc_handlers().items():
            self._claim(owner, door.name, f"XML-RPC procedures {prefix}.*")
            self.handlers[prefix] = handler
        for service in door.soap_services():
            for action in (service.action, *service.aliases):
                self._claim(owner, door.name, f"SOAP operations for {action}")
            for path in service.description.paths if service.description else ():
                self._claim(owner, door.name, f"GET {path}", frozenset({"wsdl"}), frozenset())
            self.services.append(service)

    def _claim(self, owner: str, table: str, what: str, *details: Hashable) -> None:
        """Note who offers something.

        :param table: the table of that front door in the configuration.
        :param what: is offered, for people; the details tell it from its like.
        :raises FrontDoorsError: it is offered already.
        """
        key = (what, *details)
        if key not in self._owners:
            self._owners[key] = owner
        elif self._owners[key] == owner:
            raise FrontDoorsError(f"{owner} offers {what} twice; mend or uninstall it")
        else:
            raise FrontDoorsError(
                f"{self._owners[key]} and {owner} both offer {what}; set another path for one "
                f"of them if it has an option for that, or enabled = false in "
                f"[front_doors.{table}]"
            )
