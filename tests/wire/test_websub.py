"""WebSub: requests to a hub, calls to a callback, signatures and links."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.wire import links, websub
from rsscloud_broker.wire.web_address import MAX_URL
from rsscloud_broker.wire.websub import BadRequest, HubCall, HubRequest, parse_call, parse_request

TOPIC = "http://feeds.example/rss.xml"
CALLBACK = "http://reader.example/websub/8f31?a=1"
SUBSCRIBE = {"hub.mode": "subscribe", "hub.topic": TOPIC, "hub.callback": CALLBACK}

#: Any text that a form can carry.
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=100)
#: Such texts, and bytes that are not UTF-8.
ANYTHING = st.text(st.characters(codec=None, exclude_categories=()), max_size=100)


def parsed(fields: dict[str, str], *more: tuple[str, str]) -> HubRequest:
    return parse_request([*fields.items(), *more])


class RequestTests(SynchronousTestCase):
    """WebSub, section 5.1: subscription requests; section 6: publishing."""

    def complaint(self, fields: dict[str, str], *more: tuple[str, str]) -> str:
        return str(self.assertRaises(BadRequest, parsed, fields, *more))

    def test_subscription(self) -> None:
        """5.1: callback, mode and topic are enough."""
        expected = HubRequest("subscribe", callback=CALLBACK, topic=TOPIC)
        self.assertEqual(parsed(SUBSCRIBE), expected)
        self.assertEqual(expected.options, {})
        ended = parsed(SUBSCRIBE | {"hub.mode": "unsubscribe"})
        self.assertEqual(ended, HubRequest("unsubscribe", callback=CALLBACK, topic=TOPIC))

    def test_everything(self) -> None:
        fields = SUBSCRIBE | {"hub.secret": "sesamé", "hub.lease_seconds": "0600"}
        verify = ("hub.verify", "sync"), ("hub.verify", "async")
        asked = parsed(fields, *verify, ("hub.verify_token", "t"))
        self.assertEqual((asked.secret, asked.lease_seconds), ("sesamé", 600))
        self.assertEqual(asked.verify, ("sync", "async"))
        options = {websub.SECRET: "sesamé", websub.VERIFY_TOKEN: "t", websub.METHOD: "sha1"}
        self.assertEqual(asked.options, options)
        for secret in ("sesamé", "token='"):
            self.assertNotIn(secret, repr(asked))

    def test_unknown_parameters_are_ignored(self) -> None:
        """5.1.1: hubs ignore unknown fields, however often they come."""
        more = [
            *(("hub.x", "1"), ("hub.x", "2"), ("url", "3"), ("", "")),
            *(("nul", "\0"), ("hub.nul", "\0"), ("hub.bytes", "\udcff")),
        ]
        self.assertEqual(parsed(SUBSCRIBE, *more), parsed(SUBSCRIBE))

    def test_empty_is_as_good_as_none(self) -> None:
        names = ("hub.secret", "hub.lease_seconds", "hub.verify", "hub.verify_token")
        self.assertEqual(parsed(SUBSCRIBE, *((name, "") for name in names)), parsed(SUBSCRIBE))

    def test_modes(self) -> None:
        modes = "one of subscribe, unsubscribe and publish."
        self.assertEqual(self.complaint({}), f"hub.mode is missing: send {modes}")
        said = self.complaint({"hub.mode": "Retrieve\n"})
        self.assertEqual(said, f"hub.mode is 'Retrieve': it must be {modes}")

    def test_topics(self) -> None:
        self.assertIn("hub.topic is missing", self.complaint(SUBSCRIBE | {"hub.topic": ""}))
        long = TOPIC + "x" * MAX_URL
        self.assertIn("2048 or fewer", self.complaint(SUBSCRIBE | {"hub.topic": long}))

    def test_callbacks(self) -> None:
        """5.1: the callback is an absolute URL without a fragment; it keeps its query."""
        for callback, reason in (
            ("", "hub.callback is missing"),
            *((url, "absolute") for url in ("/websub", "//reader.example/", "reader.example/")),
            *(
                (url, "absolute")
                for url in ("http:///a", "ftp://a.example/", "javascript:alert(1)")
            ),
            ("http://[::1/", "absolute"),
            ("http://reader.example/#a", "fragment"),
            ("http://reader.example/#", "fragment"),
            ("http://reader.example/" + "x" * 2048, "2048 or fewer"),
            ("http://reader.example/\0", "NUL"),
        ):
            reply = self.complaint(SUBSCRIBE | {"hub.callback": callback})
            self.assertIn("hub.callback", reply)
            self.assertIn(reason, reply, callback)
        for callback in ("HTTPS://reader.example", CALLBACK, "http://[2001:db8::1]:8080/?a=b&c"):
            self.assertEqual(parsed(SUBSCRIBE | {"hub.callback": callback}).callback, callback)

    def test_secrets(self) -> None:
        """5.1: a secret has fewer than 200 bytes (not characters)."""
        for secret in ("x" * 199, "é" * 99):
            self.assertEqual(parsed(SUBSCRIBE | {"hub.secret": secret}).secret, secret)
        for secret in ("x" * 200, "é" * 100):
            reply = self.complaint(SUBSCRIBE | {"hub.secret": secret})
            self.assertEqual(reply, "hub.secret has 200 bytes: it must have fewer than 200.")
        self.assertIn("NUL", self.complaint(SUBSCRIBE | {"hub.secret": "a\0b"}))

    def test_bytes_that_are_not_utf8(self) -> None:
        """5.1: a value that cannot be stored unchanged is refused."""
        sentence = "{} is not UTF-8: write it in UTF-8, then percent-encode that."
        for name in ("hub.mode", *SUBSCRIBE, "hub.secret", "hub.verify_token"):
            said = self.complaint(SUBSCRIBE | {name: "\udc80\udc81"})
            self.assertEqual(said, sentence.format(name))
        for name in ("hub.url", "hub.topic"):
            reply = self.complaint({"hub.mode": "publish", name: f"{TOPIC}?\udce9"})
            self.assertEqual(reply, sentence.format(name))

    def test_leases(self) -> None:
        """5.1: a lease is a positive decimal number."""
        for text, seconds in (("0", 0), ("864000", 864_000), ("9" * 5000, 10**12)):
            self.assertEqual(parsed(SUBSCRIBE | {"hub.lease_seconds": text}).lease_seconds, seconds)
        for text in ("-1", "1.5", "1e3", "ten", " 5", "٣", "²"):
            reply = self.complaint(SUBSCRIBE | {"hub.lease_seconds": text})
            self.assertIn("decimal digits", reply, text)

    def test_the_lease_of_an_unsubscription_is_ignored(self) -> None:
        """5.1: the lease has no meaning for an unsubscription."""
        ended = SUBSCRIBE | {"hub.mode": "unsubscribe"}
        for lease in ("ten", "\0"):
            self.assertEqual(parsed(ended | {"hub.lease_seconds": lease}), parsed(ended))

    def test_single_values(self) -> None:
        for name in ("hub.mode", "hub.topic", "hub.callback", "hub.secret", "hub.lease_seconds"):
            reply = self.complaint(SUBSCRIBE, (name, "1"), (name, "1"))
            self.assertRegex(reply, rf"^{name} came [23] times: send it once\.$")

    def test_verification_modes(self) -> None:
        """PubSubHubbub 0.3, section 6.1: hub.verify is a list, the preferred word first."""
        for values, verify in (
            (["async"], ("async",)),
            (["async", "sync"], ("async", "sync")),
            (["Sync, ASYNC", "sync"], ("sync", "async")),
            (["later"], ()),
        ):
            fields = [("hub.verify", value) for value in values]
            self.assertEqual(parsed(SUBSCRIBE, *fields).verify, verify)

    def test_publishing(self) -> None:
        """Section 6, and PubSubHubbub 0.3, section 7.1: one URL or several."""
        urls = (TOPIC, "http://b.example/", "http://c.example/")
        more = ("hub.url", urls[1]), ("hub.topic", urls[2]), ("hub.topic", TOPIC)
        asked = parsed({"hub.mode": "publish", "hub.url": TOPIC}, *more)
        self.assertEqual(asked, HubRequest("publish", urls=urls))
        reply = self.complaint({"hub.mode": "publish", "hub.url": ""})
        self.assertIn("send hub.url", reply)

    @given(st.lists(st.tuples(st.sampled_from([*SUBSCRIBE, "hub.secret", "hub.url"]), ANYTHING)))
    def test_whatever_comes(self, fields: list[tuple[str, str]]) -> None:
        try:
            asked = parse_request(fields)
        except BadRequest as error:
            self.assertTrue(str(error).endswith("."), error)
            self.assertTrue(str(error).isprintable(), error)
        else:
            self.assertIn(asked.mode, {"subscribe", "unsubscribe", "publish"})


class CallbackTests(SynchronousTestCase):
    """WebSub, sections 5.2 and 5.3: the hub's GET requests to a callback."""

    def test_queries_are_appended(self) -> None:
        """5.1: new parameters come after those of the callback."""
        for url, made in (
            ("http://a.example", "http://a.example?hub.mode=x%20y"),
            ("http://a.example/p", "http://a.example/p?hub.mode=x%20y"),
            ("http://a.example/p?", "http://a.example/p?hub.mode=x%20y"),
            ("http://a.example/p?a=%7e", "http://a.example/p?a=%7e&hub.mode=x%20y"),
            ("http://a.example/p?a&", "http://a.example/p?a&hub.mode=x%20y"),
            ("http://a.example/p?hub.mode=a", "http://a.example/p?hub.mode=a&hub.mode=x%20y"),
            ("http://a.example/p?a#f?g", "http://a.example/p?a&hub.mode=x%20y"),
        ):
            self.assertEqual(websub.with_query(url, {"hub.mode": "x y"}), made)

    def test_verification(self) -> None:
        url = websub.verification_url(CALLBACK, "subscribe", TOPIC, "x91", 600, "t")
        self.assertEqual(
            url,
            f"{CALLBACK}&hub.mode=subscribe&hub.topic=http%3A%2F%2Ffeeds.example%2Frss.xml"
            "&hub.challenge=x91&hub.lease_seconds=600&hub.verify_token=t",
        )
        self.assertNotIn("lease", websub.verification_url(CALLBACK, "unsubscribe", TOPIC, "x"))

    def test_denial(self) -> None:
        url = websub.denial_url(CALLBACK, TOPIC, "it is\r\ngone")
        self.assertEqual(dict(parse_qsl(urlsplit(url).query))["hub.reason"], "it is gone")

    @given(TEXTS.filter(bool), TEXTS.filter(bool), st.integers(0, 10**9))
    def test_there_and_back(self, topic: str, challenge: str, lease: int) -> None:
        url = websub.verification_url(CALLBACK, "subscribe", topic, challenge, lease)
        fields = parse_qsl(urlsplit(url).query, keep_blank_values=True)
        self.assertEqual(parse_call(fields), HubCall("subscribe", topic, challenge, lease))

    def test_calls(self) -> None:
        denied = [("hub.mode", "denied"), ("hub.topic", TOPIC), ("hub.reason", "no\x1b[2J")]
        self.assertEqual(parse_call(denied), HubCall("denied", TOPIC, reason="no[2J"))
        for fields in (
            [],
            [("hub.mode", "subscribe"), ("hub.topic", TOPIC)],
            [("hub.mode", "publish"), ("hub.topic", TOPIC), ("hub.challenge", "x")],
            [("hub.mode", "subscribe"), ("hub.challenge", "x")],
        ):
            self.assertRaises(BadRequest, parse_call, fields)


