"""Examines a feed as a feed reader sees it, and reports to its publisher, for ``feed-state``.

Many servers send the same bytes again and again to readers that already have them.  A setting of
the server usually ends that, once the publisher knows.
"""

from __future__ import annotations

from textwrap import fill

from rsscloud_broker.client.feed_findings import judge
from rsscloud_broker.client.feed_requests import Ask, fetch_twice
from rsscloud_broker.interfaces import FeedReport
from rsscloud_broker.interfaces.views import Kind
from rsscloud_broker.wire.text import clean

_ORDER: tuple[Kind, ...] = ("wrong", "missing", "good")


async def examine(ask: Ask, url: str) -> FeedReport:
    """Fetch a feed twice, as a feed reader does, and judge the answers.

    :raises ClientError: a request was not answered.
    """
    return FeedReport(url, judge(await fetch_twice(ask, url, lambda _: None)).findings)


def render(report: FeedReport) -> str:
    """A report as lines of text, the worst first, without a line break at the end."""
    lines = [clean(report.url)]
    for kind in _ORDER:
        for finding in report.of(kind):
            head = f"{kind:<9}{finding.subject}: "
            paragraph = fill(
                head + clean(finding.text),
                88,  # characters
                subsequent_indent=" " * 9,
                break_long_words=False,  # so that URLs stay whole
                break_on_hyphens=False,
            )
            lines += ["", paragraph]
    counts = ", ".join(f"{len(report.of(kind))} {kind}" for kind in reversed(_ORDER))
    return "\n".join([*lines, "", f"In all: {counts}."])
