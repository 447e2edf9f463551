"""Publishes the feeds of an author that have changed, in the transaction of the change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rsscloud_broker.errors import DiskFull, Forbidden
from rsscloud_broker.interfaces import IDatabase, IPublisher
from rsscloud_broker.model import Content


async def publish(
    publisher: IPublisher,
    database: IDatabase,
    contents: Mapping[str, Content],
    operation: Callable[[Any], None],
    source: str,
) -> None:
    """Store a change, and publish the feeds that it changes.

    If nobody calls, an administrator takes something down.  That is possible in a blocked feed too,
    and when the disk is nearly full.  Of feeds that cannot be published then, the change is only
    stored: those who read them do not see any more what is gone.

    :param contents: the new feeds by URL.
    :param operation: stores the change.
    :param source: the address of the caller; empty if there is no caller.
    :raises Forbidden, Unavailable: if there is a caller: see ``IPublisher.publish``.
    """
    if not source:
        contents = {url: one for url, one in contents.items() if _may_be_published(publisher, url)}
    if contents:
        await publisher.publish_all(contents, operation, source)
    else:
        await database.write(operation)


def _may_be_published(publisher: IPublisher, url: str) -> bool:
    """Whether a feed may be published now if there is no caller."""
    try:
        publisher.check(url, "")
    except (DiskFull, Forbidden):
        return False
    return True
