"""Pings of weblogs by every interface: how they are stored, and which topics are fetched."""

from __future__ import annotations

import xmlrpc.client
from base64 import b64encode

from rsscloud_broker.front_doors.ping_sink import PingSinkOptions
from rsscloud_broker.model import Ping
from tests.front_doors.exchange import Answer, envelope, shown_exchange
from tests.front_doors.fixture import FEED, HOME, NOON, PUBLIC_URL, House, HouseTestCase

NAME = "A site"
TAGS = ("a", "b")
THANKS = {"flerror": False, "message": "Thanks for the ping."}
PATHS = (
    *("/", "/RPC2", "/rpc2", "/RPC", "/rpc", "/rpc/ping", "/ping/RPC2", "/ping", "/ping/"),
    *("/xmlrpc.php", "/weblogUpdates"),
)


class _PingTests(HouseTestCase):
    def assert_stored(self, *expected: Ping) -> None:
        stored = [(p.name, p.url, p.changes_url, p.rss_url, p.tags) for p in self.house.pings()]
        wanted = [(p.name, p.url, p.changes_url, p.rss_url, p.tags) for p in expected]
        self.assertEqual(stored, wanted)

    def fresh(self) -> House:
        """Make a house without pings."""
        self.house = House(self)
        return self.house


class XMLRPCTests(_PingTests):
    def test_procedures(self) -> None:
        """Which parameters they have is in the tests of the codec."""
        for method, values, ping in (
            ("ping", [NAME, HOME], Ping(NAME, HOME, NOON)),
            ("extendedPing", [NAME, HOME, "", FEED, "a|b"], Ping(NAME, HOME, NOON, "", FEED, TAGS)),
            ("rssUpdate", [NAME, FEED], Ping(NAME, FEED, NOON, "", FEED)),
        ):
            self.assertEqual(self.fresh().xmlrpc(f"weblogUpdates.{method}", *values), THANKS)
            self.assert_stored(ping)
            self.assertEqual(self.house.pings()[0].received_at, NOON)

    def test_every_path_whatever_the_content_type(self) -> None:
        kinds = ("text/xml", "text/plain", "application/x-www-form-urlencoded", "x", None)
        for path in PATHS:
            for kind in kinds:
                name = f"{path} {kind}"
                document = xmlrpc.client.dumps((name, HOME), "weblogUpdates.ping").encode()
                headers = {"Content-Type": kind} if kind is not None else {}
                answer = self.house.ask("POST", path, document, headers)
                self.assertEqual(answer.status, 200)
                self.assertEqual(xmlrpc.client.loads(answer.body), ((THANKS,), None))
        self.assertEqual(len(self.house.pings()), len(PATHS) * len(kinds))

    def test_the_same_ping_within_the_window_is_kept_once(self) -> None:
        ask = self.house.xmlrpc
        self.assertEqual(ask("weblogUpdates.ping", NAME, HOME), THANKS)
        self.house.clock.advance(59)
        self.assertEqual(ask("weblogUpdates.ping", NAME, HOME), THANKS)
        self.assertEqual(len(self.house.pings()), 1)
        ask("weblogUpdates.ping", "Another name", HOME)
        ask("weblogUpdates.extendedPing", NAME, HOME, FEED)
        self.assertEqual(len(self.house.pings()), 3)
        self.house.clock.advance(1)
        self.assertEqual(ask("weblogUpdates.ping", NAME, HOME), THANKS)
        self.assertEqual(len(self.house.pings()), 4)

    def test_no_window(self) -> None:
        self.house = House(self, options={"ping_sink": PingSinkOptions(repeat_window=0)})
        for _ in range(3):
            self.house.xmlrpc("weblogUpdates.ping", NAME, HOME)
        self.assertEqual(len(self.house.pings()), 3)


class SoapTests(_PingTests):
    def test_ping(self) -> None:
        members = {"weblogname": NAME, "weblogurl": HOME}
        for action in ('"/weblogUpdates"', "/weblogUpdates", '""', None):
            for namespace in ("", "urn:weblogs"):
                answer = self.house.soap("ping", members, action=action, namespace=namespace)
                self.assertEqual(self.house.result(answer), THANKS)
        self.assert_stored(Ping(NAME, HOME, NOON))

    def test_extended_ping(self) -> None:
        members = {"weblogname": NAME, "weblogurl": HOME, "changesurl": f"{HOME}today"}
        members |= {"rssurl": FEED, "tags": "a|b"}
        answer = self.house.soap("extendedPing", members)
        self.assertEqual(self.house.result(answer), THANKS)
        self.assert_stored(Ping(NAME, HOME, NOON, f"{HOME}today", FEED, TAGS))

    def test_names_that_are_not_typed_as_strings(self) -> None:
        """Perl's clients send numbers as int, and text that is not ASCII as base64."""
        document = envelope("ping", {"weblogname": "NAME", "weblogurl": HOME})
        string = b'<weblogname xsi:type="xsd:string">NAME<'
        self.assertIn(string, document)
        for kind, text in (
            (b"int", b"7"),
            (b"base64Binary", b64encode("Zoë".encode())),
            (b"base64", b64encode("“Zoë”".encode("windows-1252"))),
        ):
            typed = b'<weblogname xsi:type="xsd:%b">%b<' % (kind, text)
            self.house.ask("POST", "/weblogUpdates", document.replace(string, typed))
        self.assert_stored(*(Ping(name, HOME, NOON) for name in ("7", "Zoë", "“Zoë”")))