class SignatureTests(SynchronousTestCase):
    """WebSub, section 7.1: authenticated content distribution."""

    def test_known_values(self) -> None:
        """RFC 4231, test case 2; RFC 2202, test case 2."""
        body = b"what do ya want for nothing?"
        sha256 = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        self.assertEqual(websub.sign(body, "Jefe"), f"sha256={sha256}")
        sha1 = "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"
        self.assertEqual(websub.sign(body, "Jefe", "sha1"), f"sha1={sha1}")

    def test_checking(self) -> None:
        for method in websub.METHODS:
            signature = websub.sign(b"body", "sesame", method)
            self.assertTrue(websub.is_signed(signature, b"body", "sesame"))
            self.assertTrue(websub.is_signed(f" {signature.upper()}", b"body", "sesame"))
            self.assertFalse(websub.is_signed(signature, b"body2", "sesame"))
            self.assertFalse(websub.is_signed(signature, b"body", "Sesame"))
            self.assertFalse(websub.is_signed(signature[:-1], b"body", "sesame"))
        for signature in ("", "sha256", "sha256=", "md5=x", "é=é", "sha256=é"):
            self.assertFalse(websub.is_signed(signature, b"body", "sesame"), signature)


class LinkTests(SynchronousTestCase):
    """WebSub, section 7: the Link header of a notification."""

    def test_hub_and_topic(self) -> None:
        expected = f'<http://h.example/hub>; rel="hub", <{TOPIC}>; rel="self"'
        self.assertEqual(websub.link_header("http://h.example/hub", TOPIC), expected)

    def test_a_given_link_is_one_line(self) -> None:
        """A publisher's header may have tabs between parameters; they are not sent on."""
        given = '<http://p.example/>;\trel="self hub"\t'
        self.assertEqual(websub.link_header("", TOPIC, given), given.strip().replace("\t", " "))

    @given(TEXTS.filter(bool))
    def test_nothing_breaks_out(self, topic: str) -> None:
        value = websub.link_header("http://h.example/hub", f"http://t.example/{topic}")
        self.assertTrue(value.isascii() and value.isprintable(), value)
        relations = [link.relations for link in links.parse(value)]
        self.assertEqual(relations, [("hub",), ("self",)], value)

    @given(st.text('<>;=", \t\n\x00\x7f\x85\xa0\u2028relasf/\\'))
    def test_what_was_handed_in_is_one_line(self, given: str) -> None:
        for link in (given, f'</next>;rel=next;title="{given}"', f"</next>{given};rel=next"):
            value = websub.link_header("http://h.example/hub", TOPIC, link)
            self.assertTrue(value.isascii() and value.isprintable(), value)
            links.parse(value)
