"""Topics and subscriptions out of the store, as the text of a JSON document.

The text is made piece by piece while the rows are read: neither all of it nor all rows
are in memory at a time.  The document is described in ``documents``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from tempfile import NamedTemporaryFile
from typing import Any

from sqlalchemy import Connection, Row, and_, case, func, or_, select

from rsscloud_broker.storage.documents import format_time
from rsscloud_broker.storage.schema import options_from_text, subscription, to_micros, topic

#: Rows that are in memory at a time.
_ROWS = 500

_STEP = "  "

_present = topic.alias("present")
_asked = case((topic.c.moved_to_id.is_(None), ""), else_=topic.c.url)

# A row for each subscription, and one for each topic without any.  Where a topic moved,
# those who subscribed to it before are under the URL that they asked for.
_EXPORTED = (
    select(
        topic.c.url,
        _present.c.digest,
        _present.c.size,
        _present.c.read_at,
        _present.c.changed_at,
        _present.c.ended,
        subscription,
    )
    .join_from(topic, _present, _present.c.id == func.coalesce(topic.c.moved_to_id, topic.c.id))
    .outerjoin(
        subscription,
        and_(subscription.c.topic_id == _present.c.id, subscription.c.asked_url == _asked),
    )
    .where(or_(topic.c.moved_to_id.is_(None), subscription.c.id.is_not(None)))
    .order_by(topic.c.url, subscription.c.id)
)


def export_text(conn: Connection, now: float) -> Iterator[str]:
    """Every topic with its subscriptions, as the pieces of a JSON text.

    Where a topic moved, those who subscribed to it before are under the URL that they
    asked for, as if it still were there: once imported, it is found to move again.

    :param now: seconds since the epoch, noted in the document.
    """
    head = {
        "format": "rsscloud-broker",
        "version": 1,
        "exported_at": format_time(to_micros(now)),
    }
    rows = conn.execution_options(yield_per=_ROWS).execute(_EXPORTED)
    topics = (_topic(members) for _, members in groupby(rows, lambda row: row.url))
    yield from _object(head, "topics", topics, "")
    yield "\n"


def _topic(rows: Iterator[Row[Any]]) -> Iterator[str]:
    """A topic, under its URL or one that it moved from.

    :param rows: its subscriptions, or one without any.
    """
    first = next(rows)
    head = {
        "url": first.url,
        "digest": first.digest and first.digest.hex(),
        "size": first.size,
        "read_at": _time_or_none(first.read_at),
        "changed_at": _time_or_none(first.changed_at),
        "ended": first.ended,
    }
    subscriptions = (
        iter([_json(_subscription(row), _STEP * 4)])
        for row in _with(first, rows)
        if row.id is not None
    )
    return _object(head, "subscriptions", subscriptions, _STEP * 2)


def _with(first: Row[Any], rows: Iterator[Row[Any]]) -> Iterator[Row[Any]]:
    yield first
    yield from rows


def _subscription(row: Row[Any]) -> dict[str, Any]:
    return {
        "callback": row.callback_url,
        "protocol": row.protocol,
        "procedure": row.procedure,
        "granted_at": format_time(row.granted_at),
        "lease_seconds": row.lease_seconds,
        "consecutive_errors": row.consecutive_errors,
        "last_error": row.last_error,
        "last_error_at": _time_or_none(row.last_error_at),
        "dropping": row.dropping,
        "options": options_from_text(row.options),
        "wants_content": row.wants_content,
        "written_topic": row.written_url,
    }


def _time_or_none(micros: int | None) -> str | None:
    return None if micros is None else format_time(micros)


def write_file(path: str, text: Iterable[str]) -> None:
    """Write a text to a file that only its owner may read.

    What is at that path stays as it is until the whole text is on the disk.

    :raises OSError: it cannot be written.
    """
    target = os.path.realpath(path)  # a link stays one
    with NamedTemporaryFile(
        "w", encoding="utf-8", dir=os.path.dirname(target), prefix=".export-", delete=False
    ) as file:
        try:
            file.writelines(text)
            file.flush()
            os.fsync(file.fileno())
            os.replace(file.name, target)
        except BaseException:
            os.unlink(file.name)
            raise


# The text is what ``json.dumps`` would make of the whole document, with an indent of two.


def _json(value: object, margin: str) -> str:
    # No line ends inside a JSON string, so each one here is followed by a margin.
    return json.dumps(value, indent=len(_STEP), ensure_ascii=False).replace("\n", f"\n{margin}")


def _object(
    head: Mapping[str, object], name: str, items: Iterable[Iterator[str]], margin: str
) -> Iterator[str]:
    """An object whose last member is an array.

    :param head: the members before it.
    :param items: the items of the array, each in pieces; begun when it is their turn.
    :param margin: what a line of the object begins with.
    """
    inside = margin + _STEP
    yield f'{_json(head, margin).removesuffix("}").rstrip()},\n{inside}"{name}": ['
    before = ""
    for item in items:
        yield f"{before}\n{inside}{_STEP}"
        yield from item
        before = ","
    yield f"\n{inside}]\n{margin}}}" if before else f"]\n{margin}}}"
