"""The arguments of endpoints are parsed as Twisted parses them."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.config.endpoint_text import arguments


class ArgumentsTests(SynchronousTestCase):
    def test_arguments(self) -> None:
        for text, positions, found in (
            (
                "ssl:443:privateKey=key.pem:certKey=cert.pem",
                ("port",),
                {"port": "443", "privateKey": "key.pem", "certKey": "cert.pem"},
            ),
            (
                "ssl:443:key.pem:interface=::cert.pem",
                ("port", "privateKey", "certKey"),
                {"port": "443", "privateKey": "key.pem", "interface": "", "certKey": ""},
            ),
            ("tcp:80", (), {}),
            ("tcp", (), {}),
            (
                r"tcp:80:interface=\:\:1:a=b\=c\\",
                ("port",),
                {"port": "80", "interface": "::1", "a": "b=c\\"},
            ),
            (r"unix:/x\=y\:z", ("address",), {"address": "/x=y:z"}),
        ):
            self.assertEqual(arguments(text, *positions), found, text)
