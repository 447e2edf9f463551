from collections.abc import Coroutine
from pathlib import Path
from typing import Any
from unittest import mock

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase
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


class FindCloudTests(SynchronousTestCase):
    def find(self, answer: Answer) -> Deferred[Cloud]:
        return Deferred.fromCoroutine(find_cloud(web_to(Server(answer)), TOPIC))

    def test_the_first_cloud_is_taken(self) -> None:
        feed = (FEEDS / "rss20-source-cloud.xml").read_bytes()
        cloud = self.successResultOf(self.find(Answer(feed)))
        self.assertEqual(cloud.url, "https://rpc.kitchen.example.net/pleaseNotify")

    def test_the_encoding_of_the_header(self) -> None:
        feed = (
            b"<rss><channel><title>\xe9</title><cloud domain='c.example' port='80' path='/p' "
            b"registerProcedure='' protocol='http-post'/></channel></rss>"
        )
        answer = Answer(feed, headers={"Content-Type": "text/xml; charset=iso-8859-1"})
        self.assertEqual(self.successResultOf(self.find(answer)).url, "http://c.example/p")

    def test_a_json_feed(self) -> None:
        feed = (
            b'{"version": "https://jsonfeed.org/version/1.1", "items": [], "hubs": '
            b'[{"type": "rssCloud", "url": "https://cloud.example/pleaseNotify"}]}'
        )
        found = self.successResultOf(self.find(Answer(feed)))
        self.assertEqual(found.url, "https://cloud.example/pleaseNotify")
        for body, reason in ((feed.replace(b"rssCloud", b"x"), "names no cloud"), (b"{}", "JSON")):
            error = self.failureResultOf(self.find(Answer(body)), ClientError)
            self.assertIn(reason, str(error.value))

    def test_feeds_that_do_not_help(self) -> None:
        cases = {
            "atom.xml": "names no cloud",
            "rss091.xml": "DOCTYPE",
            "malformed.xml": "line ",
        }
        for name, reason in cases.items():
            with self.subTest(name):
                finding = self.find(Answer((FEEDS / name).read_bytes()))
                error = str(self.failureResultOf(finding, ClientError).value)
                self.assertIn(reason, error)
                self.assertIn(TOPIC, error)
                self.assertIn("--broker", error)

    def test_a_page_is_no_feed(self) -> None:
        finding = self.find(Answer(b"<!DOCTYPE html><html><body>A blog</body></html>"))
        error = str(self.failureResultOf(finding, ClientError).value)
        self.assertIn(f"{TOPIC} cannot be read as a feed that names a cloud (", error)

    def test_a_feed_that_cannot_be_read(self) -> None:
        error = self.failureResultOf(self.find(Answer(b"gone", 410)), ClientError)
        self.assertIn("410", str(error.value))


