"""What needs the attention of an administrator stands first, with what to do."""

from __future__ import annotations

from typing import Any

from attrs import evolve
from lxml import html
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.template import Tag, flattenString, tags

from rsscloud_broker.interfaces import PartState, RefusedSignIn
from rsscloud_broker.model import Callback, Lease, Subscription
from rsscloud_broker.model.administration import BrokerState, NodeState, SubscriptionPage
from rsscloud_broker.model.work import HostState
from rsscloud_broker.web.admin.attention import (
    MANY_GIVEN_UP,
    MANY_REFUSED,
    BrokerFindings,
    attention,
)
from rsscloud_broker.web.admin.overview import rates, work_of
from rsscloud_broker.web.statistics import PERIODS, Statistics

NOW = 1_000_000.0
WELL = BrokerFindings(
    BrokerState(nodes=(NodeState("a 1", True, 0, 0, "1.0"),)),
    [PartState("disk", True, "The disk has room.")],
    [],
    [RefusedSignIn("dave", "192.0.2.7", NOW)] * (MANY_REFUSED - 1),
    MANY_GIVEN_UP - 1,
    SubscriptionPage(()),
)


class FlattenedCase(SynchronousTestCase):
    def tree(self, *found: Tag) -> Any:
        text = self.successResultOf(flattenString(None, tags.div(*found)))
        return html.fromstring(text.decode())


class AttentionTests(FlattenedCase):
    def said(self, **found: Any) -> str:
        """What is said of a broker that is well but for this."""
        (item,) = attention(evolve(WELL, **found), "token", NOW)
        return " ".join(self.tree(item).text_content().split())

    def test_a_broker_that_is_well(self) -> None:
        self.assertEqual(attention(WELL, "token", NOW), [])

    def test_parts(self) -> None:
        full = PartState("disk", False, "Only 1 MB are free: make room there.")
        self.assertEqual(self.said(parts=[*WELL.parts, full]), full.text)

    def test_hosts(self) -> None:
        host = HostState("reader.example", 7, NOW + 600)
        (item,) = attention(evolve(WELL, hosts=[host]), "token", NOW)
        tree = self.tree(item)
        self.assertIn("reader.example does not answer: 7 calls", tree.text_content())
        (form,) = tree.xpath("//form[@action='/admin/hosts']")
        self.assertEqual(form.fields["csrf"], "token")
        self.assertEqual(form.fields["host"], "reader.example")

    def test_notifications(self) -> None:
        self.assertIn("5 notifications were given up", self.said(given_up=MANY_GIVEN_UP))

    def test_subscriptions(self) -> None:
        def failed(key: int, host: str, at: float) -> Subscription:
            callback = Callback(f"http://{host}/notify", "http-post")
            one = Subscription("http://blog.example/", callback, Lease(0.0, 9999), id=key)
            return evolve(one, consecutive_errors=1, last_error="status 500", last_error_at=at)

        one = failed(7, "a.example", NOW - 3600)
        said = self.said(failing=SubscriptionPage((one,)))
        self.assertIn("1 subscription fails: every attempt", said)
        self.assertIn("The latest is a.example: status 500, 1 hour ago. See", said)
        two = failed(8, "b.example", NOW - 60)
        (item,) = attention(evolve(WELL, failing=SubscriptionPage((two, one), 8)), "token", NOW)
        tree = self.tree(item)
        self.assertIn("More than 2 subscriptions fail: ", tree.text_content())
        links = ["/admin/subscription?id=8", "/admin/subscriptions?state=failing"]
        self.assertEqual(tree.xpath("//a/@href"), links)

    def test_jobs(self) -> None:
        state = evolve(WELL.state, late_jobs={"sweep": NOW - 1200})
        said = self.said(state=state)
        self.assertIn("The job \u201csweep\u201d stands still: it was due 20 minutes ago", said)

    def test_processes(self) -> None:
        def with_node(**values: Any) -> BrokerState:
            other = evolve(WELL.state.nodes[0], name="b 2", here=False, **values)
            return evolve(WELL.state, nodes=(*WELL.state.nodes, other))

        self.assertIn("different versions: 1.0, 1.1", self.said(state=with_node(version="1.1")))
        self.assertIn("b 2 is silent", self.said(state=with_node(silent_for=61.0)))
        self.assertIn("clock of b 2 is wrong", self.said(state=with_node(clock_ahead=-9.0)))

    def test_what_a_process_works_on(self) -> None:
        claims = {"fan-outs": 2, "checks": 0, "polls": 3, "intents": 1}
        one = evolve(WELL.state.nodes[0], claims=claims, notifications=12)
        said = "2 changes, 3 polls, 1 unconfirmed subscription, 12 notifications"
        self.assertEqual(work_of(one), said)

    def test_sign_ins(self) -> None:
        one = RefusedSignIn("", "192.0.2.8", NOW)
        said = self.said(refused=[*WELL.refused, one])
        self.assertIn("10 attempts to sign in were refused", said)
        self.assertIn("9 of them for dave, most from 192.0.2.7", said)
        self.assertIn("names that nobody can have", self.said(refused=[one] * MANY_REFUSED))


class RatesTests(FlattenedCase):
    def test_bars(self) -> None:
        begins = range(0, 300, 60)
        numbers = {
            "pings": [0, 4, 0, 2, 0],
            "deliveries.http-post.delivered": [1, 0, 0, 0, 0],
            "deliveries.http-post.failed": [0, 0, 0, 0, 3],
            "deliveries.websub.failed": [0, 0, 0, 0, 1],
        }
        tree = self.tree(rates(Statistics(PERIODS["hour"], begins, numbers, {}, ())))
        said = [" ".join(each.text_content().split()) for each in tree.xpath("//figcaption")]
        self.assertEqual(
            said,
            [
                "Pings6 in 5 minutes, at most 4 in one",
                "Changes foundnone",
                "Failed fetchesnone",
                "Notifications1 in 5 minutes, at most 1 in one",
                "Failed attempts to notify4 in 5 minutes, at most 4 in one",
            ],
        )
        (log,) = tree.xpath("//figcaption//a")
        self.assertEqual(log.text, "Failed attempts to notify")
        self.assertEqual(log.get("href"), "/admin/log?kind=notification&outcome=failed")
        bars = [(each.get("x"), each.get("height")) for each in tree.xpath("(//svg)[1]/rect")]
        self.assertEqual(bars, [("1", "20.00"), ("3", "10.00")])
