from __future__ import annotations

from pathlib import Path

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.client.resourcesync import notify
from rsscloud_broker.client.web import ClientError
from rsscloud_broker.wire import links
from tests.client.recording import Answer, Server, web_to

FIXTURES = Path(__file__).parent.parent / "wire" / "fixtures" / "resourcesync"

TOPIC = "http://example.com/dataset1/framework/"
HUB = "http://hub.example/websub"
CAPABILITY_LIST = "http://example.com/dataset1/capabilitylist.xml"
TOKEN = "correct-horse-battery"


class NotifyTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.hub = Server(Answer(b"The notification was accepted.\nWarning: odd.\n", 202))
        self.payload = (FIXTURES / "new_resource_list.xml").read_bytes()

    def notify(self, payload: bytes, capability_list: str = "", token: str = "") -> str:
        sent = notify(web_to(self.hub), payload, TOPIC, HUB, capability_list, token)
        return self.successResultOf(Deferred.fromCoroutine(sent))

    def complaint(self, payload: bytes, topic: str = TOPIC, capability_list: str = "") -> str:
        sent = notify(web_to(self.hub), payload, topic, HUB, capability_list)
        return str(self.failureResultOf(sent, ClientError).value)

    def linked(self) -> list[list[str]]:
        """The targets of the links in the last request: the topic, the hub, the list."""
        found = links.parse(self.hub.asked[-1].headers["link"])
        return [links.targets(found, relation) for relation in ("self", "hub", "resourcesync")]

    def test_as_it_is(self) -> None:
        said = self.notify(self.payload, token=TOKEN)
        self.assertEqual(said, "The notification was accepted. Warning: odd.")
        (asked,) = self.hub.asked
        self.assertEqual((asked.method, asked.uri), ("POST", "/websub"))
        self.assertEqual(asked.body, self.payload)
        self.assertEqual(asked.headers["content-type"], "application/xml")
        self.assertEqual(asked.headers["authorization"], f"Bearer {TOKEN}")
        self.assertEqual(self.linked(), [[TOPIC], [HUB], [CAPABILITY_LIST]])

    def test_without_a_token(self) -> None:
        self.notify(self.payload)
        self.assertNotIn("authorization", self.hub.asked[0].headers)

    def test_a_capability_list_that_the_payload_does_not_name(self) -> None:
        payload = (FIXTURES / "three_changes.xml").read_bytes()
        self.assertIn("names no capability list", self.complaint(payload))
        self.assertEqual(self.hub.asked, [])
        self.notify(payload, "http://example.com/list.xml")
        self.assertEqual(self.linked()[2], ["http://example.com/list.xml"])

    def test_what_breaks_a_rule_is_not_sent(self) -> None:
        for payload, reason in (
            (b"", "not acceptable XML"),
            ((FIXTURES / "capability_list.xml").read_bytes(), "must be framework-notification"),
            (self.payload.replace(b"urlset", b"sitemapindex"), "it must be urlset"),
        ):
            complaint = self.complaint(payload)
            self.assertTrue(complaint.startswith("nothing was sent: "), complaint)
            self.assertIn(reason, complaint)
        for topic, capability_list in (("/relative", ""), (TOPIC, "capabilitylist.xml")):
            complaint = self.complaint(self.payload, topic, capability_list)
            self.assertIn("is not an absolute http or https URL", complaint)
        self.assertEqual(self.hub.asked, [])

    def test_only_a_hub_takes_it(self) -> None:
        """A broker's front page accepts XML, too, and answers with a fault and status 200."""
        self.hub.answers = [Answer(b"<methodResponse><fault/></methodResponse>", 200)]
        complaint = self.complaint(self.payload)
        self.assertIn(f"{HUB}: answered with HTTP status 200: a hub answers 202; ", complaint)
        self.hub.answers = [Answer(b"", 204)]
        self.assertEqual(self.notify(self.payload), "The answer was HTTP status 204.")

    def test_refusals(self) -> None:
        self.hub.answers = [Answer(b"Nobody may publish that here\n" * 50, 403)]
        complaint = self.complaint(self.payload)
        self.assertIn(f"{HUB}: answered with HTTP status 403: Nobody may publish", complaint)
        self.assertLess(len(complaint), 400)
