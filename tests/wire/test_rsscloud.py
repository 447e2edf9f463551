"""The codec of rssCloud on its own; tests of whole calls are in tests/front_doors."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.model import Callback, Intent
from rsscloud_broker.wire.rsscloud import (
    MAX_TOPICS,
    BadRegistration,
    callback_failed,
    check_count,
    distinct,
    fields_from_parameters,
    fields_from_values,
    intents_of,
    limited,
    result_document,
    topics_of_form,
    unreadable,
)
from rsscloud_broker.wire.web_address import MAX_URL
from tests import examples

FEED = "http://feeds.example/rss.xml"
PROTOCOLS = frozenset({"http-post", "https-post", "xml-rpc", "soap"})
FIELDS = {"port": "80", "path": "/n", "protocol": "http-post"}


class RegistrationTests(SynchronousTestCase):
    def intent(self, caller: str = "192.0.2.7", **fields: str) -> Intent:
        """The intent of a registration for the feed alone."""
        (found,) = intents_of({**FIELDS, **fields}, [FEED], caller, PROTOCOLS)
        return found

    def test_intents(self) -> None:
        found = intents_of({**FIELDS, "domain": "r.example"}, [FEED, "x"], "::1", PROTOCOLS)
        callback = Callback("http://r.example:80/n", "http-post")
        expected = [Intent(topic, callback, 90_000, True, "::1") for topic in (FEED, "x")]
        self.assertEqual(found, expected)

    def test_callback_urls(self) -> None:
        """The URL of a callback, by the caller's address and the fields; a domain is challenged."""
        for caller, fields, url in (
            ("2001:db8::7", {}, "http://[2001:db8::7]:80/n"),
            ("::ffff:192.0.2.9", {}, "http://192.0.2.9:80/n"),
            ("::ffff:c000:209", {}, "http://192.0.2.9:80/n"),
            ("192.0.2.7", {"path": "notify"}, "http://192.0.2.7:80/notify"),
            ("192.0.2.7", {"path": "/n?feed=1"}, "http://192.0.2.7:80/n?feed=1"),
            ("192.0.2.7", {"port": " 1 "}, "http://192.0.2.7:1/n"),
            ("192.0.2.7", {"port": "00080"}, "http://192.0.2.7:80/n"),
            ("192.0.2.7", {"port": "65535"}, "http://192.0.2.7:65535/n"),
            ("192.0.2.7", {"domain": " \t"}, "http://192.0.2.7:80/n"),
            ("192.0.2.7", {"domain": "http://r.example/"}, "http://r.example:80/n"),
            ("192.0.2.7", {"domain": "[2001:db8::8]"}, "http://[2001:db8::8]:80/n"),
            ("192.0.2.7", {"domain": "2001:db8::8"}, "http://[2001:db8::8]:80/n"),
            ("192.0.2.7", {"domain": "::FFFF:192.0.2.9"}, "http://192.0.2.9:80/n"),
        ):
            found = self.intent(caller, **fields)
            self.assertEqual(found.callback.url, url)
            self.assertEqual(found.challenge, bool(fields.get("domain", "").strip()), fields)

    def test_refusals(self) -> None:
        """Clients compare some of these sentences."""
        missing = "The following parameters were missing from the request body: "
        protocol = "Can't accept the subscription because the protocol, <i>{}</i>, is unsupported."
        port = "The port must be a number from 1 to 65535, not {!r}."
        domain = "The domain must be a host name or an address and nothing more, not {!r}."
        procedure = (
            "The notifyProcedure must be a name of letters, digits and _ . - / :, "
            "whose last part begins with a letter, not {!r}."
        )
        ports = ("0", "65536", "-1", "80a", "8 0", "٣", "9" * 5000)
        domains = ("a b", "user@r.example", "r.example/x", "r.example:80", "a\\b?", "x#y")
        for name, values, others, sentence in (
            ("path", (" ",), {"protocol": ""}, f"{missing}path, protocol."),
            ("protocol", ("gopher", "HTTP-POST", "<i>"), {}, protocol),
            ("port", ports, {}, port),
            ("domain", domains, {}, domain),
            (
                *("domain", ("ftp://r.example",), {}),
                "The domain must be called by http or https, not by 'ftp'.",
            ),
            ("notifyProcedure", ("",), {"protocol": "soap"}, f"{missing}notifyProcedure."),
            ("notifyProcedure", ("a b", "1"), {"protocol": "xml-rpc"}, procedure),
            ("notifyProcedure", ("r.<x>", "a²", "x" * 256), {"protocol": "soap"}, procedure),
        ):
            for value in values:
                error = self.assertRaises(BadRegistration, self.intent, **{**others, name: value})
                self.assertEqual(str(error), sentence.format(value[:80]))

    def test_own_address_as_the_domain(self) -> None:
        """A server that is called by XML-RPC or SOAP may name the address that it calls from."""
        for caller, own, other in (
            ("192.0.2.1", ("192.0.2.1", "http://192.0.2.1/", "::ffff:192.0.2.1"), "192.0.2.10"),
            ("::ffff:192.0.2.1", ("192.0.2.1",), "[::1]"),
            ("2001:db8::7", ("[2001:DB8:0::7]", "2001:db8::7"), "2001:db8::8"),
            ("", (), "192.0.2.1"),
        ):
            for protocol in sorted(PROTOCOLS):
                for domain in (*own, other, "r.example"):
                    fields = {"protocol": protocol, "notifyProcedure": "n", "domain": domain}
                    found = self.intent(caller, **fields)
                    is_called = protocol in {"xml-rpc", "soap"} and domain in own
                    self.assertEqual(found.challenge, not is_called, (protocol, domain))

    def test_procedures(self) -> None:
        for procedure in ("notify", "river.notify", "a/b:c.d-e_1", "_", "1.x", "x" * 255):
            found = self.intent(protocol="xml-rpc", notifyProcedure=procedure)
            self.assertEqual(found.callback.procedure, procedure)
        self.assertEqual(self.intent(notifyProcedure="n").callback.procedure, "", "it has none")

    def test_secure(self) -> None:
        for protocol in sorted(PROTOCOLS):
            for port in ("80", "443"):
                for scheme in ("", "http://", "https://", "HTTPS://"):
                    fields = {"port": port, "protocol": protocol, "notifyProcedure": "n"}
                    url = self.intent(domain=f"{scheme}r.example", **fields).callback.url
                    secure = "https-post" in protocol or port == "443" or "s" in scheme.lower()
                    self.assertEqual(url, f"http{'s' * secure}://r.example:{port}/n")

    @settings(max_examples=examples(100))
    @given(
        st.fixed_dictionaries(
            {
                "port": st.sampled_from(["80", "443"]) | st.text(max_size=6),
                "path": st.text(max_size=20),
                "protocol": st.sampled_from(sorted(PROTOCOLS)),
                "domain": st.text(max_size=20),
                "notifyProcedure": st.text(max_size=20),
            }
        )
    )
    def test_a_callback_is_where_it_says(self, fields: dict[str, str]) -> None:
        """Whatever the other fields are, the callback's host is the one in the domain."""
        try:
            (found,) = intents_of(fields, [FEED], "192.0.2.1", PROTOCOLS)
        except BadRegistration as error:
            self.assertTrue(str(error))
            return
        try:
            parts = urlsplit(found.callback.url)
        except ValueError:  # not a valid host; the guard refuses it later
            return
        self.assertEqual((parts.username, parts.password), (None, None))
        if not found.challenge:
            self.assertEqual(parts.hostname, "192.0.2.1")


