"""Plain HTTP: the forms of rssCloud and of the ping sink, and the change lists.

Python's own client does most of it, so that nothing is left out where curl is
not installed; where it is, curl does some of it again.
"""

from __future__ import annotations

import gzip
import http.client
import json
import shutil
import subprocess
from collections.abc import Iterator

from tests.e2e.fixture import TIMEOUT, Answer, Broker, EndToEndTestCase, post_form, request, until
from tests.e2e.servers import DeafReceiver, HttpPostReceiver

LIMIT = 65_536

FORM = {"content-type": "application/x-www-form-urlencoded"}
TOO_LARGE = b"url=http%3A%2F%2Fa.example%2F" + b"x" * LIMIT


class RegistrationTests(EndToEndTestCase):
    def test_at_the_callers_address(self) -> None:
        broker = self.shared_broker()
        origin, receiver = self.origin(), self.served(HttpPostReceiver())
        topic = origin.feed()
        answer = broker.subscribe(receiver, topic)
        self.assertEqual(answer.status, 200)
        self.assertEqual(answer.headers["content-type"], "text/xml; charset=utf-8")
        self.assertIn('<notifyResult success="true" msg="Thanks for the reg', answer.text)
        self.assertEqual((receiver.heard, receiver.challenged), ([topic], []))
        receiver.heard.clear()

        origin.change(topic)
        self.assertIn('<result success="true" msg="Thanks for the ping."', broker.ping(topic).text)
        self.assert_told(receiver, topic)

    def test_with_a_domain(self) -> None:
        broker = self.shared_broker()
        origin, receiver = self.origin(), self.served(HttpPostReceiver())
        topic = origin.feed()
        answer = broker.subscribe(receiver, topic, domain="localhost")
        self.assertIn('success="true"', answer.text)
        self.assertEqual((receiver.heard, receiver.challenged), ([], [topic]))
        origin.change(topic)
        broker.ping(topic)
        self.assert_told(receiver, topic)

    def test_json(self) -> None:
        broker = self.shared_broker()
        answer = post_form(f"{broker.url}/pleaseNotify", {"port": 80}, accept="application/json")
        self.assertEqual(answer.headers["content-type"], "application/json")
        self.assertEqual(
            json.loads(answer.text),
            {
                "success": False,
                "msg": "The following parameters were missing from the request body: "
                "path, protocol.",
            },
        )
        answer = post_form(f"{broker.url}/ping", {"url": self.origin().feed()}, accept="image/png")
        self.assertEqual((answer.status, answer.text), (406, "Not Acceptable\n"))

    def test_a_callback_that_does_not_want_it(self) -> None:
        broker, receiver = self.shared_broker(), self.served(DeafReceiver())
        topic = self.origin().feed()
        for more in ({}, {"domain": "localhost"}):
            with self.subTest(more):
                answer = broker.subscribe(receiver, topic, **more)
                self.assertEqual(answer.status, 200)
                self.assertIn('success="false"', answer.text)
                self.assertIn("the call failed when we tested the handler.", answer.text)

    def test_a_feed_that_is_not_there(self) -> None:
        broker, receiver = self.shared_broker(), self.served(HttpPostReceiver())
        topic = self.origin().url("/nothing.xml")
        self.assertIn(
            "The subscription was cancelled because there was an error reading the resource "
            f"at URL {topic}.",
            broker.subscribe(receiver, topic).text,
        )
        self.assertIn(
            "The ping was cancelled because there was an error reading the resource "
            f"at URL {topic}.",
            broker.ping(topic).text,
        )
        self.assertEqual(receiver.called, 0)


class PingPagesTests(EndToEndTestCase):
    def test_every_page_is_listed(self) -> None:
        broker = self.own_broker()
        broker.start()
        for query in (
            "/pingSiteForm?name=Form&url=http://form.example/",
            "/ping?url=http://ping.example/&name=Ping",
            "/ping?url=http://nameless.example/",
            "/rss/ping?u=http://rss.example/rss.xml",
            "/?name=Blogs&url=http://blogs.example/&rssUrl=http://blogs.example/rss.xml",
        ):
            with self.subTest(query):
                answer = request(broker.url + query)
                self.assertEqual(answer.status, 200)
                self.assertIn("Thanks for the ping", answer.text)
        broker.restart()
        self.assert_listed(
            broker,
            {"name": "Form", "url": "http://form.example/"},
            {"name": "Ping", "url": "http://ping.example/"},
            {"name": "http://nameless.example/", "url": "http://nameless.example/"},
            {"url": "http://rss.example/rss.xml", "rssUrl": "http://rss.example/rss.xml"},
            {"name": "Blogs", "rssUrl": "http://blogs.example/rss.xml"},
        )

    def test_the_form(self) -> None:
        broker = self.shared_broker()
        self.assertIn("<form", request(f"{broker.url}/pingSiteForm").text)
        answer = post_form(
            f"{broker.url}/pingSiteForm", {"name": "<b>", "url": "http://bold.example/"}
        )
        self.assertEqual(answer.status, 200)
        self.assertNotIn("<b>", answer.text)

    def test_refusals(self) -> None:
        broker = self.shared_broker()
        for query in ("/pingSiteForm?name=&url=http://a.example/", "/ping?url=javascript:1"):
            with self.subTest(query):
                answer = request(broker.url + query)
                self.assertEqual(answer.status, 400)
                self.assertIn("accept the ping because", answer.text)