class RegisterTests(SynchronousTestCase):
    """The cloud chooses the protocol of the registration."""

    def registered(self, server: Server, cloud: Cloud, callback: RegisteredCallback) -> str:
        registering = register(web_to(server), cloud, TOPIC, callback)
        return self.successResultOf(Deferred.fromCoroutine(registering))

    def test_by_form(self) -> None:
        server = Server(YES)
        said = self.registered(server, REST, RegisteredCallback("http-post", 8000))
        self.assertEqual(said, "It worked.")
        (asked,) = server.asked
        self.assertEqual((asked.uri, asked.host), ("/rsscloud/pleaseNotify", "cloud.example:5337"))
        # The procedure is empty; request.args keeps empty fields.
        self.assertEqual(
            fields_of(asked),
            {
                "notifyProcedure": "",
                "port": "8000",
                "path": "/notify",
                "protocol": "http-post",
                "url1": TOPIC,
            },
        )

    def test_by_form_for_xmlrpc_at_a_domain(self) -> None:
        server = Server(YES)
        callback = RegisteredCallback(
            "xml-rpc", 8000, procedure="rssCloud.notify", domain="me.example"
        )
        self.registered(server, REST, callback)
        fields = fields_of(server.asked[0])
        self.assertEqual(
            (fields["protocol"], fields["notifyProcedure"], fields["domain"]),
            ("xml-rpc", "rssCloud.notify", "me.example"),
        )

    def test_by_xmlrpc(self) -> None:
        for given, called in (
            ("", "rssCloud.pleaseNotify"),
            ("xmlStorageSystem.rssPleaseNotify", "xmlStorageSystem.rssPleaseNotify"),
            ("register", "register"),
        ):
            with self.subTest(called):
                server = Server(Answer(xmlrpc.encode_response(True)))
                cloud = Cloud("cloud.example", 80, "/RPC2", given, "xml-rpc")
                self.registered(server, cloud, RegisteredCallback("http-post", 8000))
                self.assertEqual(
                    xmlrpc.decode_call(server.asked[0].body),
                    (called, ["rssCloud.notify", 8000, "/notify", "xml-rpc", [TOPIC]]),
                )

    def test_a_cloud_of_2003(self) -> None:
        """It takes five parameters, and notifies by XML-RPC and SOAP only."""
        name = "xmlStorageSystem.rssPleaseNotify"
        for protocol in ("xml-rpc", "soap"):
            for notified, wanted in (("http-post", protocol), ("soap", "soap")):
                with self.subTest(f"{protocol}, {notified}"):
                    server = FirstCloud(protocol)
                    cloud = Cloud("cloud.example", 80, "/RPC2", name, protocol)
                    callback = RegisteredCallback(notified, 8000, domain="me.example")
                    registering = register(web_to(server), cloud, TOPIC, callback)
                    self.successResultOf(registering)
                    (known,) = server.registered
                    self.assertEqual(
                        (known.procedure, known.port, known.path, known.protocol, known.urls),
                        ("rssCloud.notify", 8000, "/notify", wanted, (TOPIC,)),
                    )
                    self.assertEqual(server.faults, [])

    def test_a_cloud_that_knows_domains(self) -> None:
        """It is asked once more if it cannot call the address of the caller."""
        cloud = Cloud("cloud.example", 80, "/RPC2", "rssCloud.pleaseNotify", "xml-rpc")
        callback = RegisteredCallback("http-post", 8000, domain="me.example")
        first = ("rssCloud.notify", 8000, "/notify", "xml-rpc")
        second = ("", 8000, "/notify", "http-post", "me.example")
        for declines, asked in ((0, [first]), (1, [first, second])):
            server = NodeCloud(declines)
            begun: list[RegisteredCallback] = []
            registering = register(web_to(server), cloud, TOPIC, callback, begun.append)
            self.successResultOf(registering)
            self.assertEqual(server.registered, asked)
            self.assertEqual([each.domain for each in begun], ["", "me.example"][: len(asked)])
        server = NodeCloud(declines=9)
        registering = register(web_to(server), cloud, TOPIC, callback)
        error = self.failureResultOf(registering, ClientError)
        self.assertEqual(
            str(error.value),
            "The call failed when we tested the handler.",
        )
        self.assertEqual(len(server.registered), 2)

    def test_a_cloud_that_returns_false(self) -> None:
        """So did those of 2003 that were not able to do the registration."""
        server = Server(*(Answer(xmlrpc.encode_response(said)) for said in (False, True)))
        cloud = Cloud("cloud.example", 80, "/RPC2", "", "xml-rpc")
        self.registered(server, cloud, RegisteredCallback("http-post", 8000, domain="me.example"))
        self.assertEqual(len(server.asked), 2)

    def test_nothing_else_is_tried_if_the_cloud_did_not_answer_as_one(self) -> None:
        for answer in (Answer(b"", 503), Answer(b"no XML")):
            server = Server(answer)
            cloud = Cloud("cloud.example", 80, "/RPC2", "", "xml-rpc")
            callback = RegisteredCallback("http-post", 8000, domain="me.example")
            registering = register(web_to(server), cloud, TOPIC, callback)
            self.failureResultOf(registering, ClientError)
            self.assertEqual(len(server.asked), 1)

    def test_rsscloud_server_by_form(self) -> None:
        """It answers 406 to a client that accepts text/xml only."""
        server = NodeCloud()
        said = self.successResultOf(register(web_to(server), REST, TOPIC, CALLBACK))
        self.assertEqual(said, "It worked.")
        self.assertEqual(server.registered, [("http-post", "8000", "/notify", None)])

    def test_by_soap(self) -> None:
        for given, action, operation in (
            ("", "/rssCloud", "pleaseNotify"),
            ("xmlStorageSystem.rssPleaseNotify", "/xmlStorageSystem", "rssPleaseNotify"),
        ):
            with self.subTest(operation):
                server = Server(Answer(soap.encode_response(soap.SoapCall(operation), True)))
                cloud = Cloud("cloud.example", 80, "/soap", given, "soap")
                self.registered(
                    server, cloud, RegisteredCallback("soap", 8000, procedure="rssCloud.notify")
                )
                (asked,) = server.asked
                self.assertEqual((asked.uri, asked.soap_action), ("/soap", f'"{action}"'))
                self.assertEqual(
                    soap.decode_call(asked.body),
                    soap.SoapCall(
                        operation,
                        "",
                        {
                            "notifyProcedure": "rssCloud.notify",
                            "port": 8000,
                            "path": "/notify",
                            "protocol": "soap",
                            "urlList": [TOPIC],
                        },
                    ),
                )

    def test_refusals(self) -> None:
        soap_no = Answer(soap.encode_response(soap.SoapCall("pleaseNotify"), False))
        for protocol, answer, reason in (
            ("http-post", NO, "It did not work."),
            ("xml-rpc", Answer(xmlrpc.encode_fault(4, "It did not work.")), "It did not work."),
            ("xml-rpc", Answer(xmlrpc.encode_response(False)), "without a reason"),
            ("soap", Answer(soap.encode_fault("Client", "No such thing."), 500), "No such thing."),
            ("soap", soap_no, "without a reason"),
        ):
            with self.subTest(f"{protocol}: {reason}"):
                cloud = Cloud("cloud.example", 5337, "/c", "", protocol)
                registering = register(
                    web_to(Server(answer)), cloud, TOPIC, RegisteredCallback("http-post", 8000)
                )
                error = self.failureResultOf(registering, ClientError)
                self.assertIn(reason, str(error.value))


