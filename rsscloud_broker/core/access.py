"""Which topics one may publish and subscribe to: by patterns of the operator's.

All of them, where the operator says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate

from rsscloud_broker.config import Topics
from rsscloud_broker.errors import Forbidden
from rsscloud_broker.urls import encoded, normal_form

#: Why a topic has ended to which there may be no subscriptions any more.  By that it is
#: known in the database as one that may go on, so it must stay as it is.
NOT_ALLOWED = "this broker takes no subscriptions to it any more"

_WILDCARD = re.compile(r"[*?\[]")
_PIECES = re.compile(r"(\*|\?|\[[^\]]*\])")
_URL = re.compile(
    r"(?P<scheme>https?)://(?P<authority>[^/]*)(?P<path>/.*)?", re.IGNORECASE | re.DOTALL
)
_DEFAULT_PORT = {"http": ":80", "https": ":443"}


class Access:
    """Lets topics through, or refuses them.

    The URLs are in normal form: or else another spelling would get round a pattern.

    :ivar limited: whether there is any topic that nobody may subscribe to.
    """

    def __init__(self, topics: Topics) -> None:
        self.change(topics)

    def change(self, topics: Topics) -> None:
        """Let topics through by other patterns from now on."""
        self._subscribe = _any_of(topics.subscribe)
        self._publish = _any_of(topics.publish)
        self.limited = "*" not in topics.subscribe

    def may_subscribe(self, topic: str) -> bool:
        """Whether there may be subscriptions to a topic."""
        return self._subscribe.match(topic) is not None

    def check_subscribe(self, topic: str) -> None:
        """Return, if there may be subscriptions to a topic.

        :raises Forbidden: there may not.
        """
        if not self.may_subscribe(topic):
            raise Forbidden(f"{topic}: this broker takes no subscriptions to topics like that")

    def check_publish(self, *topics: str) -> None:
        """Return, if everybody may say of these topics that they changed.

        :raises Forbidden: of one of them nobody may.
        """
        for topic in topics:
            if self._publish.match(topic) is None:
                raise Forbidden(f"{topic}: this broker takes no pings of topics like that")


def _any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    # No pattern at all matches nothing, which an empty expression would not do.
    return re.compile("|".join(translate(_written(one)) for one in patterns) or r"(?!)")


def _written(pattern: str) -> str:
    """A pattern of URLs in normal form, which those of topics are.

    What stands for itself in the pattern is brought into normal form; what stands for other
    characters is left as it is.
    """
    if not _WILDCARD.search(pattern):
        return normal_form(pattern)
    found = _URL.fullmatch(pattern)
    if found is None:
        return pattern
    scheme, authority = found["scheme"].lower(), found["authority"]
    if not _WILDCARD.search(authority):
        authority = normal_form(f"{scheme}://{authority}/").split("/")[2]
    else:
        authority = authority.lower().removesuffix(_DEFAULT_PORT[scheme])
    path = "".join(
        piece if _WILDCARD.match(piece) else encoded(piece)
        for piece in _PIECES.split(found["path"] or "")
    )
    return f"{scheme}://{authority}{path}"
