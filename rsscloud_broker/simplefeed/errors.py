"""What can go wrong when a feed is followed.  The text of each error is for people."""

from __future__ import annotations


class FollowError(Exception):
    """The feed cannot be followed.  Somebody must do something about it."""


class FeedUnavailable(FollowError):
    """The feed cannot be read now.  The follower tries again later.

    :ivar retry_after: for how many seconds the server asks to be left alone; None if it does not
        say.
    """

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class DocumentMissing(FeedUnavailable):
    """The server says that a document does not exist, or not any more."""


class EntryFailed(FollowError):
    """An entry could not be processed."""


class Stopped(Exception):
    """The follower was stopped."""
