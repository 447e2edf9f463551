"""What the broker talks about: what is worked out and not only held."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.model import Callback, host_of


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
