"""The tests of the parts that replace Twisted's, once more with plain Twisted."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.util import twisted_overrides
from tests.outbound import (
    test_broken_off,
    test_connecting,
    test_guarded_connections,
    test_large_bodies,
    test_lean_connections,
)
from tests.util.twisted_overrides import test_tcp_client

_MODULES: tuple[ModuleType, ...] = (
    test_broken_off,
    test_connecting,
    test_guarded_connections,
    test_large_bodies,
    test_lean_connections,
    test_tcp_client,
)


class _Plain:
    """Has a test case run with plain Twisted."""

    def run(self: Any, result: Any) -> Any:
        self.patch(twisted_overrides, "is_plain", lambda: True)
        return super().run(result)  # type: ignore[misc] # it comes before a test case


def _cases(module: ModuleType) -> dict[str, type[Any]]:
    """The test cases that a module defines."""
    found = vars(module).items()
    return {
        name: case
        for name, case in found
        if isinstance(case, type)
        and issubclass(case, SynchronousTestCase)
        and case.__module__ == module.__name__
    }


# In one expression, for trial would also find the test case that a loop leaves in its variable.
globals().update(
    {
        f"Plain{name}": type(f"Plain{name}", (_Plain, case), {"__module__": __name__})
        for module in _MODULES
        for name, case in _cases(module).items()
    }
)
