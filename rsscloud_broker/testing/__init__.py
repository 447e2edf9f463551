"""For tests, ours and those of plugin authors: fakes, and contract tests.

A fake stands for the part that a plugin is handed: it keeps what it was asked,
and answers as a test wants it to::

    outbound = FakeOutbound({"http://reader.example/notify": reply(500)})
    notifier = MyNotifier(MyOptions(), outbound)

A contract is a set of tests that every implementation of an interface must
pass.  ``make_..._tests(fixture)`` turns it into a TestCase::

    class MyNotifierTests(make_notifier_tests(lambda case, outbound: MyNotifier(..., outbound))):
        pass

Nothing in the product depends on this package.
"""

from rsscloud_broker.testing.clock import Clock
from rsscloud_broker.testing.contracts import (
    make_front_door_tests,
    make_notifier_tests,
    make_sink_tests,
)
from rsscloud_broker.testing.fakes import (
    FakeBroker,
    FakeFetcher,
    FakeNotifier,
    FakeOutbound,
    FakePages,
    OutboundRequest,
    RecordingBus,
    RecordingSink,
    front_door_parts,
    reply,
    sink_parts,
)
from rsscloud_broker.testing.memory import CallersThread, memory_store

__all__ = [
    "CallersThread",
    "Clock",
    "FakeBroker",
    "FakeFetcher",
    "FakeNotifier",
    "FakeOutbound",
    "FakePages",
    "OutboundRequest",
    "RecordingBus",
    "RecordingSink",
    "front_door_parts",
    "make_front_door_tests",
    "make_notifier_tests",
    "make_sink_tests",
    "memory_store",
    "reply",
    "sink_parts",
]
