"""The tests of outgoing connections once more, on the reactor of couriers.

A process has only one reactor, so they run in another one.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from twisted.internet import reactor
from twisted.internet.utils import getProcessOutputAndValue
from twisted.trial.unittest import TestCase

from rsscloud_broker.util.twisted_overrides import uvloop_reactor

_MODULES: Final = (
    "tests.outbound.test_broken_off",
    "tests.outbound.test_callback_client",
    "tests.outbound.test_client_failures",
    "tests.outbound.test_guarded_connections",
    "tests.outbound.test_large_bodies",
    "tests.outbound.test_lean_connections",
    "tests.util.twisted_overrides.test_connections",
)

_RUN: Final = (
    "import sys; from rsscloud_broker.util.twisted_overrides import uvloop_reactor; "
    "uvloop_reactor.install(); from twisted.scripts.trial import run; run()"
)


class UvloopReactorTests(TestCase):
    if uvloop_reactor.uvloop is None:
        skip = "there is no uvloop here"

    async def test_outgoing_connections(self) -> None:
        directory = f"--temp-directory={self.mktemp()}"
        running: Any = getProcessOutputAndValue(
            sys.executable, ["-c", _RUN, directory, *_MODULES], env=None, reactor=reactor
        )
        out, err, code = await running
        self.assertEqual(code, 0, (out + err).decode(errors="replace")[-5000:])
