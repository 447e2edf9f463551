"""What signals do to the process: they stop it, or rotate its log."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any, Final

from twisted.logger import Logger
from twisted.python.logfile import LogFile

#: Signals that stop the broker.
STOPPING: Final = (signal.SIGTERM, signal.SIGINT)

log = Logger()


def stop_once(reactor: Any) -> None:
    """Have one signal stop the reactor, and later ones change nothing.

    Twisted's own handlers stop it at each, which the second time is an error.

    :param reactor: one that does not run yet.
    """
    earlier: dict[int, Any] = {}
    asked = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            name = signal.Signals(number).name
            log.info("Received {name}; the broker stops already.", name=name)
            return
        asked = True
        earlier[number](number, frame)

    def install() -> None:
        for number in STOPPING:
            earlier[number] = signal.signal(number, stop)

    reactor.callWhenRunning(install)


def rotate_at_request(reactor: Any, file: LogFile) -> None:
    """Have SIGUSR1 rotate a log file, as twistd does for those that it opens.

    :param reactor: rotates it in its thread.
    """

    def rotate(number: int, frame: FrameType | None) -> None:
        reactor.callFromThread(file.rotate)

    signal.signal(signal.SIGUSR1, rotate)
