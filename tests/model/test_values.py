"""What the broker talks about: what is worked out and not only held."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.model import Callback, Lease, Subscription, host_of
from rsscloud_broker.model.hosts import with_canonical_host


class HostTests(SynchronousTestCase):
    def test_hosts(self) -> None:
        for url, host in (
            ("http://reader.example", "reader.example"),
            ("HTTPS://Reader.Example:8443/a:b@c?d#e", "reader.example"),
            ("http://reader.example?http://other.example/", "reader.example"),
            ("http://user:word@reader.example/", "reader.example"),
            ("http://192.0.2.7:5337/", "192.0.2.7"),
            ("http://[2001:DB8::7]:5337/", "2001:db8::7"),
            ("http:///notify", ""),
            ("reader.example", ""),
            ("", ""),
        ):
            self.assertEqual(host_of(url), host, url)

    def test_all_spellings_of_a_name(self) -> None:
        for host in (
            "xn--bcher-kva.example",
            "b\u00fccher.example",
            "B\u00dcCHER.example",
            "b%C3%BCcher.example",
            "b\uff55\u0308cher.example",
            "b\u00fccher\u3002example",
            "b\u00fc\u00adcher.example",
            "b\u00fccher.example...",
            "user:80@XN--bcher-kva.example",
        ):
            for rest in ("", "/cb", ":8080/", "?", "#"):
                self.assertEqual(host_of(f"http://{host}{rest}"), "xn--bcher-kva.example", host)

    def test_all_spellings_of_an_address(self) -> None:
        for host in (
            "203.0.113.7",
            "203.0.113.7.",
            "3405803783",
            "0xcb007107",
            "0XCB007107",
            "0313.0.0161.7",
            "203.0.28935",
            "203.28935",
            "\uff12\uff10\uff13.0.113.7",
            "[::ffff:203.0.113.7]",
            "[::FFFF:CB00:7107]",
        ):
            self.assertEqual(host_of(f"http://{host}:80/"), "203.0.113.7", host)
        for host in ("[2001:db8::1]", "[2001:db8:0::1]", "[2001:0DB8:0:0:0:0:0:1]"):
            self.assertEqual(host_of(f"http://{host}/"), "2001:db8::1", host)

    def test_what_is_neither_a_name_nor_an_address(self) -> None:
        for host in (
            *("256.1.1.1", "1.2.3.4.5", "08.1.1.1", "1.1.65536", "4294967296", "0x", "1..2"),
            *("a!b", "9" * 5000, "-\u00fc-.-", "a%00b", "a%20b\u00ad"),
        ):
            self.assertEqual(host_of(f"http://{host}/"), host)
        self.assertEqual(host_of("http://[2001:DB8::x]/"), "2001:db8::x")

    def test_addresses_have_four_bytes(self) -> None:
        """What only looks like an address in canonical form is brought into it, or left alone."""
        for host, canonical in (
            ("203.0.113.7", "203.0.113.7"),
            ("255.255.255.255", "255.255.255.255"),
            ("0.0.0.0", "0.0.0.0"),
            ("203.0.113.07", "203.0.113.7"),
            ("203.0.113.256", "203.0.113.256"),
            ("203.0.113", "203.0.0.113"),
            ("203.0.113.7.9", "203.0.113.7.9"),
            ("203.0.113.7.", "203.0.113.7"),
        ):
            for rest in ("", ":80", "/a", "?a", "#a", ":/a"):
                self.assertEqual(host_of(f"http://{host}{rest}"), canonical, host)

    def test_urls_with_the_canonical_host(self) -> None:
        for url, expected in (
            ("http://reader.example./x", "http://reader.example/x"),
            ("https://B\u00fccher.example:80/X?Y#Z", "https://xn--bcher-kva.example:80/X?Y#Z"),
            ("http://[2001:db8:0::1]:80/", "http://[2001:db8::1]:80/"),
            ("http://[::ffff:203.0.113.7]/", "http://203.0.113.7/"),
            ("http://reader.example/x", "http://reader.example/x"),
            ("no URL", "no URL"),
        ):
            self.assertEqual(with_canonical_host(url), expected)

    def test_the_dot_of_the_root_makes_no_other_host(self) -> None:
        for url in (
            "http://reader.example.",
            "http://Reader.Example.:80/",
            "http://reader.example./",
        ):
            self.assertEqual(host_of(url), "reader.example", url)
        with_dot = Callback("http://reader.example./", "soap")
        without = Callback("http://reader.example/", "soap")
        self.assertEqual(with_dot.host, without.host)
        self.assertNotEqual(with_dot, without)


class FrozenTests(SynchronousTestCase):
    """Values are equal and hashed by their fields, as far as those count, though attrs does not
    keep them from changes.
    """

    def test_values_that_are_equal(self) -> None:
        made = [Callback("http://a.example/", protocol) for protocol in ("soap", "soap", "websub")]
        self.assertEqual(made[0], made[1])
        self.assertNotEqual(made[0], made[2])
        self.assertEqual(len(set(made)), 2)

    def test_fields_that_do_not_count(self) -> None:
        made = [
            Subscription("t", Callback("c", "soap"), Lease(0.0, 1), claim=claim, options=options)
            for claim, options in ((None, {}), (7, {}), (7, {"secret": "s"}))
        ]
        self.assertEqual(made[0], made[1])
        self.assertNotEqual(made[1], made[2])
        self.assertEqual(hash(made[1]), hash(made[2]))
        self.assertNotIn("secret", repr(made[2]))
