"""Fakes and contract tests, for the tests of the broker and of plugins.

A fake stands for a part of the broker that a plugin is given.  It records its calls, and answers
as the test tells it::

    outbound = FakeOutbound({"http://reader.example/notify": reply(500)})
    notifier = MyNotifier(MyOptions(), outbound)

A contract is a set of tests that every implementation of an interface must pass.
``make_..._tests(fixture)`` makes a TestCase of it::

    class MyNotifierTests(make_notifier_tests(lambda case, outbound: MyNotifier(..., outbound))):
        pass

``app_parts`` makes what an application is given, with a real database in memory that has the
application's tables.

No other part of the package imports this one.
"""

from rsscloud_broker.testing.app_contract import make_app_tests
from rsscloud_broker.testing.apps import (
    FakeCallers,
    FakeJobs,
    FakePublisher,
    app_parts,
    caller_of,
    new_account,
)
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
    RecordingBus,
    RecordingSink,
    front_door_parts,
    reply,
    sink_parts,
)
from rsscloud_broker.testing.memory import CallersThread, memory_database, memory_store

__all__ = [
    "CallersThread",
    "Clock",
    "FakeBroker",
    "FakeCallers",
    "FakeFetcher",
    "FakeJobs",
    "FakeNotifier",
    "FakeOutbound",
    "FakePages",
    "FakePublisher",
    "FakeTopicView",
    "RecordingBus",
    "RecordingSink",
    "app_parts",
    "caller_of",
    "front_door_parts",
    "make_app_tests",
    "make_front_door_tests",
    "make_notifier_tests",
    "make_sink_tests",
    "memory_database",
    "memory_store",
    "new_account",
    "reply",
    "sink_parts",
]
