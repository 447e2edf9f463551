"""The errors of the broker.

``Refused`` and its subclasses say no to a caller; a front door answers each in the form of its
protocol.  ``Unavailable`` says that the broker itself lacks something just now, and
``OutboundError`` that somebody else's server did not answer.  The text of each is for people.
"""

from __future__ import annotations


class Refused(Exception):
    """The broker will not do what was asked.  Its text says why, to people."""


class UnsupportedProtocol(Refused):
    """No notifier of that name runs here."""

    def __init__(self, protocol: str) -> None:
        super().__init__(f"notifications by {protocol!r} are not offered here")
        self.protocol = protocol


class TopicUnreadable(Refused):
    """The topic could not be read, or its URL is one that never will be.

    :ivar refused: the broker does not call a URL like that, or take in as much as is
        there: a rule of its own, which the publisher is told.
    :ivar lasting: asking again would not help.
    """

    def __init__(
        self, url: str, reason: str, *, refused: bool = False, lasting: bool = False
    ) -> None:
        super().__init__(f"{url}: {reason}")
        self.url = url
        self.reason = reason
        self.refused = refused
        self.lasting = lasting or refused


class TopicEnded(TopicUnreadable):
    """Its publisher or the operator has ended the topic: it is not read any more."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(url, reason, lasting=True)


class Forbidden(Refused):
    """The operator does not allow this for that topic."""


class CallbackFailed(Refused):
    """The callback did not confirm that it wants this.

    :ivar refused: the broker would not call a URL like that, and did not.
    :ivar retry_after: seconds after which it may do so all the same, at the earliest,
        for it could not be asked just now; None if it said no.
    """

    def __init__(
        self, reason: str, *, refused: bool = False, retry_after: float | None = None
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.refused = refused
        self.retry_after = retry_after


class InvalidPing(Refused):
    """A ping names a URL that is no web address.  Nothing was stored."""


class PingTooSoon(Refused):
    """The topic was pinged a moment ago, and the operator set a pause."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"a ping was received less than {seconds} seconds ago")
        self.seconds = seconds


class TooMany(Refused):
    """More was asked than one may ask.  Nothing was done.

    :ivar reason: which limit was reached, as a clause.
    :ivar retry_after: seconds after which it makes sense to ask again.
    """

    def __init__(self, reason: str, retry_after: int) -> None:
        super().__init__(f"{reason}; try again in {retry_after} seconds")
        self.reason = reason
        self.retry_after = retry_after


class Unavailable(Exception):
    """The broker cannot do this right now, for want of its own means; nothing was
    changed.

    So it is of the store when the database cannot be used, and of a connection
    when there are no file descriptors left.
    """


class OutboundError(Exception):
    """A request to somebody else's server did not get an answer.

    Its text says why, to people.

    :ivar port_only: the host is there: only the port that was called is to blame.
    """

    def __init__(self, reason: str, *, port_only: bool = False) -> None:
        super().__init__(reason)
        self.port_only = port_only


class TooLarge(OutboundError):
    """An answer has more bytes than are taken in."""


class AddressRefused(OutboundError):
    """The broker does not call a URL like that: its form, or where it leads."""
