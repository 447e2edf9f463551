"""The signals that stop the broker.  What they do to a process is tested in test_deployment."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.runtime.signals import STOPPING, stop_once


class Reactor:
    """A reactor that runs already."""

    def callWhenRunning(self, function: Callable[[], None]) -> None:
        function()


class StopTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.stops: list[int] = []
        for number in STOPPING:
            self.addCleanup(signal.signal, number, signal.signal(number, self.stop))

    def stop(self, number: int, frame: FrameType | None) -> None:
        self.stops.append(number)

    def test_the_first_signal_stops_the_broker(self) -> None:
        stop_once(Reactor())
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        self.assertEqual(self.stops, [signal.SIGTERM])

    def test_a_signal_that_is_ignored_from_the_start_stays_ignored(self) -> None:
        """A script's shell makes its background processes ignore SIGINT."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        stop_once(Reactor())
        signal.raise_signal(signal.SIGINT)
        self.assertEqual(self.stops, [])
        signal.raise_signal(signal.SIGTERM)
        self.assertEqual(self.stops, [signal.SIGTERM])
