"""Tries the topics of one registration, whose callback may not answer.

A registration of many topics must not make the broker call many hosts for somebody who does not
answer.  So the topics are tried one after the other until the callback has confirmed one of them,
and then some at a time.  Once the callback has failed, the rest fails without a call; but one that
has confirmed a topic, and then says no to another, may still want the rest.

A topic that does not answer must not keep the others from being tried.  So after ``ONE_BY_ONE``
seconds some are tried at a time in any case, and after ``WITHIN`` seconds the caller is answered.
Nothing further is begun then; what is under way goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.defer import TimeoutError as TimedOut
from twisted.internet.interfaces import IReactorTime

from rsscloud_broker.wire.rsscloud import BadRegistration, Limited

#: How many topics are tried at a time.
AT_A_TIME: Final = 10

#: Seconds in which topics are tried one after the other; longer than a callback has to answer.
ONE_BY_ONE: Final = 18.0

#: Seconds until the caller is answered, whatever is still under way.
WITHIN: Final = 28.0

LATE: Final = (
    "The subscription was cancelled because the resource and the handler did not answer within "
    f"{WITHIN:.0f} seconds."
)

#: Tries a topic.  It returns the error for the client, or None if that succeeded.
Attempt: TypeAlias = Callable[[], Coroutine[Any, Any, BadRegistration | None]]


class CallbackProblem(BadRegistration):
    """The callback failed.  Unless it has answered, it would fail for any other topic, too.

    :ivar answered: whether it has answered; then it may have said no to that topic alone.
    """

    def __init__(self, sentence: str, reason: str = "", *, answered: bool = False) -> None:
        super().__init__(sentence, reason)
        self.answered = answered


class RegistrationAttempts:
    """The topics of one registration, each with an attempt to subscribe to it."""

    def __init__(self, attempts: Iterable[Attempt], clock: IReactorTime) -> None:
        self._left = iter(attempts)
        self._clock = clock
        self._problems: list[Exception | None] = []  # one for each topic; None if it succeeded
        self._verdict: Exception | None = None  # why the topics that are left are not tried

    async def require_one_success(self) -> None:
        """Try the topics, at first one after the other, then ``AT_A_TIME`` at a time.

        :raises BadRegistration: none succeeded in time; this is the first error.  For other errors
            see the function `require_one_success`.
        """
        until = self._clock.seconds() + WITHIN
        working = [Deferred.fromCoroutine(self._try_left(alone=True))]
        await self._wait_at_most(working, ONE_BY_ONE)
        working += [Deferred.fromCoroutine(self._try_left()) for _ in range(AT_A_TIME)]
        # The process may have stood still meanwhile.
        await self._wait_at_most(working, max(0.0, until - self._clock.seconds()))
        self._verdict = self._verdict or BadRegistration(LATE)
        require_one_success(self._problems or [self._verdict])

    async def _try_left(self, *, alone: bool = False) -> None:
        """Try the topics that are left, one after the other.

        :param alone: whether to end as soon as one topic has succeeded.
        """
        for attempt in self._left:
            problem = self._verdict or await _problem_of(attempt)
            self._problems.append(problem)
            if isinstance(problem, Exception) and self._concerns_all(problem):
                self._verdict = problem
            if alone and problem is None:
                return

    def _concerns_all(self, problem: Exception) -> bool:
        """Whether the topics that are left would fail as well."""
        if isinstance(problem, CallbackProblem):
            has_confirmed_another = None in self._problems
            return not (problem.answered and has_confirmed_another)
        return not isinstance(problem, BadRegistration)

    async def _wait_at_most(self, working: Iterable[Deferred[None]], seconds: float) -> None:
        """Wait for work for some seconds at most; what is not over then goes on."""
        over: Deferred[None] = Deferred()
        DeferredList(working).addCallback(lambda _: None if over.called else over.callback(None))
        with suppress(TimedOut):
            await over.addTimeout(seconds, self._clock)


def require_one_success(problems: Sequence[Exception | None]) -> None:
    """Raise an error unless one of several attempts has succeeded.

    If a limit on requests refused one of them, the client must learn of it, or it would not try
    that one again.

    :param problems: of each attempt; None if it succeeded.
    :raises Limited: a limit on requests refused at least one attempt.
    :raises BadRegistration: none succeeded; this is the first error.
    :raises Exception: what an attempt raised, such as ``Unavailable``.
    """
    failed = [problem for problem in problems if problem is not None]
    for problem in failed:
        if isinstance(problem, Limited) or not isinstance(problem, BadRegistration):
            raise problem
    if failed and len(failed) == len(problems):
        raise failed[0]


async def _problem_of(attempt: Attempt) -> Exception | None:
    """The error that an attempt returned or raised; None if it succeeded."""
    try:
        return await attempt()
    except Exception as error:
        return error
