"""The site with the front doors of an application, without sockets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rsscloud_broker.config import Http
from rsscloud_broker.counters import Counters
from rsscloud_broker.http.limits import HTTPLimits, bounded_site
from rsscloud_broker.http.site import Root
from rsscloud_broker.interfaces import App, IClock
from tests.front_doors.exchange import Answer, ask


class AppSite:
    """The site of an application: requests in, answers out.

    :param clock: the clock of the application.
    """

    def __init__(self, app: App, clock: Any, public_url: str = "http://broker.example") -> None:
        limits = HTTPLimits(Http(), clock)
        self.clock: IClock = clock
        self.factory = bounded_site(Root(app.front_doors, public_url), limits, Counters())

    def ask(
        self,
        path: str,
        method: str = "GET",
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        source: str = "192.0.2.7",
    ) -> Answer:
        """Send one request, whose answer must be there at once."""
        return ask(self.factory, method, path, body, headers, source)
