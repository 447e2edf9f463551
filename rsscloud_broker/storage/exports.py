"""Exports topics and subscriptions from a database as a JSON document, for the command ``export``.

The text is made piece by piece while the rows are read, so that neither the whole text nor all
rows are in memory at a time.  ``documents`` describes the document.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain, groupby
from tempfile import NamedTemporaryFile
from typing import Any

from attrs import asdict
from sqlalchemy import Connection, Row, and_, case, func, inspect, literal, or_, select, table

from rsscloud_broker.database.columns import to_seconds
from rsscloud_broker.storage.blocks import all_blocks
from rsscloud_broker.storage.operating_schema import account
from rsscloud_broker.storage.schema import metadata, options_from_text, subscription, topic
from rsscloud_broker.wire.times import exact_iso_time

_STEP = "  "

_present = topic.alias("present")
_first_url = func.coalesce(_present.c.first_url, _present.c.url)
_asked = case((topic.c.url == _first_url, ""), else_=topic.c.url)

# One row for each subscription, and one for each topic without any.  If a topic has moved, a
# subscription from before is under the URL that its subscriber asked for.
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


def left_out(conn: Connection) -> list[str]:
    """The tables with rows of people that no export has: accounts, and those of applications."""
    return others_with_rows(conn, metadata.tables.keys() - {account.name})


def others_with_rows(conn: Connection, known: Collection[str]) -> list[str]:
    """The names of the tables with rows that are not among the known ones, but for Alembic's."""
    others = sorted(set(inspect(conn).get_table_names()).difference(known))
    return [
        each for each in others if not each.endswith("alembic_version") and has_rows(conn, each)
    ]


def has_rows(conn: Connection, name: str) -> bool:
    """Whether the table with a name has any row."""
    rows = select(literal(1)).select_from(table(name)).limit(1)
    return conn.execute(rows).first() is not None


def export_text(conn: Connection, now: float) -> Iterator[str]:
    """Every block, and every topic with its subscriptions, as the pieces of a JSON text.

    If a topic has moved, a subscription from before is listed under the URL that its subscriber
    asked for, as if the topic were still there.  After an import the broker finds out again that
    the topic has moved.

    :param now: the time of the export, which the document contains; seconds since the epoch.
    """
    head = {
        "format": "rsscloud-broker",
        "version": 1,
        "exported_at": exact_iso_time(now),
        "blocks": [asdict(one) | {"at": exact_iso_time(one.at)} for one in all_blocks(conn)],
    }
    # Rows that are in memory at a time.
    rows = conn.execution_options(yield_per=500).execute(_EXPORTED)
    topics = (_topic(members) for _, members in groupby(rows, lambda row: row.url))
    yield from _object(head, "topics", topics, "")
    yield "\n"


def _topic(rows: Iterator[Row[Any]]) -> Iterator[str]:
    """A topic as pieces of JSON, under its present URL or one that it has moved from.

    :param rows: a row for each of its subscriptions; or one row without a subscription.
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
        for row in chain([first], rows)
        if row.id is not None
    )
    return _object(head, "subscriptions", subscriptions, _STEP * 2)


def _subscription(row: Row[Any]) -> dict[str, Any]:
    """A subscription as the export shows it."""
    return {
        "callback": row.callback_url,
        "protocol": row.protocol,
        "procedure": row.procedure,
        "granted_at": _time_or_none(row.granted_at),
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
    return None if micros is None else exact_iso_time(to_seconds(micros))


def write_file(path: str, text: Iterable[str]) -> None:
    """Write a text to a file that only its owner may read.

    An existing file is replaced only when the whole text is on the disk.  A pipe or a device is
    written to, and not replaced.

    :raises OSError: the file cannot be written.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "w", encoding="utf-8") as other:
            other.writelines(text)
        return
    target = os.path.realpath(path)  # so that a symbolic link is kept
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


# The text is the same as ``json.dumps`` would make of the whole document, with an indent of two.


def _json(value: object, margin: str) -> str:
    # A JSON string contains no line end, so this puts the margin before every line of the text.
    return json.dumps(value, indent=len(_STEP), ensure_ascii=False).replace("\n", f"\n{margin}")


def _object(
    head: Mapping[str, object], name: str, items: Iterable[Iterator[str]], margin: str
) -> Iterator[str]:
    """A JSON object whose last member is an array, in pieces.

    :param head: the members before the array.
    :param name: the name of the array.
    :param items: the items of the array, each as an iterator over its pieces.
    :param margin: the spaces at the beginning of each line.
    """
    inside = margin + _STEP
    yield f'{_json(head, margin).removesuffix("}").rstrip()},\n{inside}"{name}": ['
    before = ""
    for item in items:
        yield f"{before}\n{inside}{_STEP}"
        yield from item
        before = ","
    yield f"\n{inside}]\n{margin}}}" if before else f"]\n{margin}}}"
