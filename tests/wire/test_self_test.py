"""Questions and answers of the self-test."""

from __future__ import annotations

from urllib.parse import parse_qsl

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.wire import self_test
from rsscloud_broker.wire.self_test import WrongBroker

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
NOW = 1_790_683_200.0
ARRIVED = {"host": "broker.example", "peer": "127.0.0.1", "forwarded_for": "1.2.3.4, ü"}


def fields(key: bytes = KEY, nonce: str = "n") -> dict[str, str]:
    return dict(parse_qsl(self_test.question(key, nonce, NOW)))


class QuestionTests(SynchronousTestCase):
    def test_genuine(self) -> None:
        for seconds in (0.0, 60.0 - 1, -60.0 + 1):
            self.assertTrue(self_test.is_genuine(KEY, fields(), NOW + seconds))

    def test_old_or_of_the_future(self) -> None:
        for seconds in (60.0 + 1, -60.0 - 1):
            self.assertFalse(self_test.is_genuine(KEY, fields(), NOW + seconds))

    def test_forged(self) -> None:
        genuine = fields()
        for changed in (
            fields(OTHER_KEY),
            {},
            {**genuine, "nonce": "another"},
            {**genuine, "time": f"{NOW + 1:.0f}"},
            {**genuine, "time": "soon"},
            {**genuine, "proof": ""},
            {**genuine, "proof": "ü"},
        ):
            self.assertFalse(self_test.is_genuine(KEY, changed, NOW), changed)


class AnswerTests(SynchronousTestCase):
    def test_round_trip(self) -> None:
        body = self_test.answer(KEY, "n", ARRIVED)
        self.assertEqual(self_test.read_answer(KEY, "n", body), ARRIVED)

    def test_of_somebody_else(self) -> None:
        body = self_test.answer(KEY, "n", ARRIVED)
        for key, nonce, changed in (
            (OTHER_KEY, "n", body),
            (KEY, "another", body),
            (KEY, "n", body.replace(b"127.0.0.1", b"127.0.0.2")),
        ):
            error = self.assertRaises(WrongBroker, self_test.read_answer, key, nonce, changed)
            self.assertIn("another data directory", str(error))

    def test_no_answer_at_all(self) -> None:
        for body in (b"", b"<html>", b"[]", b"{}", b'{"arrived": 1, "proof": ""}', b"[" * 9999):
            error = self.assertRaises(WrongBroker, self_test.read_answer, KEY, "n", body)
            self.assertIn("not one of a broker's self-test", str(error))
