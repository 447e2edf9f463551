"""Puts archives and ResourceSync documents in their places, on all nodes that share the database.

The node that makes a file stores its gzipped bytes, some at a time; ``mirror`` copies them to the
disks of the others.  The file has the same time on all nodes.  The ETag that crawlers get is made
of its size and time, and so is that of a web server which serves the directory itself.

On SQLite there are no other nodes, and nothing is stored: the file on the disk is the only one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from twisted.python.filepath import FilePath

from rsscloud_broker.errors import ClaimLost
from rsscloud_broker.events import FilePublished
from rsscloud_broker.interfaces import SinkParts
from rsscloud_broker.util.atomic_files import PART as PART_NAME
from rsscloud_broker.util.atomic_files import Draft

#: How many bytes are stored in one transaction, so that no other write waits long.
PART: Final = 256 * 1024


async def publish_draft(
    parts: SinkParts, draft: Draft, target: FilePath[str], *, job: str, records: int = 0
) -> None:
    """Put a draft in the place of the file, on all nodes.

    :param target: the path of the file.
    :param job: the job that made it, whose claim this node must still have.
    :param records: how many pings are listed in it; 0 if it is no list of pings.
    :raises ClaimLost: this node has lost the claim of the job; the old file stays.
    :raises Unavailable: it cannot be stored for the other nodes.
    :raises OSError: the file cannot be written.
    """
    if parts.store.shares_work():
        made_at = parts.clock.wall_seconds()
        await parts.in_thread(draft.seal, made_at)
        key = await parts.store.begin_document(name_of(parts, target), made_at)
        whole = await _store(parts, draft, key) and await parts.store.finish_document(
            key, draft.size, records, job
        )
        if not whole:
            raise ClaimLost
    await parts.in_thread(draft.publish)


def tell_published(parts: SinkParts, target: FilePath[str]) -> None:
    """Publish on the bus that a file below the public directory was written."""
    parts.bus.publish(FilePublished(name_of(parts, target), parts.clock.wall_seconds()))


async def publish_document(
    parts: SinkParts, target: FilePath[str], content: bytes, *, job: str
) -> None:
    """Put a small file in its place, as ``publish_draft`` does."""
    async with drafted(parts, target) as draft:
        await parts.in_thread(draft.write, content)
        await publish_draft(parts, draft, target, job=job)


@asynccontextmanager
async def drafted(
    parts: SinkParts, target: FilePath[str], unfinished: str = PART_NAME
) -> AsyncIterator[Draft]:
    """A draft of a file, which has begun; it is discarded if it cannot be published.

    :param unfinished: see ``Draft``.
    """
    draft = Draft(target, unfinished)
    try:
        await parts.in_thread(draft.begin)
        yield draft
    except Exception:
        await parts.in_thread(draft.discard)
        raise


async def _store(parts: SinkParts, draft: Draft, key: int) -> bool:
    """Store the bytes of a sealed draft; False if the version was dropped meanwhile."""
    number = 0
    while body := await parts.in_thread(draft.read_twin, number * PART, PART):
        if not await parts.store.put_document_part(key, number, body):
            return False
        number += 1
    return True


def name_of(parts: SinkParts, target: FilePath[str]) -> str:
    """The path at which a file below the public directory is served."""
    return "/" + "/".join(target.segmentsFrom(parts.public_directory))
