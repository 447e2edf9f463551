"""What is asked of a fetch of a topic, and what it brings.

A fetcher that reads topics in another process sends as little of them back as somebody needs.
"""

from __future__ import annotations

from typing import Final

from attrs import evolve

from rsscloud_broker.model import NO_VALIDATORS, Content, Need, Validators
from rsscloud_broker.model.frozen import frozen


@frozen
class Wanted:
    """What is wanted of a topic's content, beside its digest.

    :ivar need: how much of it.  A fetcher may bring more.
    :ivar digest: the digest of the content that is known; None if none is.
    :ivar size: its number of bytes.
    """

    need: Need = Need.CONTENT
    digest: bytes | None = None
    size: int | None = None


#: The content is wanted, whatever it is.
EVERYTHING: Final = Wanted()


@frozen
class Fetched:
    """The response of a topic's server to a fetch.

    :ivar content: None if the content has not changed since the server sent the validators, or if
        it is not wanted.
    :ivar moved_to: the URL to which the topic has moved permanently, as its server says; empty
        if it has not moved.
    :ivar fresh_seconds: for how long the content stays fresh (RFC 9111); None if the server
        does not say.
    :ivar result: the response in a few words, for people.
    :ivar digest: the digest of what the server sent, if ``content`` does not tell; None if it sent
        no content.
    :ivar size: the number of bytes of that.
    """

    content: Content | None
    validators: Validators = NO_VALIDATORS
    moved_to: str = ""
    fresh_seconds: float | None = None
    result: str = ""
    digest: bytes | None = None
    size: int = 0


def as_wanted(fetched: Fetched, wanted: Wanted) -> Fetched:
    """What was fetched, with the digest of its content, and without content that is not wanted."""
    content = fetched.content
    if content is None:
        return fetched
    digest, size = content.digest, len(content.body)
    changed = (digest, size) != (wanted.digest, wanted.size)
    if wanted.need is not Need.CONTENT and not changed:
        content = None
    return evolve(fetched, content=content, digest=digest, size=size)
