"""What the authoring tool works with: messages, their enclosures, and outlines below them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from attrs import field, frozen

from rsscloud_broker.errors import DocumentFault, Refused
from rsscloud_broker.wire.feed_document import FeedEnclosure


class InvalidPost(Refused, DocumentFault):
    """A message or an upload cannot be accepted.  Nothing was changed.

    The text of the error says what was wrong, what the rule is and what to do.
    """


class Missing(InvalidPost):
    """The account has no message with this number."""

    def __init__(self, id: int) -> None:  # noqa: A002 # the word of `Post`
        super().__init__(f"you have no message with the number {id}; it may have been deleted")


@frozen
class Enclosure(FeedEnclosure):
    """A file that belongs to a message, such as a picture (RSS 2.0, ``enclosure``).

    :ivar text: what stands for it where it is not seen: what a picture shows, or the name of a
        file; empty for nothing.
    """

    text: str = ""


@frozen
class OutlineItem:
    """An item of the outline below a message.

    :ivar text: plain text.
    :ivar title: empty for none.
    :ivar link: an http or https URL; empty for none.
    :ivar items: the items below this one.
    """

    text: str
    title: str = ""
    link: str = ""
    items: tuple[OutlineItem, ...] = ()


@frozen
class NewPost:
    """What somebody wants to publish: a new message, or the new state of one that exists.

    :ivar text: plain text; HTML in it is shown as it was typed.
    :ivar title: empty for none.
    :ivar link: the http or https URL of what the message is about; empty for none.
    :ivar enclosure_url: the URL of a file that belongs to the message, perhaps one that was
        uploaded before; empty for none.  Its type and size are found out.
    :ivar enclosure_text: what stands for that file: see `Enclosure`.
    :ivar categories: words or paths by which readers can find the message.
    :ivar items: the outline below the message.
    :ivar is_draft: whether only the author sees it.
    """

    text: str
    title: str = ""
    link: str = ""
    enclosure_url: str = ""
    categories: tuple[str, ...] = ()
    items: tuple[OutlineItem, ...] = ()
    is_draft: bool = False
    enclosure_text: str = field(default="", kw_only=True)


@frozen
class Post:
    """A message.

    :ivar id: a number that no other message of the account ever has.
    :ivar guid: the id by which feed readers know the message; it never changes.
    :ivar created_at: when it was published, in seconds since the epoch; of a draft, when it was
        first stored.
    :ivar position: the version of the author's messages that published it: the larger, the newer;
        0 for a draft.

    The others are those of `NewPost`.
    """

    id: int
    guid: str
    account_id: int
    text: str
    title: str
    link: str
    enclosure: Enclosure | None
    categories: tuple[str, ...]
    items: tuple[OutlineItem, ...]
    created_at: float
    changed_at: float
    position: int
    author: str = field(default="", kw_only=True)

    @property
    def is_draft(self) -> bool:
        """Whether only the author sees it."""
        return self.position == 0

    def as_new(self) -> NewPost:
        """What would make this message again, for a program that changes only a part of it."""
        return NewPost(
            self.text,
            self.title,
            self.link,
            self.enclosure.url if self.enclosure else "",
            self.categories,
            self.items,
            self.is_draft,
            enclosure_text=self.enclosure.text if self.enclosure else "",
        )


#: Makes the new content of a message from the message as it is, for who changes a part of it only.
Revise: TypeAlias = Callable[[Post], Awaitable[NewPost]]
