"""Subscribers of rssCloud: finding clouds, registering by each protocol, and renewing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.resource import Resource
from twisted.web.server import Request

from rsscloud_broker.client import subscriber as module
from rsscloud_broker.client.subscriber import (
    RENEW_AFTER,
    RETRY_AFTER,
    RegisteredCallback,
    Subscriber,
    find_cloud,
    register,
)
from rsscloud_broker.client.web import ClientError
from rsscloud_broker.testing.clock import Clock
from rsscloud_broker.wire import soap, xmlrpc
from rsscloud_broker.wire.cloud import Cloud
from tests.client.clouds import FirstCloud, NodeCloud
from tests.client.recording import Answer, Server, fields_of, web_to

FEEDS = Path(__file__).parent.parent / "fixtures" / "feeds"
TOPIC = "http://example.org/rss.xml"
REST = Cloud("cloud.example", 5337, "/rsscloud/pleaseNotify", "", "http-post")
CALLBACK = RegisteredCallback("http-post", 8000)
YES = Answer(b'<notifyResult success="true" msg="It worked."/>')
NO = Answer(b'<notifyResult success="false" msg="It did not work."/>')
BY_XMLRPC = Cloud("cloud.example", 80, "/RPC2", "", "xml-rpc")
NAMED = RegisteredCallback("http-post", 8000, domain="me.example")


class FindCloudTests(SynchronousTestCase):
    def find(self, answer: Answer) -> str:
        """The URL of the cloud that a feed names."""
        finding = find_cloud(web_to(Server(answer)), TOPIC)
        return self.successResultOf(Deferred.fromCoroutine(finding)).url

    def complaint(self, answer: Answer) -> str:
        finding = find_cloud(web_to(Server(answer)), TOPIC)
        return str(self.failureResultOf(finding, ClientError).value)

    def test_the_first_cloud_is_taken(self) -> None:
        feed = (FEEDS / "rss20-source-cloud.xml").read_bytes()
        self.assertEqual(self.find(Answer(feed)), "https://rpc.kitchen.example.net/pleaseNotify")

    def test_the_encoding_of_the_header(self) -> None:
        feed = (
            b"<rss><channel><title>\xe9</title><cloud domain='c.example' port='80' path='/p' "
            b"registerProcedure='' protocol='http-post'/></channel></rss>"
        )
        answer = Answer(feed, headers={"Content-Type": "text/xml; charset=iso-8859-1"})
        self.assertEqual(self.find(answer), "http://c.example/p")

    def test_a_json_feed(self) -> None:
        feed = (
            b'{"version": "https://jsonfeed.org/version/1.1", "items": [], "hubs": '
            b'[{"type": "rssCloud", "url": "https://cloud.example/pleaseNotify"}]}'
        )
        self.assertEqual(self.find(Answer(feed)), "https://cloud.example/pleaseNotify")
        for body, reason in ((feed.replace(b"rssCloud", b"x"), "names no cloud"), (b"{}", "JSON")):
            self.assertIn(reason, self.complaint(Answer(body)))

    def test_feeds_that_do_not_help(self) -> None:
        for name, reason in (
            ("atom.xml", "names no cloud"),
            ("rss091.xml", "DOCTYPE"),
            ("malformed.xml", "line "),
        ):
            said = self.complaint(Answer((FEEDS / name).read_bytes()))
            for part in (reason, TOPIC, "--broker"):
                self.assertIn(part, said, name)

    def test_what_is_no_feed(self) -> None:
        said = self.complaint(Answer(b"<!DOCTYPE html><html><body>A blog</body></html>"))
        self.assertIn(f"{TOPIC} cannot be read as a feed that names a cloud (", said)
        self.assertIn("410", self.complaint(Answer(b"gone", 410)))


class RegisterTests(SynchronousTestCase):
    """The cloud chooses the protocol of the registration."""

    def registered(self, server: Resource, cloud: Cloud, callback: RegisteredCallback) -> str:
        registering = register(web_to(server), cloud, TOPIC, callback)
        return self.successResultOf(Deferred.fromCoroutine(registering))

    def complaint(self, server: Resource, cloud: Cloud, callback: RegisteredCallback) -> str:
        registering = register(web_to(server), cloud, TOPIC, callback)
        return str(self.failureResultOf(registering, ClientError).value)

    def test_by_form(self) -> None:
        server = Server(YES)
        self.assertEqual(self.registered(server, REST, CALLBACK), "It worked.")
        (asked,) = server.asked
        self.assertEqual(asked.uri, "/rsscloud/pleaseNotify")
        self.assertEqual(asked.headers["host"], "cloud.example:5337")
        # The procedure is empty; request.args keeps empty fields.
        fields = {"notifyProcedure": "", "port": "8000", "path": "/notify"}
        fields |= {"protocol": "http-post", "url1": TOPIC}
        self.assertEqual(fields_of(asked), fields)
        by_call = RegisteredCallback("xml-rpc", 8000, "/notify", "rssCloud.notify", "me.example")
        self.registered(server, REST, by_call)
        fields |= {"protocol": "xml-rpc", "notifyProcedure": "rssCloud.notify"}
        self.assertEqual(fields_of(server.asked[1]), fields | {"domain": "me.example"})

    def test_by_xmlrpc(self) -> None:
        for given, called in (
            ("", "rssCloud.pleaseNotify"),
            ("xmlStorageSystem.rssPleaseNotify", "xmlStorageSystem.rssPleaseNotify"),
            ("register", "register"),
        ):
            server = Server(Answer(xmlrpc.encode_response(True)))
            self.registered(server, evolve(BY_XMLRPC, register_procedure=given), CALLBACK)
            self.assertEqual(
                xmlrpc.decode_call(server.asked[0].body),
                (called, ["rssCloud.notify", 8000, "/notify", "xml-rpc", [TOPIC]]),
            )

    def test_a_cloud_of_2003(self) -> None:
        """It takes five parameters, and notifies by XML-RPC and SOAP only."""
        name = "xmlStorageSystem.rssPleaseNotify"
        for protocol in ("xml-rpc", "soap"):
            for notified, wanted in (("http-post", protocol), ("soap", "soap")):
                server = FirstCloud(protocol)
                cloud = Cloud("cloud.example", 80, "/RPC2", name, protocol)
                self.registered(server, cloud, evolve(NAMED, protocol=notified))
                (known,) = server.registered
                self.assertEqual(
                    (known.procedure, known.port, known.path, known.protocol, known.urls),
                    ("rssCloud.notify", 8000, "/notify", wanted, (TOPIC,)),
                )
                self.assertEqual(server.faults, [], (protocol, notified))

    def test_a_cloud_that_knows_domains(self) -> None:
        """It is asked once more if it cannot call the address of the caller."""
        first = ("rssCloud.notify", 8000, "/notify", "xml-rpc")
        second = ("", 8000, "/notify", "http-post", "me.example")
        for declines, asked in ((0, [first]), (1, [first, second])):
            server = NodeCloud(declines)
            begun: list[RegisteredCallback] = []
            self.successResultOf(register(web_to(server), BY_XMLRPC, TOPIC, NAMED, begun.append))
            self.assertEqual(server.registered, asked)
            self.assertEqual([each.domain for each in begun], ["", "me.example"][: len(asked)])
        server = NodeCloud(declines=9)
        said = self.complaint(server, BY_XMLRPC, NAMED)
        self.assertEqual(said, "The call failed when we tested the handler.")
        self.assertEqual(len(server.registered), 2)

    def test_a_cloud_that_returns_false(self) -> None:
        """So did those of 2003 that were not able to do the registration."""
        server = Server(*(Answer(xmlrpc.encode_response(said)) for said in (False, True)))
        self.registered(server, BY_XMLRPC, NAMED)
        self.assertEqual(len(server.asked), 2)

    def test_nothing_else_is_tried_if_the_cloud_did_not_answer_as_one(self) -> None:
        for answer in (Answer(b"", 503), Answer(b"no XML")):
            server = Server(answer)
            self.complaint(server, BY_XMLRPC, NAMED)
            self.assertEqual(len(server.asked), 1)

    def test_rsscloud_server_by_form(self) -> None:
        """It answers 406 to a client that accepts text/xml only."""
        server = NodeCloud()
        self.assertEqual(self.registered(server, REST, CALLBACK), "It worked.")
        self.assertEqual(server.registered, [("http-post", "8000", "/notify", None)])

    def test_by_soap(self) -> None:
        for given, action, operation in (
            ("", "/rssCloud", "pleaseNotify"),
            ("xmlStorageSystem.rssPleaseNotify", "/xmlStorageSystem", "rssPleaseNotify"),
        ):
            server = Server(Answer(soap.encode_response(soap.SoapCall(operation), True)))
            cloud = Cloud("cloud.example", 80, "/soap", given, "soap")
            self.registered(server, cloud, RegisteredCallback("soap", 8000))
            (asked,) = server.asked
            self.assertEqual((asked.uri, asked.headers["soapaction"]), ("/soap", f'"{action}"'))
            fields = {"notifyProcedure": "rssCloud.notify", "port": 8000, "path": "/notify"}
            fields |= {"protocol": "soap", "urlList": [TOPIC]}
            call = soap.SoapCall(operation, "", fields)
            self.assertEqual(soap.decode_call(asked.body), call, operation)

    def test_refusals(self) -> None:
        soap_no = Answer(soap.encode_response(soap.SoapCall("pleaseNotify"), False))
        for protocol, answer, reason in (
            ("http-post", NO, "It did not work."),
            ("xml-rpc", Answer(xmlrpc.encode_fault(4, "It did not work.")), "It did not work."),
            ("xml-rpc", Answer(xmlrpc.encode_response(False)), "without a reason"),
            ("soap", Answer(soap.encode_fault("Client", "No such thing."), 500), "No such thing."),
            ("soap", soap_no, "without a reason"),
        ):
            cloud = Cloud("cloud.example", 5337, "/c", "", protocol)
            self.assertIn(reason, self.complaint(Server(answer), cloud, CALLBACK), protocol)


class TestingServer(Server):
    """A cloud that calls the callback several times before it answers a registration."""

    times = 0
    notified: Callable[[str], None]

    def render(self, request: Request) -> bytes | int:
        for _ in range(self.times):
            self.notified(TOPIC)
        return super().render(request)


class SubscriberTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.heard: list[str] = []
        self.warnings: list[str] = []

    def subscribing(
        self,
        *answers: Answer,
        times: int = 0,
        cloud: Cloud = REST,
        callback: RegisteredCallback = CALLBACK,
    ) -> Deferred[str]:
        """Subscribe at a cloud that calls the callback some times before each of its answers."""
        self.server = TestingServer(*answers)
        self.subscriber = Subscriber(
            web_to(self.server, self.clock), self.clock, self.heard.append, self.warnings.append
        )
        self.server.times, self.server.notified = times, self.subscriber.notified
        return Deferred.fromCoroutine(self.subscriber.subscribe(cloud, TOPIC, callback))

    def subscribe(self, *answers: Answer, **more: Any) -> None:
        self.assertEqual(self.successResultOf(self.subscribing(*answers, **more)), "It worked.")

    def test_what_is_subscribed_to_is_heard_of(self) -> None:
        self.subscribe(YES)
        self.assertEqual(self.subscriber.topics, {TOPIC})
        self.subscriber.notified(TOPIC)
        self.subscriber.notified(TOPIC)
        self.assertEqual(self.heard, [TOPIC, TOPIC])

    def test_a_refusal_leaves_nothing(self) -> None:
        self.failureResultOf(self.subscribing(NO), ClientError)
        self.assertEqual(self.subscriber.topics, set())
        self.clock.advance(2 * RENEW_AFTER)
        self.assertEqual(len(self.server.asked), 1)

    def test_the_cloud_s_test_is_not_news(self) -> None:
        for times in (0, 1, 2):
            self.heard.clear()
            self.subscribe(YES, times=times)
            self.assertEqual(self.heard, [TOPIC] * max(0, times - 1), times)
            self.subscriber.notified(TOPIC)
            self.assertEqual(self.heard, [TOPIC] * max(1, times), times)

    def test_no_test_of_either_registration_is_news(self) -> None:
        """A cloud may test the callback, decline, and test it once more."""
        refusal = Answer(xmlrpc.encode_fault(4, "The call failed."))
        for answer in (Answer(xmlrpc.encode_response(True)), refusal):
            subscribing = self.subscribing(refusal, answer, times=1, cloud=BY_XMLRPC)
            subscribing.addErrback(lambda failure: failure.trap(ClientError))
            self.assertEqual((len(self.server.asked), self.heard), (2, []))

    def test_a_notification_before_a_challenge_is_news(self) -> None:
        self.subscribe(YES, times=1, callback=NAMED)
        self.assertEqual(self.heard, [TOPIC])

    def test_renewed_each_day(self) -> None:
        self.subscribe(YES)
        server = self.server
        for day in (1, 2, 3):
            self.clock.advance(RENEW_AFTER - 1)
            self.assertEqual(len(server.asked), day)
            self.clock.advance(1)
            self.assertEqual(len(server.asked), day + 1)
        self.assertEqual({asked.body for asked in server.asked}, {server.asked[0].body})
        self.assertEqual(self.warnings, [])

    def test_a_renewal_that_fails_is_tried_again_soon(self) -> None:
        self.subscribe(YES, NO, Answer(b"", 503), YES)
        self.clock.advance(RENEW_AFTER)
        self.clock.advance(RETRY_AFTER)
        first, second = self.warnings
        self.assertIn("It did not work. Trying again in 5 minutes.", first)
        self.assertIn("HTTP status 503. Trying again", second)
        self.clock.advance(RETRY_AFTER)
        self.assertEqual((len(self.warnings), len(self.server.asked)), (2, 4))
        self.clock.advance(RENEW_AFTER - 1)
        self.assertEqual(len(self.server.asked), 4)
        self.clock.advance(1)
        self.assertEqual(len(self.server.asked), 5)

    def test_a_bug_does_not_end_the_renewals(self) -> None:
        self.subscribe(YES)
        self.patch(module, "register", mock.Mock(side_effect=ZeroDivisionError))
        self.clock.advance(RENEW_AFTER)
        self.assertIn("Trying again in 5 minutes", self.warnings[0])
        self.patch(module, "register", register)
        self.clock.advance(RETRY_AFTER)
        self.assertEqual(len(self.server.asked), 2)

    def test_stop(self) -> None:
        self.subscribe(YES)
        self.subscriber.stop()
        self.clock.advance(RENEW_AFTER)
        self.assertEqual(len(self.server.asked), 1)
        self.assertEqual(self.clock.getDelayedCalls(), [])
