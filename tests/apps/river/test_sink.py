"""The sink of the river: what readers see of failed fetches, and hints of other nodes."""

from __future__ import annotations

from typing import Any, cast

from twisted.internet.defer import Deferred, succeed

from rsscloud_broker.errors import TopicUnreadable, Unavailable
from rsscloud_broker.events import WorkHinted
from rsscloud_broker.testing import make_sink_tests
from rsscloud_broker.testing.apps import FakeJobs
from tests.apps.river.house import BLOG, NAMES_HUB, RiverCase, RiverHouse, rss

OPML = f"""<opml version="2.0"><head/><body>
<outline type="rss" text="A blog" xmlUrl="{BLOG}"/></body></opml>"""


class Contract(
    make_sink_tests(lambda case: RiverHouse(case).app.sinks[0])  # type: ignore[misc] # made at run time
):
    """It is a sink."""


class FetchResultsTests(RiverCase):
    """Readers see that the broker cannot fetch a feed."""

    def setUp(self) -> None:
        super().setUp()
        self.pages[BLOG] = rss("one", head=NAMES_HUB)
        self.house.follow()
        self.house.verify(self.house.asked()[-1])

    def fetch(self, url: str = BLOG) -> str:
        """Fetch a topic; the status of the blog then."""
        fetching: Deferred[Any] = self.house.broker._detector.check_now(url)
        fetching.addErrback(lambda failure: failure.trap(TopicUnreadable))
        self.house.pass_time(2)
        self.successResultOf(fetching)
        return self.house.feed().status

    def test_a_feed_that_cannot_be_fetched(self) -> None:
        page = self.pages.pop(BLOG)
        status = self.fetch()
        self.assertIn("; the last fetch failed: ", status)
        self.assertIn("notified by the hub", status)
        self.pages[BLOG] = page  # the same as before: the river gets nothing new
        self.assertNotIn("failed", self.fetch())

    def test_what_cannot_be_read_as_a_feed_is_still_said(self) -> None:
        self.house.poll(page=b"no feed")
        for _ in range(2):
            self.assertIn("cannot be read as a feed", self.fetch())
            self.pages.pop(BLOG, None)

    def test_topics_that_nobody_reads_here(self) -> None:
        self.assertNotIn("failed", self.fetch("http://other.example/rss.xml"))


class WakingTests(RiverCase):
    """What is stored at one node is done at once by the node that tends the feeds."""

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
        """A hint reaches nobody at a node that does not tend them."""
        self.stop()
        self.import_feed()
        self.assertEqual(self.jobs.hinted, ["river"])
        self.hint("job.river")
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

    def test_hint_that_cannot_be_sent(self) -> None:
        self.stop()

        async def fail(name: str) -> None:
            raise Unavailable("the server is down")

        self.patch(self.jobs, "hint_at_job", fail)
        self.import_feed()
        self.assertEqual(len(self.house.feeds()), 1)
