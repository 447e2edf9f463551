"""Fakes and contract tests, for the tests of the broker and of plugins.

A fake stands for a part of the broker that a plugin is given.  It records its calls, and answers
as the test tells it::

    outbound = FakeOutbound({"http://reader.example/notify": reply(500)})
    notifier = MyNotifier(MyOptions(), outbound)

A contract is a set of tests that every implementation of an interface must pass.
``make_..._tests(fixture)`` makes a TestCase of it::

    class MyNotifierTests(make_notifier_tests(lambda case, outbound: MyNotifier(..., outbound))):
        pass

No other part of the package imports this one.
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
    FakeTopicView,
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
    "FakeTopicView",
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
