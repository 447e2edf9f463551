"""Stores which topics wait to be fetched: the checks that somebody has requested.

A check is in the row of its topic, in one of these states:

- It *waits*: no node has claimed it.  ``check_claims`` claims some at a time.
- It is *put off*: no node may claim it before ``check_due_at``, since a fetch has just ended.
- It is *claimed*: a node has it in memory, as a fetch that waits or runs.

If a check is requested again while a node has claimed it, it stays with that node, which fetches
the topic once more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Connection, Row, Select, bindparam, or_, select, update

from rsscloud_broker.database.columns import MICROSECONDS, insert_missing, to_micros
from rsscloud_broker.database.many_values import OfMany
from rsscloud_broker.model import host_of
from rsscloud_broker.model.ways import UNKNOWN_SOURCE, ChangeSource, Way
from rsscloud_broker.model.work import Bounds, CheckState
from rsscloud_broker.storage.idle import evict_idle
from rsscloud_broker.storage.schema import topic
from rsscloud_broker.storage.topic_urls import (
    HAS_PUBLIC,
    HAS_SUBSCRIPTIONS,
    TOPIC_ID,
    key_of,
    named,
)

#: The limits of a store for which no others are given.
DEFAULT_BOUNDS = Bounds()

#: The values of a topic of which no check is requested.
NO_CHECK = {
    "check_requested_at": None,
    "check_pinged": False,
    "check_node_id": None,
    "check_due_at": None,
    "check_failures": 0,
    "check_awaited": False,
    "check_way": "",
    "check_origin": "",
}

#: A check that is put off and requested again waits this long at most after the last fetch began,
#: in microseconds.
SOONEST = MICROSECONDS

#: The longest name that a host can have; a longer one is no name, and would not fit into an index.
_LONGEST_HOST = 255

#: What ``Requests`` needs of the rows of topics.
CHECK_COLUMNS = (
    topic.c.id,
    topic.c.url,
    topic.c.asked_at,
    topic.c.check_requested_at,
    topic.c.check_pinged,
    topic.c.check_node_id,
    topic.c.check_due_at,
    topic.c.check_source,
    topic.c.check_way,
    topic.c.check_origin,
    HAS_PUBLIC.label("is_public"),
)

#: Selects what decides whether a check of a topic may be requested, by any of its URLs.
_CHECKABLE = OfMany(
    lambda among: (
        select(
            named.c.url.label("asked"),
            *CHECK_COLUMNS,
            (topic.c.ended == "").label("is_active"),
            HAS_SUBSCRIPTIONS.label("is_watched"),
        )
        .join_from(named, topic, topic.c.id == TOPIC_ID)
        .where(among(named.c.url, "urls"))
        .order_by(topic.c.id)
        .with_for_update(of=topic, key_share=True)
    )
)

_REQUEST = (
    update(topic)
    .where(topic.c.id == bindparam("key"))
    .values(
        check_requested_at=bindparam("at"),
        check_pinged=bindparam("pinged"),
        check_node_id=bindparam("node", type_=BigInteger()),
        check_due_at=bindparam("due", type_=BigInteger()),
        check_failures=0,
        check_source=bindparam("source"),
        check_host=bindparam("host"),
        check_way=bindparam("way"),
        check_origin=bindparam("origin"),
    )
)

#: The validators that make the next fetch of a topic unconditional.
NO_VALIDATORS = {"etag": "", "last_modified": ""}


class AskedCheck(NamedTuple):
    """A request for a check: see ``Store.request_check``.

    :ivar at: the time of the request, in microseconds.
    :ivar source: who requests it; see ``addresses.bucket_of``.
    :ivar claim: whether this process claims the check, if it is free and not put off.
    :ivar cause: why the topic may have changed.
    """

    url: str
    at: int
    source: str = ""
    claim: bool = False
    cause: ChangeSource = UNKNOWN_SOURCE


class CheckRequests:
    """Requests of checks of known topics, which are written together.

    :param node: the node id of this process; None if it has none, so that it claims nothing.
    """

    def __init__(self, node: int | None) -> None:
        self._node = node
        # The parameters of ``_REQUEST``, the causes, and what became of the requests, by the ids of
        # the topics.
        self._values: dict[int, dict[str, Any]] = {}
        self._causes: dict[int, ChangeSource] = {}
        self._states: dict[int, CheckState] = {}

    def add(self, row: Any, asked: AskedCheck) -> None:
        """Request a check, together with what was requested of the same topic before.

        :param row: the row of the topic: has ``CHECK_COLUMNS``.
        """
        self._causes[row.id] = self._causes.get(row.id, cause(row)).joined(asked.cause)
        earlier = self._values.get(row.id)
        if earlier is not None:
            earlier["at"] = max(earlier["at"], asked.at)
            return
        is_new = row.check_requested_at is None
        holder = None if is_new else row.check_node_id
        due = None if is_new else _earlier_due(row, asked)
        state = self._state(holder, due, asked)
        is_taken_over = state is CheckState.CLAIMED and holder != self._node
        self._states[row.id] = state
        self._values[row.id] = {
            "key": row.id,
            "at": max(asked.at, row.check_requested_at or 0),
            "node": {CheckState.CLAIMED: self._node, CheckState.ELSEWHERE: holder}.get(state),
            "due": due,
            # Whose capacity the check uses.
            "source": asked.source if is_new or is_taken_over else row.check_source,
            "host": host_of(row.url)[:_LONGEST_HOST],
        }

    def _state(self, holder: int | None, due: int | None, asked: AskedCheck) -> CheckState:
        """Who handles the check: this process if it holds the claim or takes it now; another node
        if that holds it; otherwise the check waits.

        :param holder: the node that has claimed the check until now; None if none has.
        :param due: until when the check is put off; None if it is not.
        """
        if self._node is not None and holder == self._node:
            return CheckState.CLAIMED
        if holder is not None:
            return CheckState.ELSEWHERE
        claims = asked.claim and self._node is not None and due is None
        return CheckState.CLAIMED if claims else CheckState.WAITS

    def state(self, key: int) -> CheckState:
        """What became of the request for the topic with an id."""
        return self._states[key]

    def write(self, conn: Connection) -> None:
        """Write the requests, in the order of the ids of their topics."""
        if self._values:
            requests = [
                values | cause_values(self._causes[key], "")
                for key, values in sorted(self._values.items())
            ]
            conn.execute(_REQUEST, requests)


def request_checks(
    conn: Connection,
    asked: Sequence[AskedCheck],
    bounds: Bounds = DEFAULT_BOUNDS,
    node: int | None = None,
) -> list[CheckState]:
    """Request a check of each of some topics, if it has a subscription.

    A method of the store requests one check; its arguments are the attributes of ``AskedCheck``.
    If somebody said that the topic changed (see ``ChangeSource``), the check is requested for a
    topic without subscriptions too, even an unknown one.

    :returns: for each whether the check was requested, and who handles it.  It was not if the
        topic has no subscription and was not pinged, if it has ended, or if it is unknown and as
        many such topics as the store keeps wait to be fetched.
    """
    known = _lock_known(conn, {request.url for request in asked})
    requests = CheckRequests(node)
    for request in asked:
        row = known.get(request.url)
        if row and _may_be_checked(request, row):
            requests.add(row, request)
    requests.write(conn)  # first, so that ``evict_idle`` does not remove these topics
    unknown: dict[str, AskedCheck] = {}
    for request in asked:
        if request.cause.pinged and request.url not in known:
            earlier = unknown.get(request.url, request)
            both = earlier.cause.joined(request.cause)
            unknown[request.url] = earlier._replace(at=max(earlier.at, request.at), cause=both)
    allowed = evict_idle(conn, bounds.idle_topics, len(unknown)) if unknown else 0
    inserted = _insert_with_checks(conn, dict(islice(unknown.items(), allowed)), node)
    states = []
    for request in asked:
        row = known.get(request.url)
        state = CheckState.NONE
        if row is None and request.cause.pinged:
            state = inserted.get(request.url, CheckState.NONE)
        elif row is not None and _may_be_checked(request, row):
            state = requests.state(row.id)
        states.append(state)
    return states


def cause(row: Any) -> ChangeSource:
    """Why a topic is fetched, by its row."""
    return ChangeSource(Way(row.check_way or Way.FETCH), row.check_origin, row.check_pinged)


def cause_values(why: ChangeSource, prefix: str = "check_") -> dict[str, Any]:
    """The columns that say why a topic is fetched.

    :param prefix: how their names begin.
    """
    way = "" if why.way is Way.FETCH else why.way
    return {f"{prefix}pinged": why.pinged, f"{prefix}way": way, f"{prefix}origin": why.origin}


def _lock_known(conn: Connection, urls: Collection[str]) -> dict[str, Any]:
    """The rows of the known topics at these URLs, by the URLs; the transaction locks them."""
    return {row.asked: row for row in conn.execute(_CHECKABLE.on(conn), {"urls": list(urls)})}


def _insert_with_checks(
    conn: Connection, asked: Mapping[str, AskedCheck], node: int | None
) -> dict[str, CheckState]:
    """Insert topics that somebody has pinged, each with a check.

    :param asked: the requests by the URLs of the topics, which ``_lock_known`` has not found.
    :param node: the node id of this process; None if it has none, so that it claims nothing.
    :returns: what became of the requests, by the URLs of the topics.
    """
    if not asked:
        return {}
    rows = [
        {
            "url": url,
            "idle_at": request.at,
            "check_requested_at": request.at,
            "check_node_id": node if request.claim else None,
            "check_source": request.source,
            "check_host": host_of(url)[:_LONGEST_HOST],
            **cause_values(request.cause),
        }
        for url, request in sorted(asked.items())  # all nodes insert topics in this order
    ]
    inserted = insert_missing(conn, topic, rows, topic.c.url)
    if_to_claim = CheckState.WAITS if node is None else CheckState.CLAIMED
    states = {url: if_to_claim if asked[url].claim else CheckState.WAITS for url in inserted}
    if len(inserted) < len(rows):  # another node has just stored the others
        requests, others = CheckRequests(node), _lock_known(conn, asked.keys() - inserted)
        for url, row in others.items():
            requests.add(row, asked[url])
        requests.write(conn)
        states |= {url: requests.state(row.id) for url, row in others.items()}
    return states


def _earlier_due(row: Row[Any], asked: AskedCheck) -> int | None:
    """When a check that was put off may be claimed, now that it is requested again.

    Strangers do not see that a topic waits for private followers: it is fetched for them at once.

    :param row: the row of its topic: has ``CHECK_COLUMNS``.
    :returns: None if that is now, or if the check was not put off.
    """
    due: int | None = row.check_due_at
    if due is None or (asked.cause.way.is_open and not row.is_public):
        return None
    # The clock by which the last fetch began may be ahead.
    earlier = min(due, (row.asked_at or 0) + SOONEST, asked.at + SOONEST)
    return earlier if earlier > asked.at else None


def _may_be_checked(asked: AskedCheck, row: Row[Any]) -> bool:
    """Whether a check of a known topic may be requested."""
    return bool(row.is_active and (asked.cause.pinged or row.is_watched))


def request_content(conn: Connection, url: str, at: float) -> bool:
    """Request a check of a topic whose content a pending notification needs and the store
    does not have.  The store forgets the validators, so that the server sends the content.

    :returns: False if the topic has no subscription or has ended.
    """
    if not request_checks(conn, [AskedCheck(url, to_micros(at))])[0]:
        return False
    conn.execute(update(topic).where(topic.c.id == key_of(url)).values(NO_VALIDATORS))
    return True


def find_joinable(conn: Connection, asked: AskedCheck, node: int | None) -> tuple[int, bool] | None:
    """The id of a topic whose check another node has claimed, and whether the check is joined: its
    row has already what ``join_check`` would write.  None if no other node has.  Writes nothing.
    """
    row = conn.execute(_select_joined(asked.url, node)).first()
    if row is None:
        return None
    joined = _joined(row, asked)
    return row.id, all(row._mapping[name] == joined[name] for name in joined)


def join_check(conn: Connection, asked: AskedCheck, node: int) -> int | None:
    """Request a fetch of a topic from another node that has claimed its check.

    When that node has fetched the topic, or has failed to, it sends the hint ``read``.

    :returns: the key in the hint.  None if no other node has claimed the check; then this process
        may fetch it.
    """
    locked = _select_joined(asked.url, node).with_for_update(of=topic, key_share=True)
    row = conn.execute(locked).first()
    if row is None:
        return None
    conn.execute(update(topic).where(topic.c.id == row.id).values(_joined(row, asked)))
    return int(row.id)


def _select_joined(url: str, node: int | None) -> Select[Any]:
    """Select the check of a topic if another node has claimed it."""
    return select(*CHECK_COLUMNS, topic.c.check_awaited).where(
        topic.c.id == key_of(url),
        topic.c.check_node_id != (node or 0),  # not true of a check that nobody has claimed
        topic.c.ended == "",
        # Strangers must not notice that a topic is fetched for private followers alone.
        or_(HAS_PUBLIC, ~HAS_SUBSCRIPTIONS),
    )


def _joined(row: Any, asked: AskedCheck) -> dict[str, Any]:
    """The columns of a check that somebody at another node waits for, too."""
    return {
        "check_requested_at": max(row.check_requested_at or 0, asked.at),
        "check_awaited": True,
        **cause_values(cause(row).joined(asked.cause)),
    }


def drop_check(conn: Connection, node: int | None, url: str, asked_until: float) -> None:
    """Withdraw the check of a topic that was requested until ``asked_until``.

    A later one stays, and is released if this process has claimed it, so that any may claim it a
    second after ``asked_until``: by a clock that is ahead it seems to be later, again and again.
    """
    of_url = topic.c.id == key_of(url)
    is_older = topic.c.check_requested_at <= to_micros(asked_until)
    # A node that has lost its claim must not withdraw the check that another handles now.
    is_not_elsewhere = or_(topic.c.check_node_id.is_(None), topic.c.check_node_id == node)
    conn.execute(update(topic).where(of_url, is_older, is_not_elsewhere).values(NO_CHECK))
    if node is not None:
        is_held = topic.c.check_node_id == node
        due_at = to_micros(asked_until) + SOONEST
        stays = update(topic).where(of_url, is_held)
        conn.execute(stays.values(check_node_id=None, check_due_at=due_at))