class PageTests(_PingTests):
    def assert_thanks(self, answer: Answer) -> None:
        self.assertEqual((answer.status, answer.headers.get_content_type()), (200, "text/html"))
        self.assertIn("Thanks for the ping.", answer.text)

    def test_pages(self) -> None:
        site, page = {"name": NAME, "url": HOME}, f"{HOME}x"
        # The form of Ping-O-Matic has other names for the same fields.
        matic = {"title": NAME, "blogurl": HOME, "rssurl": FEED, "chk_weblogscom": "on"}
        table: list[tuple[str, dict[str, str], Ping]] = [
            ("/pingSiteForm", site, Ping(NAME, HOME, NOON)),
            ("/pingSiteForm", {**site, "changesURL": page}, Ping(NAME, HOME, NOON, page)),
            ("/ping", {"url": HOME}, Ping(HOME, HOME, NOON)),
            ("/ping/", {"url": HOME}, Ping(HOME, HOME, NOON)),
            ("/ping", {"url": HOME, "name": NAME}, Ping(NAME, HOME, NOON)),
            ("/ping", {"url": HOME, "name": " "}, Ping(HOME, HOME, NOON)),
            ("/ping", matic, Ping(NAME, HOME, NOON, rss_url=FEED)),
            ("/ping/", matic, Ping(NAME, HOME, NOON, rss_url=FEED)),
            ("/rss/ping", {"u": FEED}, Ping(FEED, FEED, NOON, "", FEED)),
            ("/c", {"p": "ping", "url": HOME}, Ping(HOME, HOME, NOON)),
            ("/fb/a/pingSubmit", {"bloglink": HOME}, Ping(HOME, HOME, NOON)),
            ("/", site, Ping(NAME, HOME, NOON)),
            ("/", {**site, "rssUrl": FEED, "checkUrl": page}, Ping(NAME, HOME, NOON, page, FEED)),
        ]
        for path, fields, ping in table:
            self.assert_thanks(self.fresh().get(path, **fields))
            self.assert_stored(ping)
            if path in {"/ping", "/ping/"} and set(fields) == {"url"}:
                continue  # by POST this is an rssCloud ping
            self.assert_thanks(self.fresh().form(path, fields))
            self.assert_stored(ping)

    def test_refusals(self) -> None:
        empty, scheme = "the weblog name must not be empty", "the URL must begin with http://"
        table = [
            ("/pingSiteForm", {"url": HOME}, empty),
            ("/pingSiteForm", {"name": NAME}, scheme),
            ("/ping", {"url": "site.example", "name": NAME}, scheme),
            ("/rss/ping", {"u": "javascript:alert(1)"}, scheme),
            ("/rss/ping", {"x": "y"}, scheme),
            ("/c", {"p": "ping"}, scheme),
            ("/fb/a/pingSubmit", {"bloglink": "site.example"}, scheme),
            ("/", {"url": HOME}, empty),
        ]
        for path, fields, reason in table:
            for answer in (self.house.get(path, **fields), self.house.form(path, fields)):
                self.assertEqual(answer.headers.get_content_type(), "text/html")
                self.assertEqual(answer.status, 400, path)
                self.assertIn(f"Can't accept the ping because {reason}", answer.text)
                self.assertNotIn("Thanks", answer.text)
        self.assert_stored()

    def test_the_exchange_of_a_program(self) -> None:
        """The page shows the ping as an XML-RPC call, and the answer that this call gets."""
        table: list[tuple[dict[str, str], int]] = [
            ({"name": "It's <mine> & yours", "url": HOME}, 200),
            ({"name": NAME, "url": HOME, "rssUrl": FEED}, 200),
            ({"name": NAME, "url": "javascript:alert(1)"}, 400),
        ]
        for fields, status in table:
            answer = self.fresh().form("/pingSiteForm", fields)
            page = answer.page(status)
            request, shown, words = shown_exchange(page)
            head, _, body = request.partition("\n\n")
            self.assertIn("POST /RPC2 HTTP/1.1", head)
            got = self.fresh().ask("POST", "/RPC2", body.encode(), {"Content-Type": "text/xml"})
            self.assertEqual(shown.partition("\n\n")[2], got.text)
            self.assertIn("Content-Type: text/xml; charset=utf-8", shown)
            url, _, kind, _, document = words[1:]
            self.assertEqual((url, kind), (f"{PUBLIC_URL}/RPC2", "Content-Type: text/xml"))
            self.assertEqual(document, body)

    def test_the_form(self) -> None:
        for path in ("/pingSiteForm", "/pingSiteForm?from=elsewhere"):
            answer = self.house.get(path)
            self.assertEqual((answer.status, answer.headers.get_content_type()), (200, "text/html"))
            self.assertIn('action="/pingSiteForm"', answer.text)
            for name in ("name", "url", "rssUrl"):
                self.assertIn(f'name="{name}"', answer.text)

    def test_old_encodings(self) -> None:
        """Programs send what is not percent-encoded if people write such a URL into them."""
        plain = f"/?name=Café+€&url={HOME}"
        for target in (
            f"/?name=Caf%E9+%80&url={HOME}".encode(),
            plain.encode("utf-8"),
            plain.encode("windows-1252"),
        ):
            exchange = self.fresh().connect()
            exchange.send(b"GET %b HTTP/1.0\r\n\r\n" % target)
            self.assert_thanks(exchange.answer())
            self.assert_stored(Ping("Café €", HOME, NOON))

    def test_a_form_with_a_url_alone(self) -> None:
        """It is an rssCloud ping, if the rssCloud front door runs."""
        answer = self.house.form("/ping", {"url": FEED})
        self.assertEqual(answer.xml.get("msg"), "Thanks for the ping.")
        self.house = House(self, doors=frozenset({"ping_sink"}))
        self.assert_thanks(self.house.form("/ping", {"url": FEED}))
        self.assert_stored(Ping(FEED, FEED, NOON))