class ChangeListTests(EndToEndTestCase):
    def test_conditions(self) -> None:
        broker = self.shared_broker()
        for path in ("/changes.xml", "/shortChanges.xml"):
            for condition, validator in (
                ("if-none-match", "etag"),
                ("if-modified-since", "last-modified"),
            ):
                with self.subTest(path=path, condition=condition):
                    self.assert_not_modified(broker.url + path, condition, validator)

    def assert_not_modified(self, url: str, condition: str, validator: str) -> None:
        def ask_again() -> bool:
            known = request(url)
            again = request(url, headers={condition: known.headers.get(validator, "")})
            return (again.status, again.body) == (304, b"")

        # At the top of a minute the list may be made anew in between.
        until(ask_again, "304 Not Modified")

    def test_gzip(self) -> None:
        url = f"{self.shared_broker().url}/changes.xml"

        def fetch() -> tuple[Answer, Answer] | None:
            plain = request(url)
            packed = request(url, headers={"accept-encoding": "gzip"})
            same = plain.status == 200 and request(url).headers["etag"] == plain.headers["etag"]
            return (plain, packed) if same else None

        plain, packed = until(fetch, "a list that is not made anew in between")
        self.assertEqual(packed.headers["content-encoding"], "gzip")
        self.assertEqual(packed.headers["vary"], "Accept-Encoding")
        self.assertNotEqual(packed.headers["etag"], plain.headers["etag"])
        self.assertEqual(gzip.decompress(packed.body), plain.body)


class LargeBodyTests(EndToEndTestCase):
    def assert_well(self, broker: Broker) -> None:
        """What was refused does no harm to the others."""
        answer = post_form(f"{broker.url}/ping", {"url": "http://127.0.0.1:1/"})
        self.assertEqual(answer.status, 200)

    def test_told_by_its_length(self) -> None:
        broker = self.shared_broker()
        for path in ("/RPC2", "/soap", "/ping", "/rsscloud/pleaseNotify", "/nowhere"):
            with self.subTest(path):
                answer = request(f"{broker.url}{path}", "POST", TOO_LARGE, FORM)
                self.assertEqual(answer.status, 413)
                self.assertIn(str(LIMIT), answer.text)
        self.assert_well(broker)

    def test_before_it_is_sent(self) -> None:
        broker = self.shared_broker()
        connection = http.client.HTTPConnection("127.0.0.1", broker.port, timeout=TIMEOUT)
        self.addCleanup(connection.close)
        connection.putrequest("POST", "/RPC2")
        connection.putheader("Content-Length", str(10**12))
        connection.endheaders()
        self.assertEqual(connection.getresponse().status, 413)

    def test_in_chunks(self) -> None:
        broker = self.shared_broker()

        def chunks() -> Iterator[bytes]:
            for start in range(0, len(TOO_LARGE), 65536):
                yield TOO_LARGE[start : start + 65536]

        for path in ("/RPC2", "/rsscloud/ping"):
            with self.subTest(path):
                answer = request(f"{broker.url}{path}", "POST", chunks(), FORM)
                self.assertEqual(answer.status, 413)
        self.assert_well(broker)

    def test_chunks_within_the_limit(self) -> None:
        topic = self.origin().feed()
        url = f"{self.shared_broker().url}/rsscloud/ping"
        answer = request(url, "POST", iter([b"url=", topic.encode()]), FORM)
        self.assertIn('success="true"', answer.text)


CURL = shutil.which("curl")

if CURL is not None:  # each of these has a counterpart above that needs no curl

    class CurlTests(EndToEndTestCase):
        def curl(self, *arguments: object, stdin: bytes = b"") -> str:
            """What curl prints."""
            done = subprocess.run(
                [str(CURL), "--silent", "--show-error", "--noproxy", "*", *map(str, arguments)],
                input=stdin,
                capture_output=True,
                check=False,
                timeout=TIMEOUT,
            )
            self.assertEqual((done.returncode, done.stderr), (0, b""))
            return done.stdout.decode()

        def test_from_registration_to_notification(self) -> None:
            broker = self.shared_broker()
            origin, receiver = self.origin(), self.served(HttpPostReceiver())
            topic = origin.feed()
            form = f"notifyProcedure=&port={receiver.port}&path=/notify&protocol=http-post"
            said = self.curl("-d", f"{form}&url1={topic}", f"{broker.url}/rsscloud/pleaseNotify")
            self.assertIn('success="true"', said)
            receiver.heard.clear()
            origin.change(topic)
            said = self.curl(
                "-H", "Accept: application/json", "-d", f"url={topic}", f"{broker.url}/ping"
            )
            self.assertEqual(json.loads(said), {"success": True, "msg": "Thanks for the ping."})
            self.assert_told(receiver, topic)

        def test_a_file_as_xmlrpc(self) -> None:
            call = b"<methodCall><methodName>rssCloud.hello</methodName></methodCall>"
            url = f"{self.shared_broker().url}/RPC2"
            # Its Content-Type says that it is a form.
            self.assertIn("<boolean>1</boolean>", self.curl("--data-binary", "@-", url, stdin=call))

        def test_large_bodies(self) -> None:
            url = f"{self.shared_broker().url}/RPC2"
            status = ("-o", "/dev/null", "-w", "%{http_code}")
            for how in (["--data-binary", "@-"], ["-T", "-", "-X", "POST"]):
                with self.subTest(how):
                    # A call may carry a whole feed, written as text in XML.
                    self.assertEqual(self.curl(*status, *how, url, stdin=100 * TOO_LARGE), "413")

        def test_change_list(self) -> None:
            url = f"{self.shared_broker().url}/changes.xml"
            until(lambda: request(url).status == 200, "the first change list")
            self.assertIn("</weblogUpdates>", self.curl("--compressed", url))