class TopicsTests(SynchronousTestCase):
    def test_order_of_a_form(self) -> None:
        form = [
            ("url10", "d"),
            ("port", "x"),
            ("url2", "b"),
            ("url2", "c"),
            ("url", "a"),
            ("u", ""),
        ]
        self.assertEqual(topics_of_form(form), ["a", "b", "c", "d"])

    def test_numbers_that_are_none(self) -> None:
        form = [(f"url{n}", n) for n in ("٣", "9" * 5000, "-1", "1e3", "x")]
        self.assertEqual(len(topics_of_form(form)), 5)

    def test_distinct(self) -> None:
        self.assertEqual(distinct(["b", " a ", "", "b", "\n", "a"]), ("b", "a"))
        distinct([str(n) for n in range(MAX_TOPICS)] * 2)
        self.assertRaises(BadRegistration, distinct, map(str, range(MAX_TOPICS + 1)))

    def test_long_urls(self) -> None:
        distinct(["x" * MAX_URL])
        self.assertRaises(BadRegistration, distinct, [FEED, "x" * (MAX_URL + 1)])
        fits = MAX_URL - len("http://[::1]:80/")
        (found,) = intents_of({**FIELDS, "path": "x" * fits}, [FEED], "::1", PROTOCOLS)
        self.assertEqual(len(found.callback.url), MAX_URL)
        longer = {**FIELDS, "path": "x" * (fits + 1)}
        error = self.assertRaises(BadRegistration, intents_of, longer, [FEED], "::1", PROTOCOLS)
        self.assertEqual(str(error), "The URL of a callback may have at most 2048 characters.")