class TestingServer(Server):
    """A cloud that calls the callback several times before it answers a registration."""

    notified: Any = None
    times = 1

    def render(self, request: Request) -> bytes | int:
        for _ in range(self.times):
            self.notified(TOPIC)
        return super().render(request)


class SubscriberTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.heard: list[str] = []
        self.warnings: list[str] = []

    def subscriber(self, server: Server) -> Subscriber:
        return Subscriber(
            web_to(server, self.clock),
            self.clock,
            self.heard.append,
            self.warnings.append,
        )

    def result(self, coroutine: Coroutine[Any, Any, str]) -> str:
        return self.successResultOf(Deferred.fromCoroutine(coroutine))

    def test_what_is_subscribed_to_is_heard_of(self) -> None:
        subscriber = self.subscriber(Server(YES))
        self.assertEqual(self.result(subscriber.subscribe(REST, TOPIC, CALLBACK)), "It worked.")
        self.assertEqual(subscriber.topics, {TOPIC})
        subscriber.notified(TOPIC)
        subscriber.notified(TOPIC)
        self.assertEqual(self.heard, [TOPIC, TOPIC])

    def test_a_refusal_leaves_nothing(self) -> None:
        server = Server(NO)
        subscriber = self.subscriber(server)
        subscribing = Deferred.fromCoroutine(subscriber.subscribe(REST, TOPIC, CALLBACK))
        self.failureResultOf(subscribing, ClientError)
        self.assertEqual(subscriber.topics, set())
        self.clock.advance(2 * RENEW_AFTER)
        self.assertEqual(len(server.asked), 1)

    def test_the_cloud_s_test_is_not_news(self) -> None:
        for times in (0, 1, 2):
            with self.subTest(times):
                self.heard.clear()
                server = TestingServer(YES)
                subscriber = self.subscriber(server)
                server.notified, server.times = subscriber.notified, times
                self.result(subscriber.subscribe(REST, TOPIC, CALLBACK))
                self.assertEqual(self.heard, [TOPIC] * max(0, times - 1))
                subscriber.notified(TOPIC)
                self.assertEqual(self.heard, [TOPIC] * max(1, times))

    def test_no_test_of_either_registration_is_news(self) -> None:
        """A cloud may test the callback, decline, and test it once more."""
        refusal = Answer(xmlrpc.encode_fault(4, "The call failed."))
        for answer in (Answer(xmlrpc.encode_response(True)), refusal):
            server = TestingServer(refusal, answer)
            subscriber = self.subscriber(server)
            server.notified = subscriber.notified
            cloud = Cloud("cloud.example", 80, "/RPC2", "", "xml-rpc")
            subscribing = Deferred.fromCoroutine(subscriber.subscribe(cloud, TOPIC, CALLBACK))
            subscribing.addErrback(lambda failure: failure.trap(ClientError))
            self.assertEqual((len(server.asked), self.heard), (2, []))

    def test_a_notification_before_a_challenge_is_news(self) -> None:
        server = TestingServer(YES)
        subscriber = self.subscriber(server)
        server.notified = subscriber.notified
        named = RegisteredCallback("http-post", 8000, domain="me.example")
        self.result(subscriber.subscribe(REST, TOPIC, named))
        self.assertEqual(self.heard, [TOPIC])

    def test_renewed_each_day(self) -> None:
        server = Server(YES)
        self.result(self.subscriber(server).subscribe(REST, TOPIC, CALLBACK))
        for day in (1, 2, 3):
            self.clock.advance(RENEW_AFTER - 1)
            self.assertEqual(len(server.asked), day)
            self.clock.advance(1)
            self.assertEqual(len(server.asked), day + 1)
        self.assertEqual({asked.body for asked in server.asked}, {server.asked[0].body})
        self.assertEqual(self.warnings, [])

    def test_a_renewal_that_fails_is_tried_again_soon(self) -> None:
        server = Server(YES, NO, Answer(b"", 503), YES)
        self.result(self.subscriber(server).subscribe(REST, TOPIC, CALLBACK))
        self.clock.advance(RENEW_AFTER)
        self.assertEqual(len(self.warnings), 1)
        self.assertIn("It did not work. Trying again in 5 minutes.", self.warnings[0])
        self.clock.advance(RETRY_AFTER)
        self.assertEqual(len(self.warnings), 2)
        self.assertIn("HTTP status 503. Trying again", self.warnings[1])
        self.clock.advance(RETRY_AFTER)
        self.assertEqual((len(self.warnings), len(server.asked)), (2, 4))
        self.clock.advance(RENEW_AFTER - 1)
        self.assertEqual(len(server.asked), 4)
        self.clock.advance(1)
        self.assertEqual(len(server.asked), 5)

    def test_a_bug_does_not_end_the_renewals(self) -> None:
        server = Server(YES)
        self.result(self.subscriber(server).subscribe(REST, TOPIC, CALLBACK))
        self.patch(module, "register", mock.Mock(side_effect=ZeroDivisionError))
        self.clock.advance(RENEW_AFTER)
        self.assertIn("Trying again in 5 minutes", self.warnings[0])
        self.patch(module, "register", register)
        self.clock.advance(RETRY_AFTER)
        self.assertEqual(len(server.asked), 2)

    def test_stop(self) -> None:
        server = Server(YES)
        subscriber = self.subscriber(server)
        self.result(subscriber.subscribe(REST, TOPIC, CALLBACK))
        subscriber.stop()
        self.clock.advance(RENEW_AFTER)
        self.assertEqual(len(server.asked), 1)
        self.assertEqual(self.clock.getDelayedCalls(), [])
