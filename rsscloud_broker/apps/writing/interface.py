"""What can be done with messages; front doors of other protocols use it as the pages do."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from zope.interface import Interface

from rsscloud_broker.apps.writing.model import NewPost, Post, Upload
from rsscloud_broker.interfaces import Caller


class IWriting(Interface):
    """Writes and reads the messages of accounts.

    Who may act for an account is the front door's business: each method does what the caller's
    account can do.  ``source`` is the address from which the caller calls.

    Methods that change something raise ``InvalidPost`` if what was sent breaks a rule, ``TooMany``
    if the account has written too often, ``Forbidden`` if the operator has blocked the source or
    the feed, ``DiskFull`` if the disk is nearly full, and ``Unavailable`` if the database cannot be
    used.  After each of these nothing has changed.
    """

    def add(caller: Caller, new: NewPost, source: str) -> Awaitable[Post]:
        """Store a message.  Unless it is a draft, it is published and subscribers are notified."""

    def edit(caller: Caller, id: int, new: NewPost, source: str) -> Awaitable[Post]:
        """Give a message of the caller a new content.

        A draft is published if ``new.is_draft`` is false.  A published message that becomes a
        draft disappears from the feeds.

        :raises InvalidPost: the caller has no such message, too.
        """

    def delete(caller: Caller, id: int, source: str) -> Awaitable[bool]:
        """Delete a message of the caller.  Returns whether there was such a message."""

    def post(caller: Caller, id: int) -> Awaitable[Post | None]:
        """A message of the caller, which may be a draft; None if there is no such message."""

    def posts(
        caller: Caller,
        limit: int,
        before: int | None = ...,
        is_draft: bool | None = ...,
    ) -> Awaitable[list[Post]]:
        """The messages of the caller, the newest first.

        :param limit: how many at most.
        :param before: only those with smaller ids.
        :param is_draft: only drafts, or only published ones; None for both.
        """

    def categories(caller: Caller) -> Awaitable[list[str]]:
        """The categories that the caller has used, sorted."""

    def upload(caller: Caller, name: str, data: bytes, source: str) -> Awaitable[Upload]:
        """Store a file, whose URL can then be the enclosure of a message.

        :param name: the name that the client gave it; it may be anything.
        """

    def uploads(caller: Caller, limit: int, skipped: int = ...) -> Awaitable[Sequence[Upload]]:
        """The files that the caller has uploaded, the newest first.

        :param skipped: how many of the newest are left out.
        """

    def feed_url(name: str) -> str:
        """The URL of the RSS feed of an account."""

    def home_url(name: str) -> str:
        """The URL of the page with the messages of an account."""

    def page_url(post: Post) -> str:
        """The URL of the page of one message."""
