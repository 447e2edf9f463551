"""The arguments of endpoints are parsed as Twisted parses them."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.config.endpoint_text import arguments


class ArgumentsTests(SynchronousTestCase):
    def test_names(self) -> None:
        self.assertEqual(
            arguments("ssl:443:privateKey=key.pem:certKey=cert.pem", "port"),
            {"port": "443", "privateKey": "key.pem", "certKey": "cert.pem"},
        )

    def test_positions(self) -> None:
        self.assertEqual(
            arguments("ssl:443:key.pem:interface=::cert.pem", "port", "privateKey", "certKey"),
            {"port": "443", "privateKey": "key.pem", "interface": "", "certKey": ""},
        )
        self.assertEqual(arguments("tcp:80"), {})
        self.assertEqual(arguments("tcp"), {})

    def test_protected_characters(self) -> None:
        self.assertEqual(
            arguments(r"tcp:80:interface=\:\:1:a=b\=c\\", "port"),
            {"port": "80", "interface": "::1", "a": "b=c\\"},
        )
        self.assertEqual(arguments(r"unix:/x\=y\:z", "address"), {"address": "/x=y:z"})
