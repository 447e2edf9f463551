"""The messages between the broker and its couriers.

They are encoded by msgspec as MessagePack, many in one frame.  Each message is an array that
begins with the name of its class.  A process that gets a frame which it cannot decode ends the
link, since the two are of the same version and nothing else can be on the other side.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from msgspec import Meta, Struct

from rsscloud_broker.interfaces import OutboundReply, OutboundRequest
from rsscloud_broker.model import Outcome, Validators
from rsscloud_broker.model.fetching import Wanted
from rsscloud_broker.wire.http_dates import MAX_RETRY_AFTER, MAX_SECONDS

#: The longest text that a courier says of a topic, in characters; a validator of 1000 characters
#: may have four bytes for each.
MAX_TEXT: Final = 4000

#: What a database can store.
_Text: TypeAlias = Annotated[str, Meta(max_length=MAX_TEXT, pattern=r"^[^\x00]*$")]


class _Message(Struct, frozen=True, array_like=True, tag=True, gc=False):
    """What all messages are: arrays with their names, without references in a circle."""


# --- from the broker ---


class Setup(_Message, frozen=True):
    """The first message to a courier: how it makes requests.

    :ivar name_servers: those that are asked for addresses; empty for those of the system.
    :ivar own: address and port of each of the broker's own listeners, which are never called.
    :ivar deadline: seconds for a whole request.
    :ivar body_limit: how many bytes of an answer are read.
    """

    user_agent: str
    name_servers: list[str]
    own: list[tuple[str, int]]
    deadline: float
    body_limit: int


class Networks(_Message, frozen=True):
    """The networks (CIDRs) that may be called beside public addresses, and no others."""

    allowed: list[str]


class TopicRules(_Message, frozen=True):
    """How topics are read; it comes again when something of it has changed.

    :ivar product, page: see ``TopicFetcher``.
    :ivar deadline: seconds for a reading.
    :ivar body_limit: how many bytes a content may have.
    :ivar allowed: the networks (CIDRs) that may be called for topics, beside public addresses.
    """

    product: str = ""
    page: str = ""
    deadline: float = 30.0
    body_limit: int = 5 * 1024 * 1024
    allowed: list[str] = []


class Blocked(_Message, frozen=True):
    """The hosts and topics that administrators have blocked, and no others.

    :ivar blocks: the kind of each, its name, and the reason.
    """

    blocks: list[tuple[str, str, str]]


class Body(_Message, frozen=True):
    """A large body, of which several requests may follow: it crosses once."""

    number: int
    data: bytes


class Forget(_Message, frozen=True):
    """No further request has this body."""

    number: int


class Call(_Message, frozen=True):
    """A request to make.

    :ivar request: the request, without its body.
    :ivar body: the body, or the number of a ``Body``.
    """

    number: int
    request: OutboundRequest
    body: bytes | int


class Notify(_Message, frozen=True):
    """A subscriber to notify: see ``Notification``, whose parts these are.

    :ivar body: the content, or the number of a ``Body``; None if there is none.
    """

    number: int
    protocol: str
    url: str
    procedure: str
    topic: str
    options: dict[str, str] = {}
    body: bytes | int | None = None
    content_type: str = ""
    link: str = ""

    def __repr__(self) -> str:
        return f"Notify({self.number}, {self.url!r})"  # the options may have a secret


class Read(_Message, frozen=True):
    """A topic to read: see ``ITopicFetcher``."""

    number: int
    url: str
    known: Validators
    subscribers: int
    wanted: Wanted


class Cancel(_Message, frozen=True):
    """Nobody waits for the answer to a request any more."""

    number: int


class Beat(_Message, frozen=True):
    """A question whether the courier is alive."""


# --- from a courier ---


class Answered(_Message, frozen=True):
    """The answer to a request."""

    number: int
    reply: OutboundReply


class NotNotified(_Message, frozen=True):
    """A subscriber was called, and was not notified."""

    number: int
    outcome: Outcome


class ReadDone(_Message, frozen=True):
    """A topic has been read: see ``Fetched``.

    :ivar digest: None if the server has sent no content.
    :ivar body: None if the content is not wanted.
    """

    number: int
    digest: Annotated[bytes, Meta(min_length=32, max_length=32)] | None
    size: Annotated[int, Meta(ge=0, lt=2**32)]
    body: bytes | None
    content_type: _Text
    etag: _Text
    last_modified: _Text
    moved_to: _Text
    fresh_seconds: Annotated[float, Meta(ge=0, le=MAX_SECONDS)] | None
    result: _Text


class Unread(_Message, frozen=True):
    """A topic could not be read: see ``TopicUnreadable``.

    :ivar ended: whether the error is an ``EndedTopic``.
    """

    number: int
    reason: str
    ended: bool
    refused: bool
    lasting: bool
    retry_after: Annotated[float, Meta(ge=0, le=MAX_RETRY_AFTER)] | None = None


class Failed(_Message, frozen=True):
    """There was no answer.

    :ivar kind: the name of the class of the error, one of ``errors``.
    """

    number: int
    kind: str
    reason: str
    port_only: bool = False


class Alive(_Message, frozen=True):
    """The answer to ``Beat``.

    :ivar idle: how many connections the courier keeps open for further requests.
    :ivar idle_topics: and how many for further readings.
    """

    idle: int
    idle_topics: int = 0


class Said(_Message, frozen=True):
    """A line for the log of the broker: something went wrong that should not."""

    text: str


class Leaving(_Message, frozen=True):
    """The courier ends now, for a reason that has nothing to do with its requests."""

    reason: str


#: What the broker sends, and what a courier sends.  A mere number says that the subscriber was
#: notified whose ``Notify`` has it, as nearly always.
FromBroker: TypeAlias = (
    Setup | Networks | TopicRules | Blocked | Body | Forget | Call | Notify | Read | Cancel | Beat
)
FromCourier: TypeAlias = (
    int | NotNotified | Answered | ReadDone | Unread | Failed | Alive | Said | Leaving
)
