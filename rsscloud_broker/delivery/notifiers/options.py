"""The options that the rssCloud notifiers share, and their schedule."""

from __future__ import annotations

from typing import Final

from attrs import frozen

#: Seconds to wait before each further attempt of a notification that failed: a subscriber that
#: restarts or is busy for half an hour misses nothing.
RETRIES: Final = (5.0, 30.0, 120.0, 600.0, 1800.0)


@frozen
class RssCloudNotifierOptions:
    """The rssCloud notifiers have no options."""
