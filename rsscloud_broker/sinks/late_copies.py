"""Remembers the files for crawlers that could not be copied, and when each is tried again.

One file that cannot be copied must not keep others waiting, nor fill the log.
"""

from __future__ import annotations

from attrs import frozen
from twisted.logger import Logger

from rsscloud_broker.interfaces import IClock
from rsscloud_broker.model.shared import SharedDocument
from rsscloud_broker.util.backoff import backoff

#: Seconds until a file is tried again: at first, and at most.  Each pause takes twice as long as
#: the one before.
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 600.0


@frozen
class _Late:
    """A document that could not be copied.

    :ivar again_at: when it is tried again, by the monotonic clock.
    """

    document: SharedDocument
    reason: str
    failures: int
    again_at: float


class LateCopies:
    """The documents that could not be copied, each in its newest version."""

    log = Logger()

    def __init__(self, clock: IClock) -> None:
        self._clock = clock
        self._late: dict[str, _Late] = {}

    def put_off(self, document: SharedDocument, reason: str, error: object = "") -> None:
        """Have a document wait for its next attempt, and log why unless that is known already.

        :param reason: why, in words that are the same for all documents with this trouble.
        :param error: says more of this document.
        """
        earlier = self._late.get(document.name)
        # How many files are remembered.  Further ones are copied when somebody asks for them.
        if earlier is None and len(self._late) >= 10_000:
            return
        known = any(one.reason == reason for one in self._late.values())
        failures = earlier.failures if earlier and earlier.document.id == document.id else 0
        pause = backoff(FIRST_PAUSE, failures, LONGEST_PAUSE)
        again_at = self._clock.seconds() + pause
        self._late[document.name] = _Late(document, reason, failures + 1, again_at)
        if not known:
            self.log.error(
                "A file for crawlers cannot be copied: {error}; it is tried again later.",
                error=error or reason,
            )

    def over(self, name: str) -> None:
        """Forget a document, which has been copied, or of which there is another version now."""
        if self._late.pop(name, None) is not None and not self._late:
            self.log.info("All files for crawlers are copied again.")

    def waits(self, document: SharedDocument) -> bool:
        """Whether a version of a document is not to be tried yet."""
        late = self._late.get(document.name)
        is_known = late is not None and late.document.id == document.id
        return late is not None and is_known and late.again_at > self._clock.seconds()

    def due(self) -> list[SharedDocument]:
        """The documents that are to be tried again now."""
        now = self._clock.seconds()
        return [one.document for one in self._late.values() if one.again_at <= now]
