"""The names of the logs, and the URLs of their documents."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from rsscloud_broker.simplefeed.atom import FeedUrls
from rsscloud_broker.simplefeed.log import PER_DOCUMENT, Description

#: The path below which everything is.
PREFIX: Final = "/events"

CHANGES: Final = "changes"
PINGS: Final = "pings"
HOST: Final = "host:"
TOPIC: Final = "topic:"


def recent_path(name: str) -> str:
    """The path of the recent document of a log, with its query."""
    if name == CHANGES:
        return f"{PREFIX}/recent"
    if name == PINGS:
        return f"{PREFIX}/pings/recent"
    kind, _, host_or_url = name.partition(":")
    parameter = "name" if kind == "host" else "url"
    return f"{PREFIX}/{kind}?{parameter}={quote(host_or_url, safe='')}"


def urls_of(public_url: str, name: str) -> FeedUrls:
    """The URLs of the documents of a log."""
    recent = public_url + recent_path(name)
    if "?" in recent:
        return FeedUrls(recent, f"{recent}&document=")
    return FeedUrls(recent, f"{recent.removesuffix('recent')}documents/")


def description_of(name: str, public_url: str) -> Description:
    """The description of a log."""
    kind, _, host_or_url = name.partition(":")
    titles = {
        "changes": f"Everything that changed at {public_url}",
        "pings": f"Pings at {public_url}",
        "host": f"Changes at {host_or_url}",
        "topic": f"History of {host_or_url}",
    }
    # A document of the log of a topic has fewer entries, since each holds a whole content.
    number = min(10, PER_DOCUMENT) if kind == "topic" else PER_DOCUMENT
    return Description(name, titles[kind], public_url, number)
