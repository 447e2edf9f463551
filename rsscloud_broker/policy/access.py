"""Which topics callers may ping and subscribe to, by the patterns in the configuration and the
blocks of administrators.

``Broker`` asks before it accepts a request.  Without patterns all topics are allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate

from rsscloud_broker.config import Topics
from rsscloud_broker.errors import Forbidden
from rsscloud_broker.model import host_of
from rsscloud_broker.model.administration import Block
from rsscloud_broker.policy.blocks import Blocks
from rsscloud_broker.util.urls import encoded, normal_form
from rsscloud_broker.wire.origin import has_passed

#: The stored reason of a topic that ended because the operator no longer allows it.  The
#: broker revives a topic with this reason once it is allowed again, so never change the text.
NOT_ALLOWED = "this broker takes no subscriptions to it any more"

_WILDCARD = re.compile(r"[*?\[]")
_PIECES = re.compile(r"(\*|\?|\[[^\]]*\])")
_URL = re.compile(
    r"(?P<scheme>https?)://(?P<authority>[^/]*)(?P<path>/.*)?", re.IGNORECASE | re.DOTALL
)
_DEFAULT_PORT = {"http": ":80", "https": ":443"}


class Access:
    """Compares topics with the operator's patterns, and requests with the blocks.

    Every URL of a topic must be in normal form, or another spelling would get round a pattern.

    :param blocks: what administrators have blocked.
    :param identity: the URL by which other brokers know this one; empty if they cannot.
    :ivar limited: whether the patterns forbid subscriptions to any topic.
    """

    def __init__(self, topics: Topics, blocks: Blocks, identity: str = "") -> None:
        self._blocks = blocks
        self._identity = identity
        self.change(topics)

    def change(self, topics: Topics) -> None:
        """Use other patterns from now on."""
        self._subscribe = _any_of(topics.subscribe)
        self._publish = _any_of(topics.publish)
        self.limited = "*" not in topics.subscribe

    def came_back(self, origin: str) -> bool:
        """Whether a ping with an origin has passed this broker before, which passed it on."""
        return has_passed(origin, self._identity)

    def may_subscribe(self, topic: str) -> bool:
        """Whether the patterns allow subscriptions to a topic."""
        return self._subscribe.match(topic) is not None

    def check_subscribe(self, topic: str) -> None:
        """Raise if the operator allows no subscriptions to a topic.

        :raises Forbidden: no pattern matches the topic, or it is blocked.
        """
        self.check_blocked(topic)
        if not self.may_subscribe(topic):
            raise Forbidden(f"the operator of this broker does not allow subscriptions to {topic}")

    def check_publish(self, *topics: str) -> None:
        """Raise if the operator allows no pings of one of these topics.

        :raises Forbidden: no pattern matches that topic, or it is blocked.
        """
        for topic in topics:
            self.check_blocked(topic)
            if self._publish.match(topic) is None:
                raise Forbidden(f"the operator of this broker does not allow pings of {topic}")

    def check_blocked(self, topic: str) -> None:
        """Raise if an administrator has blocked a topic.

        :raises Forbidden: it is blocked, or its host is.
        """
        if block := self._blocks.of_topic(topic):
            raise Forbidden(f"{topic}: {refusal(block)}")

    def check_source(self, source: str) -> None:
        """Raise if requests from a source are blocked.

        :param source: the address of the caller; empty for the broker itself.
        :raises Forbidden: it is.
        """
        if block := self._blocks.of_source(source):
            raise Forbidden(f"your address {source}: {refusal(block)}")

    def check_callback(self, url: str) -> None:
        """Raise if the host of a callback is blocked.

        :raises Forbidden: it is.
        """
        if block := self._blocks.of_host(host_of(url)):
            raise Forbidden(f"{url}: {refusal(block)}")


def refusal(block: Block) -> str:
    """Why a request is refused because of a block, as a clause for the caller."""
    return f"this {block.kind} is blocked here: {block.reason}"


def _any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    """An expression that matches the URLs that match any of some patterns."""
    # Without patterns the expression must match nothing; an empty one matches everything.
    return re.compile("|".join(translate(_normalised(one)) for one in patterns) or r"(?!)")


def _normalised(pattern: str) -> str:
    """A pattern that matches URLs in normal form.

    Its literal parts are brought into normal form; its wildcards stay as they are.
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
