"""An origin that answers as no server should."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from time import sleep

from attrs import field, frozen

from tests.e2e.servers import Handler, Server, http_server


@frozen
class Page:
    """An answer.

    :ivar headers: all that there are; so it has a length only if one is among them.
    :ivar endless: whether the body comes again and again.
    :ivar pause: seconds before each time that it comes again.
    """

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(factory=dict)
    endless: bool = False
    pause: float = 0.0


class RudeOrigin(Server):
    """Answers with pages, byte for byte, and closes the connection.

    :ivar pages: by path; one that is not there leads from each hop to the next.
    """

    def __init__(self) -> None:
        super().__init__(http_server(_Handler, self))
        self.pages: dict[str, Page] = {}

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"


class _Handler(Handler):
    def do_POST(self) -> None:
        self.body()
        self.do_GET()

    def do_GET(self) -> None:
        further = Page(302, headers={"location": f"{self.path}/further"})
        page = self.owner.pages.get(self.path, further)
        with suppress(ConnectionError):  # who asked may have had enough
            self.send_response_only(page.status)
            for name, value in page.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(page.body)
            while page.endless:
                sleep(page.pause)
                self.wfile.write(page.body)
