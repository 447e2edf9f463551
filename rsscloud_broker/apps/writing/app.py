"""Makes the authoring tool from its options and what the broker gives it."""

from __future__ import annotations

from rsscloud_broker.apps.writing.door import WritingDoor
from rsscloud_broker.apps.writing.options import WritingOptions
from rsscloud_broker.apps.writing.schema import author, unsent, upload
from rsscloud_broker.apps.writing.serving import FeedTopics
from rsscloud_broker.apps.writing.writing import Writing
from rsscloud_broker.interfaces import AccountData, App, AppParts, ServedTopics
from rsscloud_broker.util.cluster_jobs import PeriodicClusterJob


def make(options: WritingOptions, parts: AppParts) -> App:
    """Make the application."""
    writing = Writing(options, parts)
    topics, people = FeedTopics(writing), f"{parts.public_url}/people/"
    return App(
        "writing",
        front_doors=[WritingDoor(writing, parts)],
        services=[
            PeriodicClusterJob(
                parts.clock,
                600.0,  # seconds between two looks for what is left over
                lambda due_at: writing.kept_files.sweep(),
                parts.jobs,
                name="leftovers of uploads",
                at_start=True,
            )
        ],
        account_files=[topics.account_files],
        account_data=[
            AccountData(table.c.account_id, writing.forget_account)
            for table in (author, upload, unsent)
        ],
        topics=[ServedTopics(people, topics.read, topics.take_down, topics.published)],
    )
