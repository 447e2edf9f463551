"""A server that records requests and gives prepared answers."""

from attrs import define, field, frozen
from treq.testing import RequestTraversalAgent
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request

from rsscloud_broker.client.any_address import AnyAddress
from rsscloud_broker.client.web import Web
from rsscloud_broker.testing.clock import Clock


@frozen
class Asked:
    """One recorded request.

    :ivar headers: by names in lower case.
    """

    method: str
    uri: str
    args: dict[bytes, list[bytes]]
    body: bytes
    headers: dict[str, str]


@define
class Answer:
    """A prepared answer."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(factory=dict)


class Server(Resource):
    """Gives its answers in turn, and repeats the last one."""

    isLeaf = True

    def __init__(self, *answers: Answer) -> None:
        super().__init__()
        self.answers = list(answers)
        self.asked: list[Asked] = []

    def render(self, request: Request) -> bytes | int:
        assert request.content is not None
        raw = request.requestHeaders.getAllRawHeaders()
        headers = {name.decode().lower(): values[-1].decode() for name, values in raw}
        method, uri, body = request.method.decode(), request.uri.decode(), request.content.read()
        self.asked.append(Asked(method, uri, request.args, body, headers))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        request.setResponseCode(answer.status)
        for name, value in answer.headers.items():
            request.setHeader(name, value)
        return answer.body


class SilentServer(Resource):
    """Never answers."""

    isLeaf = True

    def render(self, request: Request) -> int:
        return NOT_DONE_YET


def web_to(resource: Resource, clock: Clock | None = None) -> Web:
    """A Web whose every request goes to a resource, without sockets."""
    return Web(client_to(resource, clock))


def client_to(resource: Resource, clock: Clock | None = None) -> AnyAddress:
    """A client whose every request goes to a resource, without sockets."""
    return AnyAddress(RequestTraversalAgent(resource), clock or Clock(), max_bytes=10_000)


def fields_of(asked: Asked) -> dict[str, str]:
    """The fields of the form in a request."""
    return {name.decode(): values[0].decode() for name, values in asked.args.items()}