class ParametersTests(SynchronousTestCase):
    def test_parameters(self) -> None:
        values = ["n", 80, "/n", "soap", [FEED], "r.example"]
        fields, topics = fields_from_parameters("pleaseNotify", values)
        self.assertEqual(list(fields.values()), ["n", "80", "/n", "soap", "r.example"])
        self.assertEqual(topics, [FEED])

    def test_wrong_types(self) -> None:
        for name, value in (
            *(("notifyProcedure", []), ("port", True), ("path", [7]), ("protocol", {"a": "b"})),
            *(("urlList", True), ("urlList", [FEED, True]), ("domain", {"a": "b"})),
        ):
            error = self.assertRaises(BadRegistration, fields_from_values, {name: value})
            self.assertIn(f"The parameter {name} must be", str(error))
        self.assertEqual(fields_from_values({"notifyProcedure": False})[0]["notifyProcedure"], "")

    def test_lists_of_topics(self) -> None:
        table: list[tuple[Any, list[str]]] = [
            *((FEED, [FEED]), ([FEED, "x"], [FEED, "x"]), ({"1": FEED, "2": "x"}, [FEED, "x"])),
            *((None, []), ("", []), ([], []), (FEED.encode(), [FEED]), (["x", 5], ["x", "5"])),
        ]
        for value, topics in table:
            self.assertEqual(fields_from_values({"urlList": value})[1], topics)
        for value in ([[FEED]], {"url": [FEED]}):
            self.assertRaises(BadRegistration, fields_from_values, {"urlList": value})

    def test_counts(self) -> None:
        for values, problem in ((), "aren't enough"), (("a", "b"), "are too many"):
            error = self.assertRaises(BadRegistration, check_count, "ping", values, 1, 1)
            sentence = f'Can\'t call "ping" because there {problem} parameters.'
            self.assertEqual(str(error), sentence)
        check_count("ping", ["x"], 1, 1)


class AnswersTests(SynchronousTestCase):
    def test_result_document(self) -> None:
        self.assertEqual(
            result_document("result", success=True, msg="Thanks for the ping."),
            b'<?xml version="1.0" encoding="UTF-8"?>\n'
            b'<result success="true" msg="Thanks for the ping."/>\n',
        )

    def test_rules_follow_the_sentences_that_clients_match(self) -> None:
        for plain, with_rule in (
            (unreadable("ping", FEED), unreadable("ping", FEED, "it is private")),
            (callback_failed(), callback_failed("it is private")),
        ):
            self.assertEqual(with_rule, f"{plain} (it is private)")

    def test_limited(self) -> None:
        self.assertEqual(
            limited("subscription", "there were 5 of them", 7),
            "The subscription was not accepted because there were 5 of them. "
            "Try again in 7 seconds.",
        )

    @given(
        st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"))
    )
    def test_any_message_fits(self, msg: str) -> None:
        document = result_document("notifyResult", success=False, msg=msg, reason=f"{msg}--{msg}-")
        root = etree.fromstring(document)
        self.assertEqual((root.get("success"), root.get("msg")), ("false", msg))
