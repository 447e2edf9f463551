"""Installs the signal handlers that stop the broker, reload its configuration, rotate its logs."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from twisted.logger import Logger
from twisted.python.logfile import LogFile

#: Signals that stop the broker.
STOPPING: Final = (signal.SIGTERM, signal.SIGINT)

log = Logger()


def stop_once(reactor: Any) -> None:
    """Make only the first stopping signal stop the reactor; later ones are logged and ignored.

    Twisted's own handlers stop the reactor at every signal, which is an error the second time.  A
    signal that the program that started the broker has made it ignore, as a shell does with SIGINT
    for a background process of a script, stays ignored.

    :param reactor: a reactor that does not run yet.
    """
    earlier: dict[int, Any] = {}
    was_asked = False

    def stop(number: int, frame: FrameType | None) -> None:
        """Pass the first signal on to Twisted's handler, and log the others."""
        nonlocal was_asked
        if was_asked:
            name = signal.Signals(number).name
            log.info("Received {name}; the broker stops already.", name=name)
            return
        was_asked = True
        earlier[number](number, frame)

    def install() -> None:
        for number in STOPPING:
            if callable(handler := signal.getsignal(number)):
                earlier[number] = handler
                signal.signal(number, stop)

    reactor.callWhenRunning(install)


def reload_at_hangup(reactor: Any, reload: Callable[[], None]) -> None:
    """Make SIGHUP reload the configuration.

    A terminal sends SIGHUP too when it is closed.  If the broker was started in a terminal and
    that is closed, the broker stops instead.

    :param reactor: a reactor that does not run yet.
    :param reload: is called in the reactor's thread, once the reactor runs.
    """
    in_terminal = False

    def find_terminal() -> None:
        """Remember whether the broker runs in a terminal."""
        nonlocal in_terminal
        in_terminal = os.isatty(0)  # a daemon has left the terminal by now

    def hang_up(number: int, frame: FrameType | None) -> None:
        """Stop if the terminal has been closed; else reload."""
        if in_terminal and not os.isatty(0):
            signal.raise_signal(signal.SIGTERM)
        else:
            reactor.callFromThread(reload)

    reactor.callWhenRunning(find_terminal)
    signal.signal(signal.SIGHUP, hang_up)


def rotate_at_request(reactor: Any, file: LogFile) -> None:
    """Make SIGUSR1 rotate a log file, as twistd does with the log files that it opens.

    :param reactor: the file is rotated in this reactor's thread.
    """
    signal.signal(signal.SIGUSR1, lambda number, frame: reactor.callFromThread(file.rotate))


def reopen_at_request(reactor: Any, reopen: Callable[[], None], *, at_once: bool = False) -> None:
    """Make SIGUSR1 reopen another log file too, once the reactor runs.

    Whatever SIGUSR1 did before, it still does.

    :param reactor: a reactor that does not run yet.
    :param reopen: is called in the reactor's thread.
    :param at_once: False to wait until twistd has installed its own handler, which it does only if
        there is none.  True if twistd installs none; then SIGUSR1 does not kill a broker that still
        starts, as during a long migration.
    """

    def install() -> None:
        earlier = signal.getsignal(signal.SIGUSR1)  # by now twistd has installed its own

        def handle(number: int, frame: FrameType | None) -> None:
            if callable(earlier):
                earlier(number, frame)
            reactor.callFromThread(reopen)

        signal.signal(signal.SIGUSR1, handle)

    if at_once:
        install()
    else:
        reactor.callWhenRunning(install)
