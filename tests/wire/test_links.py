from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.wire import links as codec

#: The links of a ResourceSync source, in one header of three lines.
OF_A_SOURCE = (
    '<http://example.com/dataset1/framework/> ; rel="self",'
    ' <http://hub.example.com/pubsubhubbub/> ; rel="hub", '
    ' <http://www.example.com/dataset1/capabilitylist.xml> ; rel="resourcesync"'
)

characters = st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters='<>"\\')


class ParseTests(SynchronousTestCase):
    def test_of_a_source(self) -> None:
        topic, hub = (
            "http://example.com/dataset1/framework/",
            "http://hub.example.com/pubsubhubbub/",
        )
        lists = codec.WebLink(
            "http://www.example.com/dataset1/capabilitylist.xml", ("resourcesync",)
        )
        expected = [codec.WebLink(topic, ("self",)), codec.WebLink(hub, ("hub",)), lists]
        self.assertEqual(codec.parse(OF_A_SOURCE), expected)

    def test_forms(self) -> None:
        for value, links in {
            "": [],
            " , ,": [],
            "<a>;rel=hub": [codec.WebLink("a", ("hub",))],
            "< a >\t;\trel = HUB": [codec.WebLink("a", ("hub",))],
            '<a>; rel="self hub"': [codec.WebLink("a", ("self", "hub"))],
            '<a>; title="x, <y>; \\"z"; rel=hub,<b>;rel=self': [
                codec.WebLink("a", ("hub",)),
                codec.WebLink("b", ("self",)),
            ],
            "<a>; rel=hub; rel=self": [codec.WebLink("a", ("hub",))],
            "<a>; rel=hub; flag;": [codec.WebLink("a", ("hub",))],
            "<a>; title*=UTF-8''x%20y; rel=hub": [codec.WebLink("a", ("hub",))],
            "<>; rel=self": [codec.WebLink("", ("self",))],
            '<a>; rel="http://example.com/rel"': [codec.WebLink("a", ("http://example.com/rel",))],
            "<a,b;c>; rel=self, , ": [codec.WebLink("a,b;c", ("self",))],
        }.items():
            self.assertEqual(codec.parse(value), links)

    def test_links_of_others_and_without_a_relation_are_left_out(self) -> None:
        self.assertEqual(codec.parse('<a>; rel=hub; anchor="#x", <b>, <c>; rel=""'), [])

    def test_malformed(self) -> None:
        for value, text in {
            "http://example.com/; rel=self": "a link begins with its URL in angle brackets",
            "<http://example.com/": "a link begins with its URL in angle brackets",
            "<a> rel=self": "parameters are written as ;name=value",
            '<a>; rel="self': "parameters are written as ;name=value",
            "<a>; rel=self <b>; rel=hub": "parameters are written as ;name=value",
            "<a>; r\xe9l=self": "visible ASCII",
            "<a>; rel=self\n": "visible ASCII",
        }.items():
            self.assertIn(text, str(self.assertRaises(codec.MalformedLink, codec.parse, value)))

    @given(st.text(st.characters(max_codepoint=0x7F)))
    def test_anything(self, value: str) -> None:
        try:
            links = codec.parse(value)
        except codec.MalformedLink as error:
            self.assertTrue(str(error))
        else:
            self.assertTrue(all(link.relations for link in links))


class TargetsTests(SynchronousTestCase):
    def test_each_once_and_in_order(self) -> None:
        links = codec.parse("<b>; rel=hub, <a>; rel=hub, <b>; rel=hub, <c>; rel=self")
        self.assertEqual(codec.targets(links, "hub"), ["b", "a"])
        self.assertEqual(codec.targets(links, "self"), ["c"])
        self.assertEqual(codec.targets(links, "up"), [])


class EncodeTests(SynchronousTestCase):
    @given(st.lists(st.tuples(st.text(characters), st.sampled_from(["hub", "self", "up"]))))
    def test_round_trip(self, links: list[tuple[str, str]]) -> None:
        expected = [codec.WebLink(target, (relation,)) for target, relation in links]
        self.assertEqual(codec.parse(codec.encode(links)), expected)

    def test_what_cannot_stand_in_a_header(self) -> None:
        self.assertEqual(
            codec.encode([('http://x/>, <evil>; rel="hub"\r\nX: ü', "self")]),
            '<http://x/%3E,%20%3Cevil%3E;%20rel=%22hub%22%0D%0AX:%20%C3%BC>; rel="self"',
        )

    def test_hub_and_self(self) -> None:
        self.assertEqual(
            codec.hub_and_self("http://broker.example", "/changes.xml"),
            '<http://broker.example/websub>; rel="hub", '
            '<http://broker.example/changes.xml>; rel="self"',
        )


class IsAbsoluteTests(SynchronousTestCase):
    def test_urls(self) -> None:
        for url in ("http://example.com", "https://example.com:8443/a?b=c", "http://[::1]/"):
            self.assertTrue(codec.is_absolute(url), url)
        for url in (
            *("", "/a", "//example.com/a", "ftp://example.com/", "http:///a", "http://:80/"),
            *("http://example.com:99999/", "http://[::1/", "urn:isbn:1"),
            *(f"http://example.com/{end}" for end in ("a b", "\n", "<")),
        ):
            self.assertFalse(codec.is_absolute(url), url)
