"""The errors that parts of the broker raise for each other to catch.

``Refused`` and its subclasses mean that the broker refuses a request; a front door answers each in
the form of its protocol.  ``Unavailable`` means that the broker itself lacks a resource now, and
``OutboundError`` that another server did not answer.  ``DocumentFault`` means that a document of
somebody else cannot be used.  The text of each is for people.
"""

from __future__ import annotations

from typing import ClassVar


class ClaimLost(Exception):
    """The process does not hold the claim of its work any more, so nothing was recorded."""


class Refused(Exception):
    """The broker refuses a request.  The text of the error tells the caller why."""


class UnsupportedProtocol(Refused):
    """No notifier for the requested protocol runs in this broker."""

    def __init__(self, protocol: str) -> None:
        super().__init__(f"notifications by {protocol!r} are not offered here")
        self.protocol = protocol


class TopicUnreadable(Refused):
    """A topic could not be fetched, or the broker never fetches its URL.

    :ivar url: the URL of the topic.
    :ivar reason: why not, as a clause.
    :ivar refused: whether a rule of the broker is the reason: it does not call the URL, or the
        content is too large.  The publisher is notified of that.
    :ivar lasting: whether to ask again would not help.
    :ivar retry_after: for how many seconds its server asks not to be asked again; None if it does
        not say.
    """

    def __init__(
        self,
        url: str,
        reason: str,
        *,
        refused: bool = False,
        lasting: bool = False,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"{url}: {reason}")
        self.url = url
        self.reason = reason
        self.refused = refused
        self.lasting = lasting or refused
        self.retry_after = retry_after


class EndedTopic(TopicUnreadable):
    """The publisher or the operator has ended the topic, so the broker does not fetch it."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(url, reason, lasting=True)


class Forbidden(Refused):
    """The operator does not allow this request for this topic."""


class Unadministrable(Refused):
    """What an administrator asked for makes no sense or concerns nothing that exists.

    The text says what was wrong, what the rule is and what to do.

    :ivar missing: whether what it concerns does not exist.
    """

    def __init__(self, reason: str, *, missing: bool = False) -> None:
        super().__init__(reason)
        self.missing = missing


class CallbackFailed(Refused):
    """The callback did not confirm an intent.

    :ivar reason: why not, as a clause.
    :ivar refused: whether the broker refused to call the URL, and did not call it.
    :ivar retry_after: the number of seconds after which it makes sense to ask again, if the
        callback could not be asked; None if it said no, or must not be called.
    :ivar interrupted: as in `Outcome`.
    """

    def __init__(
        self,
        reason: str,
        *,
        refused: bool = False,
        retry_after: float | None = None,
        interrupted: bool = False,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.refused = refused
        self.retry_after = retry_after
        self.interrupted = interrupted


class InvalidPing(Refused):
    """A URL in a ping is not a web address.  Nothing was stored."""


class TooMany(Refused):
    """A request exceeds a limit.  Nothing was done.

    :ivar reason: which limit was reached, as a clause.
    :ivar retry_after: the number of seconds after which it makes sense to ask again.
    """

    def __init__(self, reason: str, retry_after: int) -> None:
        super().__init__(f"{reason}; try again in {retry_after} seconds")
        self.reason = reason
        self.retry_after = retry_after


class SignInFailed(Refused):
    """The name or the password of somebody who wants to sign in is wrong, or the account is
    disabled.

    :param disabled: why an administrator has disabled it; empty if none has.
    """

    def __init__(self, disabled: str = "") -> None:
        super().__init__(
            f"an administrator has disabled this account: {disabled}"
            if disabled
            else "the name or the password is wrong"
        )


class InvalidAccount(Refused):
    """A name, a password or a token of an account cannot be used.  Nothing was changed."""


class ForgedForm(Refused):
    """A form that only signed-in people may send did not come from a page of the broker."""


class GivenUp(Exception):
    """Some work is not tried, since processes of the broker have ended while they were at it.

    The text says so, as a clause.
    """


class Unavailable(Exception):
    """The broker lacks a resource that it needs for a request; nothing was changed.

    The text of the error is for the log, since it may name hosts and files.

    :cvar public_text: what callers read instead.
    """

    public_text: ClassVar[str] = "The broker cannot do this right now."


class StoreUnavailable(Unavailable):
    """The database cannot be used."""

    public_text = "The broker cannot use its database right now, so it stores nothing."


class StoreStopped(StoreUnavailable):
    """The database is not open: the broker starts or stops."""


class DiskFull(StoreUnavailable):
    """The disk has too little space for anything new.  Somebody must make room."""

    public_text = (
        "The disk of this server is nearly full, so nothing new is stored. Nothing was changed. If "
        "that lasts, tell the operator of the server."
    )


class MemoryUnavailable(Unavailable):
    """The broker has as many bytes from strangers in memory as it may."""

    public_text = "The broker has no memory left for this right now."


class CallsUnavailable(Unavailable):
    """The broker cannot call other servers, for instance since no file descriptors are left."""

    public_text = "The broker cannot call other servers right now."


class ParsingUnavailable(Unavailable):
    """The broker cannot have documents of strangers parsed, or too many wait for that."""

    public_text = "The broker has too much to read right now."


class DocumentFault(Exception):
    """A document of a stranger cannot be used.

    The processes that parse documents raise such errors, and the broker raises them again.

    :ivar parts: the arguments with which the broker makes the error anew.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)

    @property
    def reason(self) -> str:
        """What is wrong with the document, as a clause."""
        return str(self)

    @property
    def parts(self) -> list[str | int]:
        return [self.reason]


class DocumentUnread(DocumentFault):
    """A document was not read, whatever it is, for a reason that no reader of it has named."""


class DocumentTooCostly(DocumentUnread):
    """A document takes more time or memory to parse than the broker spends on one."""


class OutboundError(Exception):
    """Another server did not answer a request.  The text of the error says why.

    :ivar port_only: whether the host is there, and only the port that was called failed.
    """

    def __init__(self, reason: str, *, port_only: bool = False) -> None:
        super().__init__(reason)
        self.port_only = port_only


class Interrupted(OutboundError):
    """The process of the broker that made a request has ended meanwhile."""


class TooLarge(OutboundError):
    """An answer has more bytes than the broker accepts."""


class AddressRefused(OutboundError):
    """The broker refuses to call a URL because of its form or the address of its host."""


class OwnAddress(AddressRefused):
    """The broker refuses to call a URL because it leads to the broker itself."""
