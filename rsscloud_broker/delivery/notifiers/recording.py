"""Records the request and the answer of a call that failed, for administrators.

Only failures are recorded: most calls succeed, and cost nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Final

from attrs import evolve

from rsscloud_broker.interfaces import OutboundReply, OutboundRequest
from rsscloud_broker.model import Exchange
from rsscloud_broker.model.values import HIDDEN, KEPT_OF_BODY
from rsscloud_broker.wire.text import clean
from rsscloud_broker.wire.websub import SIGNATURE

#: Headers whose values could be used by those who read them.
SECRET_HEADERS: Final = frozenset(
    {"authorization", "cookie", "proxy-authorization", "set-cookie", SIGNATURE}
)

#: How many headers are kept, and how many characters of each value.
MAX_HEADERS, MAX_VALUE = 50, 1000


def exchange_of(request: OutboundRequest, reply: OutboundReply | None = None) -> Exchange:
    """The record of a request and its answer.

    :param reply: the answer; None if there was none.
    """
    headers = request.headers
    if request.signing is not None:
        headers = {**headers, SIGNATURE: ""}  # the client signs it
    shown, body = _shown(headers), request.body[:KEPT_OF_BODY]
    if reply is None:
        return Exchange(request.method, request.url, shown, body)
    return Exchange(
        request.method,
        reply.url,
        shown,
        body,
        reply.status,
        _shown(reply.headers),
        reply.body[:KEPT_OF_BODY],
    )


def cleaned(exchange: Exchange) -> Exchange:
    """A record that came from elsewhere, with no more in it than `exchange_of` puts there."""
    return evolve(
        exchange,
        method=clean(exchange.method)[:MAX_VALUE],
        url=clean(exchange.url),
        request_headers=_shown(exchange.request_headers),
        request_body=exchange.request_body[:KEPT_OF_BODY],
        answer_headers=_shown(exchange.answer_headers),
        answer_body=exchange.answer_body[:KEPT_OF_BODY],
    )


def _shown(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Headers as they are recorded: not too many or too long, and without secrets."""
    return {
        clean(name)[:MAX_VALUE]: HIDDEN if name in SECRET_HEADERS else clean(value)[:MAX_VALUE]
        for name, value in islice(headers.items(), MAX_HEADERS)
    }
