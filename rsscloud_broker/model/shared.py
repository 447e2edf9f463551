"""What brokers share: the progress of relays and followed lists, jobs, and files for crawlers."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from rsscloud_broker.model import NO_VALIDATORS, Validators
from rsscloud_broker.model.frozen import frozen


@frozen
class WaitingPing:
    """A ping that a target of the relay has not accepted yet.

    :ivar ping_id: the id of the ping.
    :ivar attempts: how many attempts to pass it on have failed.
    :ivar retry_at: when it is passed on again.
    """

    ping_id: int
    attempts: int
    retry_at: float


@frozen
class RelayProgress:
    """How far pings were passed on to a target of the relay.

    :ivar name: names the target.
    :ivar ping_id: the id of the last ping that was begun with.  It was passed on, given up or left
        out, and so were all before it, but for those that wait.
    :ivar failures: how many calls in a row have failed.
    :ivar retry_at: when the target is called again after these failures; None if it may be called
        now.
    :ivar waiting: the pings that are passed on again, each by itself.
    """

    name: str
    ping_id: int
    failures: int = 0
    retry_at: float | None = None
    waiting: tuple[WaitingPing, ...] = ()


@frozen
class FollowedList:
    """How far the change list of another broker was read.

    :ivar validators: those of the list as it was last read.
    :ivar complete_until: the time until which all pings in the list are here, by the clock of its
        server; None if it was never read.  The missing hours are not here yet.
    :ivar missing_from, missing_to: the first and the last hour, counted since the epoch, whose
        archives are still to be read; None if there are none.
    :ivar failures: how many reads in a row have failed.
    :ivar retry_at: when the list is read again; None for at once.
    """

    url: str
    validators: Validators = NO_VALIDATORS
    complete_until: float | None = None
    missing_from: int | None = None
    missing_to: int | None = None
    failures: int = 0
    retry_at: float | None = None


@frozen
class JobTurn:
    """The result of an attempt to claim a job that one node does for all.

    :ivar due_at: when the job is due, in the past until it is done; 0 if it was never done.
    :ivar claimed: whether this process has claimed it.
    :ivar is_others: whether it is due, but another node has claimed it.
    """

    due_at: float
    claimed: bool
    is_others: bool


@frozen
class SharedDocument:
    """A file for crawlers that one node has made, and that all nodes serve.

    :ivar name: the path at which it is served, such as ``/2026/09/29/12.xml``.
    :ivar id: names this version of it.
    :ivar made_at: when it was made, which is also the time of the file on each node.
    :ivar size: the bytes of the file.
    :ivar records: how many pings are listed in it.
    :ivar stored_at: when it was stored, by the clock of the database.
    """

    name: str
    id: int
    made_at: float
    size: int
    records: int
    stored_at: float


class WorkKind(StrEnum):
    """The kinds of stored work that may end a process."""

    TOPIC = "topic"
    INTENT = "intent"


class Work(NamedTuple):
    """Stored work that may end a process.

    :ivar name: the URL of a topic to be fetched; the id of an intent to be verified.
    """

    kind: WorkKind
    name: int | str
