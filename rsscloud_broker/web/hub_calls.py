"""Reads what hubs ask of a callback, and writes the answers: for applications that subscribe.

Source: WebSub (W3C Recommendation, 2018), section 5.3.
"""

from __future__ import annotations

from twisted.web.server import Request

from rsscloud_broker.http.answering import PLAIN, Answer
from rsscloud_broker.wire.text import decode
from rsscloud_broker.wire.websub import HubCall, parse_call


def hub_call(request: Request) -> HubCall:
    """What a hub asks by a GET request to a callback.

    :raises BadRequest: it is no verification and no denial.
    """
    return parse_call(
        (decode(name), decode(value))
        for name, values in (request.args or {}).items()
        for value in values
    )


def callback_key(request: Request) -> str:
    """The last part of the path, which tells the callbacks of an application apart."""
    return str(request.path.decode("latin-1").rpartition("/")[2])


def confirmed(challenge: str) -> Answer:
    """The answer that confirms: the challenge itself, which no browser takes for a page."""
    return Answer(challenge.encode(), PLAIN, headers={"x-content-type-options": "nosniff"})
