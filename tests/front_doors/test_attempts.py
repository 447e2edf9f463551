"""The topics of one registration, whose callback or whose hosts may not answer."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.errors import StoreUnavailable
from rsscloud_broker.front_doors.attempts import (
    AT_A_TIME,
    LATE,
    ONE_BY_ONE,
    WITHIN,
    CallbackProblem,
    RegistrationAttempts,
)
from rsscloud_broker.testing import Clock
from rsscloud_broker.wire.rsscloud import BadRegistration, Limited

MANY = 50


class AttemptsTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.begun: list[Deferred[BadRegistration | None]] = []
        attempts = RegistrationAttempts([self.attempt] * MANY, self.clock)
        self.over = Deferred.fromCoroutine(attempts.require_one_success())

    async def attempt(self) -> BadRegistration | None:
        one: Deferred[BadRegistration | None] = Deferred()
        self.begun.append(one)
        return await one

    def end(self, result: BadRegistration | None = None) -> None:
        """End the attempts that are under way."""
        for one in tuple(self.begun):
            if not one.called:
                one.callback(result)

    def test_one_after_the_other_until_one_succeeds(self) -> None:
        unreadable = BadRegistration("unreadable")
        for number in range(1, 4):
            self.assertEqual(len(self.begun), number)
            self.end(unreadable)
        self.end()
        self.assertEqual(len(self.begun), 4 + AT_A_TIME)
        while not self.over.called:
            self.end(unreadable)
        self.assertEqual(len(self.begun), MANY)
        self.assertIsNone(self.successResultOf(self.over))

    def test_callback_that_fails(self) -> None:
        for answered in (False, True):
            self.setUp()
            self.end(CallbackProblem("deaf", answered=answered))
            self.assertEqual(len(self.begun), 1)
            self.assertEqual(str(self.failureResultOf(self.over, BadRegistration).value), "deaf")

    def test_callback_that_fails_later(self) -> None:
        """What is under way is all that is still called."""
        self.end()
        self.end(CallbackProblem("deaf"))
        self.assertEqual(len(self.begun), 1 + AT_A_TIME)
        self.successResultOf(self.over)

    def test_callback_that_does_not_want_one_of_them(self) -> None:
        """It says so by a status, or does not repeat the challenge (the implementor's guide)."""
        self.end()
        self.begun[1].callback(CallbackProblem("not this one", answered=True))
        while not self.over.called:
            self.end()
        self.assertEqual(len(self.begun), MANY)
        self.successResultOf(self.over)

    def test_topic_that_does_not_answer(self) -> None:
        self.clock.advance(ONE_BY_ONE)
        self.assertEqual(len(self.begun), 1 + AT_A_TIME)
        self.begun[1].callback(None)
        self.clock.advance(WITHIN - ONE_BY_ONE)
        self.successResultOf(self.over)

    def test_nothing_answers(self) -> None:
        """The caller is answered, and nothing further is begun."""
        self.clock.advance(ONE_BY_ONE)
        self.clock.advance(WITHIN - ONE_BY_ONE)
        self.assertEqual(str(self.failureResultOf(self.over, BadRegistration).value), LATE)
        self.end()
        self.assertEqual(len(self.begun), 1 + AT_A_TIME)

    def test_process_that_stood_still(self) -> None:
        """As on a machine that was paused: the time is over when the first timer fires."""
        call_later = self.clock.callLater

        def checked(delay: float, *args: Any, **kwargs: Any) -> IDelayedCall:
            self.assertGreaterEqual(delay, 0.0)  # as reactors do
            return call_later(delay, *args, **kwargs)

        self.patch(self.clock, "callLater", checked)
        self.clock.advance(WITHIN + 10)
        self.clock.advance(0)
        self.assertEqual(str(self.failureResultOf(self.over, BadRegistration).value), LATE)

    def test_what_ends_it_all(self) -> None:
        """A client that is notified of a limit sends the topic again."""
        for error, begun in ((Limited("later", 9), MANY), (StoreUnavailable("gone"), 11)):
            self.setUp()
            self.end()
            self.begun[1].errback(error)
            while not self.over.called:
                self.end()
            self.failureResultOf(self.over, type(error))
            self.assertEqual(len(self.begun), begun)
