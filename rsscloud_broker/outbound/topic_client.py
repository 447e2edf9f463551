"""The HTTP client that fetches topics: treq, over guarded exchanges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from treq.client import HTTPClient
from treq.cookies import IndexableCookieJar
from twisted.web.http_headers import Headers

from rsscloud_broker.interfaces import OutboundReply
from rsscloud_broker.model.administration import Block
from rsscloud_broker.outbound.agent import GuardedAgent
from rsscloud_broker.outbound.bodies import WholeBody
from rsscloud_broker.outbound.budget import AnswerBudget
from rsscloud_broker.outbound.client import Client
from rsscloud_broker.outbound.decoding import BodyDecoder, InThread
from rsscloud_broker.outbound.http1 import HTTPAnswer
from rsscloud_broker.outbound.urls import WrittenURL, target_of
from rsscloud_broker.util.deferreds import BreakOff, Done, run_with_callback
from rsscloud_broker.util.urls import normal_form


class _NoCookies(IndexableCookieJar):
    """A cookie jar that keeps and sends no cookies."""

    def add_cookie_header(self, request: Any) -> None:
        pass

    def extract_cookies(self, response: Any, request: Any) -> None:
        pass


#: Headers that are lists, of which a server may send several (RFC 9110, section 5.3).
_LISTS: Final = frozenset({"cache-control", "link", "vary"})


def _joined(name: str, values: Sequence[bytes]) -> tuple[str, str]:
    """The name of a header and its value; of several values the last, unless it is a list."""
    used = values if name in _LISTS else values[-1:]
    return name, b", ".join(used).decode("latin-1")


class TopicClient(Client):
    """Makes guarded requests for topics; too long an answer is an error.

    :param body_limit: how many bytes an answer may have, both before and after decompression.
    :param in_thread: calls a function in a thread and returns its result.
    """

    body = WholeBody

    def __init__(
        self,
        reactor: Any,
        *args: Any,
        body_limit: int,
        in_thread: InThread,
        budget: AnswerBudget | None = None,
        **options: Any,
    ) -> None:
        self._budget = budget or AnswerBudget()
        super().__init__(reactor, *args, body_limit=body_limit, budget=self._budget, **options)
        self._reactor = reactor
        self._cookies = _NoCookies()
        self._decoder = BodyDecoder(body_limit, self._budget, in_thread)
        self._treq = HTTPClient(GuardedAgent(self._exchanger, self._decoder), self._cookies)

    def change_body_limit(self, limit: int) -> None:
        """Use another limit for the size of answers, on new connections.

        :param limit: bytes, before and after decompression.
        """
        self._exchanger.make_body = partial(self.body, limit=limit)
        self._decoder.limit = limit
        self._budget.set_body_limit(limit)
        self._exchanger.call_anew()

    def block_of(self, url: str) -> Block | None:
        """The block of a topic or its host.  A redirect may lead to another topic."""
        return self.blocks.of_topic(normal_form(url))

    def exchange(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        done: Done[OutboundReply | HTTPAnswer],
    ) -> BreakOff:
        """Begin one request, without redirects; ``done`` gets the reply or an error."""
        return run_with_callback(self._exchange(method, url, headers, body), done)

    async def _exchange(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> OutboundReply:
        """Make one request by treq; the reply, with its body decompressed."""
        response = await self._treq.request(
            method,
            WrittenURL(target_of(url).url),
            headers=Headers({name: [value] for name, value in headers.items()}),
            data=body or None,
            cookies=self._cookies,  # otherwise treq makes a jar for each request
            allow_redirects=False,
            unbuffered=True,
            reactor=self._reactor,
        )
        return OutboundReply(
            status=response.code,
            headers=dict(
                _joined(name.decode("latin-1").lower(), values)
                for name, values in response.headers.getAllRawHeaders()
            ),
            body=await response.content(),
            url=url,
            # Without GuardedAgent's response, treq itself has decompressed the body.
            compressed=getattr(response.original, "compressed", True),
        )
