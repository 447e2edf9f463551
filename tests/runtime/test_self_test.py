"""The key of the self-test, and who gets an answer."""

from __future__ import annotations

from urllib.parse import parse_qsl

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from rsscloud_broker.interfaces import ISelfTest
from rsscloud_broker.runtime.self_test import KEY_FILE, SelfTest, read_key
from rsscloud_broker.testing import Clock
from rsscloud_broker.wire import self_test
from tests.processes import new_directory

ARRIVED = {"host": "broker.example"}


class SelfTestTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.data = new_directory(self)
        self.clock = Clock()
        self.service = SelfTest(str(self.data), self.clock)

    def question(self, key: bytes) -> dict[str, str]:
        return dict(parse_qsl(self_test.question(key, "n", self.clock.wall_seconds())))

    def test_interface(self) -> None:
        self.assertTrue(verifyObject(ISelfTest, self.service))

    def test_answer(self) -> None:
        self.service.startService()
        key = read_key(str(self.data))
        self.assertEqual((self.data / KEY_FILE).stat().st_mode & 0o777, 0o600)
        body = self.service.answer(self.question(key), ARRIVED)
        assert body is not None
        arrived = self_test.read_answer(key, "n", body)
        self.assertEqual(arrived["host"], "broker.example")
        self.assertGreater(int(arrived["descriptors"]), 0)

    def test_strangers_get_no_answer(self) -> None:
        for question in (self.question(b""), self.question(b"k" * 32), {}):
            self.assertIsNone(self.service.answer(question, ARRIVED))
            self.service.startService()
            self.assertIsNone(self.service.answer(question, ARRIVED))
            self.service = SelfTest(str(self.data), self.clock)

    def test_a_start_makes_a_new_key(self) -> None:
        file = self.data / KEY_FILE
        file.write_bytes(b"old")
        file.chmod(0o644)
        self.service.startService()
        self.assertEqual((len(read_key(str(self.data))), file.stat().st_mode & 0o777), (32, 0o600))

    def test_a_key_that_cannot_be_stored(self) -> None:
        """The broker starts all the same, and answers nobody."""
        service = SelfTest(str(self.data / "missing"), self.clock)
        service.startService()
        self.assertIsNone(service.answer(self.question(b""), ARRIVED))

    def test_the_key_is_a_token(self) -> None:
        self.assertFalse(self.successResultOf(Deferred.fromCoroutine(self.service.knows(""))))
        self.service.startService()
        key = read_key(str(self.data)).hex()
        for token, known in ((key, True), (key[:-1], False), ("", False), ("\xff", False)):
            knows = Deferred.fromCoroutine(self.service.knows(token))
            self.assertEqual(self.successResultOf(knows), known, token)
