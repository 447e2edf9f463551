"""Examines a feed as a feed reader sees it, and reports to its publisher, for ``feed-state``.

Many servers send the same bytes again and again to readers that already have them.  A setting of
the server usually ends that, once the publisher knows.
"""

from __future__ import annotations

from textwrap import fill

from attrs import frozen

from rsscloud_broker.client.feed_findings import Finding, Kind, findings_of
from rsscloud_broker.client.feed_requests import fetch_twice
from rsscloud_broker.client.web import Web
from rsscloud_broker.wire.text import clean

__all__ = ["Finding", "Report", "examine", "render"]

_ORDER: tuple[Kind, ...] = ("wrong", "missing", "good")
_WIDTH = 88


@frozen
class Report:
    """The findings about a feed.

    :ivar url: the URL that was asked for.
    """

    url: str
    findings: tuple[Finding, ...]

    def of(self, kind: Kind) -> tuple[Finding, ...]:
        """The findings of one kind."""
        return tuple(finding for finding in self.findings if finding.kind == kind)


async def examine(web: Web, url: str) -> Report:
    """Fetch a feed twice, as a feed reader does, and judge the answers.

    :raises ClientError: a request was not answered.
    """
    return Report(url, tuple(findings_of(await fetch_twice(web, url))))


def render(report: Report) -> str:
    """A report as lines of text, the worst first, without a line break at the end."""
    lines = [clean(report.url)]
    for kind in _ORDER:
        for finding in report.of(kind):
            head = f"{kind:<9}{finding.subject}: "
            paragraph = fill(
                head + clean(finding.text),
                _WIDTH,
                subsequent_indent=" " * 9,
                break_long_words=False,  # so that URLs stay whole
                break_on_hyphens=False,
            )
            lines += ["", paragraph]
    counts = ", ".join(f"{len(report.of(kind))} {kind}" for kind in reversed(_ORDER))
    return "\n".join([*lines, "", f"In all: {counts}."])
