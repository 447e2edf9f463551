"""What is stored at one node is done at once by the node that tends the feeds."""

from __future__ import annotations

from typing import cast

from twisted.internet.defer import succeed

from rsscloud_broker.errors import Unavailable
from rsscloud_broker.events import WorkHinted
from rsscloud_broker.testing import make_sink_tests
from rsscloud_broker.testing.apps import FakeJobs
from tests.apps.river.house import BLOG, RiverCase, RiverHouse

OPML = f"""<opml version="2.0"><head/><body>
<outline type="rss" text="A blog" xmlUrl="{BLOG}"/></body></opml>"""


class WakeContract(
    make_sink_tests(lambda case: RiverHouse(case).app.sinks[0])  # type: ignore[misc] # made at run time
):
    """It is a sink."""


class WakingTests(RiverCase):
    def setUp(self) -> None:
        super().setUp()
        self.jobs = cast(FakeJobs, self.house.app_parts.jobs)

    def stop(self) -> None:
        """From now on another node tends the feeds."""
        self.house.result(self.house.tending.stopService() or succeed(None))

    def import_feed(self) -> None:
        river, dave = self.house.river, self.house.dave
        self.house.result(river.import_opml(dave, OPML.encode(), "192.0.2.7"))

    def hint(self, kind: str) -> None:
        event = WorkHinted(kind)
        for sink in self.house.app.sinks:
            if isinstance(event, sink.handles):
                self.house.result(sink.handle(event))

    def test_node_that_tends_the_feeds_is_told(self) -> None:
        self.stop()
        self.import_feed()
        self.assertEqual(self.jobs.hinted, ["river"])
        self.assertEqual(self.house.titles(), [])

    def test_node_that_tends_the_feeds_needs_no_hint(self) -> None:
        self.import_feed()
        self.assertEqual(self.jobs.hinted, [])
        self.assertEqual(self.house.titles(), ["two", "one"])

    def test_node_that_tends_the_feeds_looks_at_once(self) -> None:
        running = self.house.tending.running
        self.house.tending.running = 0  # as at the node that takes the list
        self.import_feed()
        self.house.tending.running = running
        for kind in ("", "job.other"):
            self.hint(kind)
        self.assertEqual(self.house.titles(), [])
        self.hint("job.river")
        self.assertEqual(self.house.titles(), ["two", "one"])

    def test_node_that_does_not_tend_them_does_nothing(self) -> None:
        self.stop()
        self.import_feed()
        self.hint("job.river")
        self.assertEqual(self.house.titles(), [])

    def test_hint_that_cannot_be_sent(self) -> None:
        self.stop()

        async def fail(name: str) -> None:
            raise Unavailable("the server is down")

        self.patch(self.jobs, "hint_at_job", fail)
        self.import_feed()
        self.assertEqual(len(self.house.feeds()), 1)
