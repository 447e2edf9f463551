"""What signals do to the process."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any, Final

from twisted.logger import Logger

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
