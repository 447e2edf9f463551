from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from lxml import etree
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.wire.cloud import PROTOCOLS, Cloud, InvalidCloud, clouds_of, encode, from_url
from rsscloud_broker.wire.xml import MalformedXML

FEEDS = Path(__file__).parent.parent / "fixtures" / "feeds"


def feed_with(*elements: str) -> bytes:
    """A feed whose channel has these elements."""
    return (
        '<rss version="2.0" xmlns:source="http://source.scripting.com/"><channel>'
        f"<title>t</title>{''.join(elements)}</channel></rss>"
    ).encode()


class FeedTests(SynchronousTestCase):
    """The clouds of feeds as they are published."""

    def clouds(self, name: str) -> list[Cloud]:
        return clouds_of((FEEDS / name).read_bytes())

    def test_one_cloud(self) -> None:
        procedure = "xmlStorageSystem.rssPleaseNotify"
        train = Cloud("rpc.nighttrain.example.org", 5337, "/rsscloud/pleaseNotify", "", "http-post")
        for name, cloud in (
            ("rss20-cloud.xml", train),
            (
                "rss092-cloud.xml",
                Cloud("cloud.garden.example.com", 80, "/RPC2", procedure, "xml-rpc"),
            ),
            (
                "rss20-latin1.xml",
                Cloud("cafe.example.fr", 80, "/soap", "rssCloud.pleaseNotify", "soap"),
            ),
        ):
            self.assertEqual(self.clouds(name), [cloud], name)

    def test_other_numbers_of_clouds(self) -> None:
        """``source:cloud`` comes first."""
        kitchen = "://rpc.kitchen.example.net/pleaseNotify"
        for name, urls in (
            ("rss20-source-cloud.xml", [f"https{kitchen}", f"http{kitchen}"]),
            ("rss20-windows-1251.xml", ["http://cherdak.example.ru:5337/RPC2"]),
            ("rss10.rdf", []),
            ("atom.xml", []),
        ):
            self.assertEqual([cloud.url for cloud in self.clouds(name)], urls, name)

    def test_malformed(self) -> None:
        for name, reason in (("malformed.xml", "line"), ("rss091.xml", "DOCTYPE")):
            with self.assertRaisesRegex(MalformedXML, reason):
                self.clouds(name)


class ElementTests(SynchronousTestCase):
    """One cloud element, in all its forms."""

    def test_source_cloud_namespaces(self) -> None:
        for namespace in ("http://source.scripting.com/", "https://source.scripting.com"):
            element = f'<cloud xmlns="{namespace}"> https://rpc.example.org/n?a=1 </cloud>'
            cloud = Cloud("rpc.example.org", 443, "/n?a=1", "", "https-post")
            self.assertEqual(clouds_of(feed_with(element)), [cloud])

    def test_in_the_head_of_an_opml_list(self) -> None:
        opml = (
            b'<opml version="2.0" xmlns:s="http://source.scripting.com/"><head>'
            b"<s:cloud>http://rpc.example.org:5337/pleaseNotify</s:cloud></head><body/></opml>"
        )
        expected = ["http://rpc.example.org:5337/pleaseNotify"]
        self.assertEqual([cloud.url for cloud in clouds_of(opml)], expected)

    def test_an_item_names_no_cloud(self) -> None:
        item = '<item><cloud domain="d" port="80" path="/" protocol="soap"/></item>'
        self.assertEqual(clouds_of(feed_with(item)), [])

    def test_white_space_and_case_are_forgiven(self) -> None:
        element = '<cloud domain=" d.org " port=" 80 " path="RPC2" protocol="XML-RPC"/>'
        cloud = Cloud("d.org", 80, "/RPC2", "", "xml-rpc")
        self.assertEqual(clouds_of(feed_with(element)), [cloud])

    def test_clouds_that_do_not_count(self) -> None:
        """One that comes twice, and one that is invalid beside a valid one."""
        valid = Cloud("d.org", 80, "/x", "", "http-post")
        element = encode(valid)
        for other in (element, element.replace("80", "none")):
            self.assertEqual(clouds_of(feed_with(other, element)), [valid])

    def test_invalid_clouds_say_why(self) -> None:
        cases = {
            '<cloud domain="d" port="80x" path="/" protocol="soap"/>': "port '80x'",
            '<cloud domain="d" port="0" path="/" protocol="soap"/>': "port '0'",
            '<cloud domain="d" port="65536" path="/" protocol="soap"/>': "port '65536'",
            '<cloud domain="d" port="٨٠" path="/" protocol="soap"/>': "not a number from 1",
            '<cloud domain="d" port="80" path="/" protocol="smoke"/>': "protocol 'smoke'",
            '<cloud domain="http://d" port="80" path="/" protocol="soap"/>': "domain 'http://d'",
            '<cloud domain="u@d" port="80" path="/" protocol="soap"/>': "domain 'u@d'",
            '<cloud domain="a:b" port="80" path="/" protocol="soap"/>': "not a URL: 'a:b'",
            '<cloud port="80" protocol="soap"/>': "lacks domain, path",
            "<source:cloud>rpc.example.org</source:cloud>": "must begin with http",
            "<source:cloud>http://h:port/</source:cloud>": "is not a URL",
            "<source:cloud/>": "must begin with http",
        }
        for element, reason in cases.items():
            with self.assertRaisesRegex(InvalidCloud, reason):
                clouds_of(feed_with(element))


class UrlTests(SynchronousTestCase):
    """The URL at which a cloud is called."""

    def test_the_scheme_and_the_port(self) -> None:
        cases = {
            Cloud("d.org", 80, "/p", "", "http-post"): "http://d.org/p",
            Cloud("d.org", 5337, "/p", "", "soap"): "http://d.org:5337/p",
            Cloud("d.org", 443, "/p", "", "xml-rpc"): "https://d.org/p",
            Cloud("d.org", 5338, "/p", "", "https-post"): "https://d.org:5338/p",
            Cloud("::1", 5337, "/p", "", "http-post"): "http://[::1]:5337/p",
        }
        for cloud, url in cases.items():
            self.assertEqual(cloud.url, url)

    def test_from_a_url_and_back(self) -> None:
        for url in ("http://d.org/", "https://d.org:8443/a?b=c", "http://[::1]:5337/x"):
            self.assertEqual(from_url(url).url, url)


class EncodeTests(SynchronousTestCase):
    """An element that was written is read back as the same cloud."""

    def test_markup_is_escaped(self) -> None:
        element = etree.fromstring(encode(Cloud("d.org", 80, '/?a="1"&b=<2>', "", "http-post")))
        self.assertEqual(element.get("path"), '/?a="1"&b=<2>')

    @given(
        domain=st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,20}[a-z0-9])?", fullmatch=True),
        port=st.integers(1, 65535),
        path=st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), max_size=30),
        procedure=st.from_regex(r"([A-Za-z]+\.)?[A-Za-z]+|", fullmatch=True),
        protocol=st.sampled_from(sorted(PROTOCOLS)),
    )
    def test_round_trip(
        self, domain: str, port: int, path: str, procedure: str, protocol: str
    ) -> None:
        cloud = Cloud(domain, port, f"/{path}", procedure, protocol)
        self.assertEqual(clouds_of(feed_with(encode(cloud))), [cloud])

    @given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
    def test_any_bytes_give_clouds_or_a_clear_error(self, feed: bytes) -> None:
        try:
            clouds = clouds_of(feed)
        except (MalformedXML, InvalidCloud) as error:
            self.assertTrue(str(error))
        else:
            self.assertEqual(clouds, [])
