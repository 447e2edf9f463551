"""Makes the application from its options and the parts of the broker."""

from __future__ import annotations

from rsscloud_broker.apps.hosting.calls import SaveRssDoor
from rsscloud_broker.apps.hosting.gate import Gate
from rsscloud_broker.apps.hosting.hosting import Hosting
from rsscloud_broker.apps.hosting.options import HostingOptions
from rsscloud_broker.apps.hosting.page import FeedsDoor
from rsscloud_broker.apps.hosting.schema import feed
from rsscloud_broker.apps.hosting.uploading import FilesDoor
from rsscloud_broker.interfaces import AccountData, App, AppParts, ServedTopics


def make_hosting(options: HostingOptions, parts: AppParts) -> App:
    """Make the application.

    :raises ValueError: the address of the feeds is that of the broker, whose other topics would
        have to be feeds too.
    """
    hosting = Hosting(options, parts)
    if f"{parts.public_url}/".startswith(f"{hosting.base}/"):
        raise ValueError(
            f"'base_url' is {options.base_url!r}, which is the address of the broker itself; name "
            "another host, or add a path, or leave it out for /feeds of the broker"
        )
    gate = Gate(parts.accounts, parts.callers, allow_plain=options.allow_plain_passwords)
    return App(
        "hosting",
        front_doors=[
            FilesDoor(hosting, gate),
            SaveRssDoor(hosting, gate),
            FeedsDoor(hosting, parts),
        ],
        topics=[
            ServedTopics(
                f"{hosting.base}/", hosting.content, hosting.take_down, hosting.published_by
            )
        ],
        account_files=[hosting.account_files],
        account_data=[AccountData(feed.c.account_id, hosting.delete_all_of)],
    )
