"""The root resource of the site: routes each request to the front door that answers it.

1. A POST with an XML body to one of the paths for calls is a call: XML-RPC if its
   root element is ``methodCall``, SOAP otherwise, whatever its Content-Type says.
2. Any other request goes to the route with the longest matching path.  Among several, routes for
   the media type of the body win over routes for any, and then the one that requires the
   most parameters wins.  A request for a path that has routes of its own never goes to a route
   that ends in ``/*``, whatever the method.
3. Any other POST to a path for calls is a call that cannot be read, and is answered so.

As people type paths, a path that is unknown is taken for a known one from which it differs only by
upper and lower case or by a slash at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from itertools import chain

from twisted.web.resource import IResource, Resource
from twisted.web.server import Request
from twisted.web.static import Data

from rsscloud_broker.errors import DocumentFault
from rsscloud_broker.http import soap as soap_door
from rsscloud_broker.http import xmlrpc as xmlrpc_door
from rsscloud_broker.http.answering import answer
from rsscloud_broker.http.large_calls import LARGE, is_soap, read_call, unpack_call
from rsscloud_broker.http.offers import Offers
from rsscloud_broker.http.requests import (
    begins_as_xml,
    body_of,
    charset,
    client_address,
    media_type,
    parameters,
    plain,
)
from rsscloud_broker.http.security import SECURITY_HEADERS
from rsscloud_broker.http.shown_exchange import FORM
from rsscloud_broker.http.soap import SoapRoot
from rsscloud_broker.http.xmlrpc import XMLRPCRoot
from rsscloud_broker.interfaces import IFrontDoor, Parsing, Route, SoapService, parse_directly
from rsscloud_broker.wire import soap, xml, xmlrpc

#: Headers of the answers that a script of any site may read: browsers add no cookies to such
#: requests, so a script can send only a token that it has
#: (https://fetch.spec.whatwg.org/#http-cors-protocol).
FOR_EVERYBODY = {
    b"access-control-allow-origin": b"*",
    b"access-control-expose-headers": b"link, location, ratelimit, retry-after, rsscloud-reason",
}

#: Headers of the answer to a CORS preflight request for such a path.
PREFLIGHT = {
    b"access-control-allow-headers": b"authorization, content-encoding, content-type, soapaction",
    b"access-control-max-age": b"86400",
}

_NOTHING: Set[str] = frozenset()


class Root(Resource):
    """The root resource of the broker; ``composition`` makes it from all front doors.

    :param public_url: the URL of the broker, without a slash at the end.
    :param takes_calls: whether there are paths for XML-RPC and SOAP calls.
    :param parse: parses documents of strangers, such as large calls.
    :raises FrontDoorsError: two front doors offer the same thing.
    """

    isLeaf = True

    def __init__(
        self,
        doors: Iterable[IFrontDoor],
        public_url: str,
        *,
        takes_calls: bool = True,
        parse: Parsing = parse_directly,
    ) -> None:
        super().__init__()
        self._parse = parse
        self._routes: dict[tuple[str, str], list[Route]] = {}
        offers = Offers.of(doors)
        for route in offers.routes:
            self._add_route(route)
        self._xmlrpc = XMLRPCRoot(offers.handlers)
        services = list(offers.services.values())
        self._soap = SoapRoot(services)
        self._soap_paths = {"/soap", *self._soap.paths}
        self._call_paths = xmlrpc.CALL_PATHS | self._soap_paths if takes_calls else frozenset()
        limits = [service.body_limit for service in services]
        limits += [handler.body_limit for handler in offers.handlers.values()]
        self._call_limit = max(limits, default=0)
        for service in services:
            self._add_description(service, public_url)
        self._methods_at = self._find_methods()
        self._known_as = {_folded(path): path for path in self._methods_at}  # as people type them
        wild = (at.count("/") for at in self._methods_at if at.endswith("/*"))
        self._depth = max(wild, default=0)  # slashes in the deepest path that ends in /*
        self._headers_at = {path: self._headers_of(path) for path in self._methods_at}
        self._large_routes: dict[str, list[Route]] = {}  # those with a ``body_limit``, by path
        for route in offers.routes:
            if route.body_limit:
                self._large_routes.setdefault(route.path, []).append(route)

    def _add_description(self, service: SoapService, public_url: str) -> None:
        """Serve the WSDL of a SOAP service, if it has one, at its paths with ``?wsdl``."""
        description = service.description
        if description is not None:
            for path in description.paths:
                document = description.document(f"{public_url}{path}", service.described)
                page = Data(document, soap_door.CONTENT_TYPE)
                self._add_route(Route(path, "GET", page, frozenset({"wsdl"})))

    @property
    def pages(self) -> frozenset[str]:
        """The paths that a browser can open without any parameters."""
        return frozenset(
            path
            for (path, method), routes in self._routes.items()
            if method == "GET" and not all(route.requires for route in routes)
        )

    def body_limit(self, path: str, kind: str) -> int:
        """How many bytes a body may have, if that is more than usual; else 0: see ``BodyRules``.

        The site itself parses forms without files, so they stay small, but where a route says that
        it takes them.
        """
        path = self._as_routed(path)
        found = self._call_limit if path in self._call_paths and kind != FORM else 0
        if not self._large_routes:
            return found
        limits = (
            route.body_limit
            for each in self._candidates(path)
            for route in self._large_routes.get(each, ())
            if kind in route.content_types or not (route.content_types or kind == FORM)
        )
        return max(limits, default=found)

    def takes_files(self, path: str) -> bool:
        """Whether a route at a path takes forms with files."""
        return any(
            "multipart/form-data" in route.content_types
            for each in self._candidates(self._as_routed(path))
            for route in self._routes.get((each, "POST"), ())
        )

    @property
    def largest_body(self) -> int:
        """The largest number that ``body_limit`` returns."""
        limits = (route.body_limit for routes in self._large_routes.values() for route in routes)
        return max([self._call_limit, *limits])

    def _candidates(self, path: str) -> Sequence[str]:
        """The paths of routes that a request's path matches, the longest first.

        No prefix is longer than the longest of the routes', since strangers send paths with
        thousands of slashes.
        """
        parts = path.split("/", self._depth)
        prefixes = ("/".join(parts[:n]) + "/*" for n in range(len(parts) - 1, 0, -1))
        return [each for each in (path, *prefixes) if each in self._methods_at]

    def _add_route(self, route: Route) -> None:
        """Add a route; at one path, those that require the most parameters come first."""
        routes = self._routes.setdefault((route.path, route.method), [])
        routes.append(route)
        routes.sort(key=lambda each: -len(each.requires))

    def render(self, request: Request) -> bytes | int:
        """Answer a request: as a call, by a route, or with an error that says why not."""
        body = self._answer(request)
        if request.method == b"HEAD" and isinstance(body, bytes) and body:
            # Twisted would log a line for each, with the whole URL, which may hold a secret.
            request.setHeader("content-length", str(len(body)))
            return b""
        return body

    def _answer(self, request: Request) -> bytes | int:
        """Answer a request by the three rules in the docstring of this module.

        :returns: the body, even for a HEAD; or ``NOT_DONE_YET``.
        """
        path = self._as_routed(request.path.decode("latin-1"))
        request.path = path.encode("latin-1")
        for name, value in self._headers_at.get(path) or self._headers_below(path):
            request.setHeader(name, value)
        if request.method == b"OPTIONS":
            return self._answer_options(request, path)
        is_call = request.method == b"POST" and path in self._call_paths
        body = body_of(request) if is_call else b""
        if is_call and begins_as_xml(body):
            return self._answer_call(request, body)
        resource = self._find_resource(request, path)
        if resource is not None:
            rendered: bytes | int = resource.render(request)
            return rendered
        if is_call:
            return self._answer_call(request, body)
        return self._refuse_unrouted(request, path)

    def _as_routed(self, path: str) -> str:
        """The path of a request, in the spelling that the routes have."""
        return path if path in self._methods_at else self._known_as.get(_folded(path), path)

    def _headers_of(self, path: str) -> tuple[tuple[bytes, bytes], ...]:
        more = FOR_EVERYBODY if self._is_for_everybody(path) else {}
        return tuple((SECURITY_HEADERS | more).items())

    def _headers_below(self, path: str) -> tuple[tuple[bytes, bytes], ...]:
        """The headers of every answer at a path that only a route ending in ``/*`` may match."""
        at = next(iter(self._candidates(path)), None)
        return self._headers_of(path) if at is None else self._headers_at[at]

    def _is_for_everybody(self, path: str) -> bool:
        """Whether scripts of other sites may read the answers at a path."""
        if path in self._call_paths:
            return True
        at = next(iter(self._candidates(path)), path)
        routes = chain.from_iterable(self._routes.get((at, each), ()) for each in ("GET", "POST"))
        return any(route.for_everybody for route in routes)

    def _answer_options(self, request: Request, path: str) -> bytes:
        """Answer OPTIONS with the methods of a path (RFC 9110, section 9.3.7)."""
        at = next(iter(self._candidates(path)), "")
        if not at:
            return self._refuse_unrouted(request, path)
        methods = ", ".join(sorted(self._methods_at[at]))
        request.setHeader("allow", methods)
        if self._is_for_everybody(path):
            request.setHeader("access-control-allow-methods", methods)
            for name, value in PREFLIGHT.items():
                request.setHeader(name, value)
        return b""

    def _find_resource(self, request: Request, path: str) -> IResource | None:
        """What answers a request by a route; None if no route takes it."""
        method = {b"HEAD": "GET"}.get(request.method, request.method.decode("latin-1"))
        # Most requests have no parameters.
        names = parameters(request).keys() if b"?" in request.uri or request.args else _NOTHING
        # A path with routes of its own is not for the routes that end in /*.  "/" is the
        # exception: it takes calls, and a route for /* may still have a home page for it.
        known = path != "/" and path in self._methods_at
        for candidate in (path,) if known else self._candidates(path):
            for route in self._suitable_routes(request, candidate, method):
                if route.requires <= names:
                    return route.resource
        return None

    def _suitable_routes(self, request: Request, path: str, method: str) -> Sequence[Route]:
        """The routes at a path for the media type of a request's body."""
        routes = self._routes.get((path, method), ())
        if not any(route.content_types for route in routes):
            return routes
        kind = media_type(request)
        named = [route for route in routes if kind in route.content_types]
        return named or [route for route in routes if not route.content_types]

    def _answer_call(self, request: Request, body: bytes) -> bytes | int:
        """Parse the body of a call, once, and pass it to XML-RPC or SOAP by its root element."""
        encoding = charset(request)
        if (call := xmlrpc.plain_call(body, encoding)) is not None:
            return self._xmlrpc.render_call(request, *call)
        means_soap = request.path.decode("latin-1") in self._soap_paths
        means_soap = means_soap or request.requestHeaders.hasHeader("soapaction")
        if len(body) > LARGE:
            failure = (soap_door if means_soap else xmlrpc_door).failure
            large = self._answer_large(request, body, means_soap=means_soap)
            return answer(request, large, failure)
        try:
            root = xml.parse(body, encoding)
        except xml.MalformedXML as error:
            return _answer_unreadable(request, error.reason, means_soap=means_soap)
        if is_soap(root, means_soap=means_soap):
            return self._soap.render_document(request, root)
        return self._xmlrpc.render_document(request, root)

    async def _answer_large(self, request: Request, body: bytes, *, means_soap: bool) -> bytes:
        """Answer a large call, which another process parses."""
        try:
            source, encoding = client_address(request), charset(request)
            packed = await self._parse(source, read_call, body, encoding, means_soap)
            call = unpack_call(packed)
        except DocumentFault as error:
            return _answer_unreadable(request, error.reason, means_soap=means_soap)
        if call.is_soap:
            soap_call = soap.SoapCall(call.name, call.namespace, call.parameters)
            return await self._soap.answer_call(request, soap_call)
        return await self._xmlrpc.answer_call(request, call.name, call.parameters)

    def _find_methods(self) -> dict[str, Set[str]]:
        """The HTTP methods of each path, with OPTIONS, and with HEAD where GET is."""
        found: dict[str, set[str]] = {}
        for at, method in (*self._routes, *((path, "POST") for path in self._call_paths)):
            found.setdefault(at, set()).add(method)
        for methods in found.values():
            methods.add("OPTIONS")
            if "GET" in methods:
                methods.add("HEAD")
        return {at: frozenset(methods) for at, methods in found.items()}

    def _refuse_unrouted(self, request: Request, path: str) -> bytes:
        """Answer a request that no route takes: 404, 415, 400 or 405, with the reason."""
        allowed = self._methods_at.get(path, _NOTHING)
        method = request.method.decode("latin-1")
        if not allowed:
            return plain(request, 404, "There is nothing at this address.")
        if method in allowed:
            asked = "GET" if method == "HEAD" else method
            suitable = self._suitable_routes(request, path, asked)
            if not suitable:
                routes = self._routes[path, asked]
                kinds = {kind for route in routes for kind in route.content_types}
                return plain(request, 415, f"This address takes {' and '.join(sorted(kinds))}.")
            needed = "&".join(sorted(suitable[-1].requires))  # the last one requires the fewest
            text = f"This address needs parameters that did not come: ?{needed}"
            return plain(request, 400, text)
        text = f"This address takes {' and '.join(sorted(allowed - {'HEAD', 'OPTIONS'}))} requests"
        if path in self._call_paths:
            text += "; a POST is an XML-RPC or SOAP call"
        return plain(request, 405, f"{text}.", allow=", ".join(sorted(allowed)))


def _answer_unreadable(request: Request, reason: str, *, means_soap: bool) -> bytes:
    """Answer a call that cannot be read with a fault: of SOAP, or else of XML-RPC."""
    text = f"The request is not acceptable XML: {reason}"
    if means_soap:
        return soap_door.fault_document(request, "Client", text)
    return xmlrpc_door.fault_document(request, xmlrpc.PARSE_ERROR, text)


def _folded(path: str) -> str:
    """A path in lower case and without a slash at its end."""
    return path.rstrip("/").lower()
