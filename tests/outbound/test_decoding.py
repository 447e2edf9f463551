"""Tests the decompression of answers."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, execute
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.errors import OutboundError, TooLarge
from rsscloud_broker.model import Content
from rsscloud_broker.outbound.budget import NO_MEMORY, AnswerBudget
from rsscloud_broker.outbound.decoding import (
    AT_A_TIME,
    DECODED_AT_ONCE,
    ENCODED_AT_ONCE,
    BodyDecoder,
)
from rsscloud_broker.outbound.http1 import HTTPAnswer
from tests.wire.test_codings import TEXT, raw_deflate

LARGE = TEXT * 1000


#: Functions that compress, by the content coding that a server names.
CODINGS: tuple[tuple[bytes, Callable[[bytes], bytes]], ...] = (
    (b"gzip", gzip.compress),
    (b"X-Gzip ", gzip.compress),
    (b"deflate", zlib.compress),
    (b"Deflate", raw_deflate),
)


def answer(body: bytes, coding: bytes = b"") -> HTTPAnswer:
    said = [(b"Content-Encoding", coding)] if coding else []
    return HTTPAnswer(200, [(b"Server", b"x"), *said], body)


class Threads:
    """An ``in_thread`` whose work is done when the test says so."""

    def __init__(self) -> None:
        self.given: list[tuple[Deferred[bytes], Callable[[], bytes]]] = []

    def __call__(self, function: Callable[..., bytes], *args: Any) -> Deferred[bytes]:
        done: Deferred[bytes] = Deferred()
        self.given.append((done, lambda: function(*args)))
        return done

    def work(self) -> None:
        done, job = self.given.pop(0)
        done.callback(job())


class BodyDecoderTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.budget = AnswerBudget(limit=AT_A_TIME * 1_000_000, small=100)
        self.threads = Threads()
        self.decoder = BodyDecoder(1_000_000, self.budget, self.threads)
        self.encoded = answer(gzip.compress(LARGE), b"gzip")

    def begin(self, count: int) -> list[Deferred[bytes]]:
        """Begin to decompress a large body, this many times."""
        return [Deferred.fromCoroutine(self.decoder.decode(self.encoded)) for _ in range(count)]

    def assert_nothing_held(self) -> None:
        self.assertEqual((self.budget.encoded, self.budget.contents.held), (0, 0))

    def ask(self, answer: HTTPAnswer, limit: int = 1_000_000, threads: Any = execute) -> bytes:
        decoder = BodyDecoder(limit, self.budget, threads)
        return self.successResultOf(Deferred.fromCoroutine(decoder.decode(answer)))

    def assert_refused(self, kind: type[OutboundError], answer: HTTPAnswer, limit: int) -> str:
        decoder = BodyDecoder(limit, self.budget, execute)
        asking = Deferred.fromCoroutine(decoder.decode(answer))
        error = self.failureResultOf(asking, kind).value
        self.assert_nothing_held()
        return str(error)

    def test_codings(self) -> None:
        for coding, pack in CODINGS:
            self.assertEqual(self.ask(answer(pack(LARGE), coding)), LARGE)
            for small in (TEXT, b"x" * DECODED_AT_ONCE):  # which needs no thread
                self.assertEqual(self.ask(answer(pack(small), coding), threads=Threads()), small)

    def test_what_is_not_compressed(self) -> None:
        for coding in (b"", b"identity", b"utf-8"):
            self.assertEqual(self.ask(answer(TEXT, coding)), TEXT)
        self.assertEqual(self.ask(answer(b"", b"gzip")), b"")

    def test_limit(self) -> None:
        for coding, pack in CODINGS:
            for limit in (1000, DECODED_AT_ONCE, DECODED_AT_ONCE + 1, 1_000_000):
                encoded = answer(pack(b"x" * limit), coding)
                self.assertEqual(len(self.ask(encoded, limit)), limit)
                encoded = answer(pack(b"x" * (limit + 1)), coding)
                said = self.assert_refused(TooLarge, encoded, limit)
                self.assertEqual(said, f"the answer is larger than {limit} bytes")

    def test_large_ones_have_turns(self) -> None:
        """However many wait, only few decompressed bodies are in memory at the same time."""
        asked = self.begin(10)
        self.assertEqual(self.budget.encoded, 10 * len(self.encoded.body))
        for count, one in enumerate(asked, 1):
            self.assertEqual(len(self.threads.given), min(AT_A_TIME, 11 - count))
            self.threads.work()
            self.assertEqual(self.successResultOf(one), LARGE)
        self.assert_nothing_held()

    def test_who_gives_up(self) -> None:
        """Waiting work is dropped; a running thread keeps its turn and its budget."""
        asked = self.begin(10)
        for one in asked[:-1]:
            one.cancel()
            self.failureResultOf(one, CancelledError)
        self.assertEqual(len(self.threads.given), AT_A_TIME)
        self.assertEqual(self.budget.contents.held, AT_A_TIME * 1_000_000)
        self.assertEqual(self.budget.encoded, (AT_A_TIME + 1) * len(self.encoded.body))
        for _ in range(AT_A_TIME + 1):
            self.threads.work()
        self.assertEqual(self.successResultOf(asked[-1]), LARGE)
        self.assert_nothing_held()
        self.assertEqual(self.threads.given, [])

    def test_much_that_becomes_nothing_needs_a_thread(self) -> None:
        """To decompress it takes as long, although the result is empty."""
        packing = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        nothing = b"".join(packing.flush(zlib.Z_FULL_FLUSH) for _ in range(10))
        while len(nothing) <= ENCODED_AT_ONCE:
            nothing += nothing
        self.encoded = answer(nothing + packing.flush(), b"deflate")
        (asked,) = self.begin(1)
        self.threads.work()
        self.assertEqual(self.successResultOf(asked), b"")

    def test_large_ones_wait_for_room(self) -> None:
        content = Content(b"x" * AT_A_TIME * 900_000)
        self.budget.keep(content)
        (asked,) = self.begin(1)
        self.assertEqual(self.threads.given, [])
        del content
        self.threads.work()
        self.assertEqual(self.successResultOf(asked), LARGE)
        self.assert_nothing_held()

    def test_no_room_for_those_that_wait(self) -> None:
        self.budget = AnswerBudget(limit=1000, small=100)
        self.decoder = BodyDecoder(1_000_000, self.budget, self.threads)
        held = len(self.encoded.body)
        fit = 1000 // held or 1
        asked = self.begin(fit + 1)
        error = self.failureResultOf(asked.pop(), OutboundError)
        self.assertEqual((str(error.value), self.budget.encoded), (NO_MEMORY, fit * held))
        for _ in asked:
            self.threads.work()
        self.assertEqual(self.budget.encoded, 0)

    def test_what_is_in_a_thread_may_be_broken(self) -> None:
        encoded = self.encoded.body
        for broken, why in (
            (encoded[:-10], "the answer breaks off"),
            (encoded[:-8] + b"\xff" * 8, "the answer cannot be decompressed"),
        ):
            said = self.assert_refused(OutboundError, answer(broken, b"gzip"), 1_000_000)
            self.assertIn(why, said)
