"""Tests the command line of ``twistd rsscloud-broker``, and how the parts are stopped.

The tests in tests/e2e start the whole broker.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from attrs import fields
from twisted.application.service import Service
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import capturedLogs
from twisted.plugin import IPlugin
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.interface import InterfaceClass

from rsscloud_broker.composition.server import Server, set_back
from rsscloud_broker.config import Config, ConfigError, NoOptions
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.front_doors.change_lists import ChangeListsDoor
from rsscloud_broker.interfaces import (
    App,
    AppParts,
    FrontDoorParts,
    IFrontDoorMaker,
    ISinkMaker,
    NotifierParts,
    Parsing,
    ServedTopics,
    SinkParts,
)
from rsscloud_broker.model import Ping
from rsscloud_broker.plugins import bundled
from rsscloud_broker.plugins.bundled import AppMaker
from rsscloud_broker.policy.blocks import Blocks
from rsscloud_broker.runtime.command_line import LOOPBACK, Options
from rsscloud_broker.runtime.plugin_discovery import Makers, select
from rsscloud_broker.runtime.service import MOMENT, STOP_WITHIN, BrokerService
from rsscloud_broker.sinks.resourcesync import ResourceSyncSink
from rsscloud_broker.storage import Store
from rsscloud_broker.testing import FakeNotifier, RecordingSink
from rsscloud_broker.testing.clock import Clock
from tests.notes import NotesOptions, make_notes


class SetBackTests(SynchronousTestCase):
    def test_times_of_other_nodes_stay(self) -> None:
        for shares, wanted in ((False, [60.0, "taken over"]), (True, [])):
            done: list[object] = []
            store: Any = SharedStore(shares, done)
            detector: Any = SimpleNamespace(take_over=lambda done=done: done.append("taken over"))
            moving = set_back(store, Clock(), detector, 60.0)
            self.successResultOf(moving)
            self.assertEqual(done, wanted)


class SharedStore:
    """A store that other nodes may work on."""

    def __init__(self, shares: bool, moved: list[object]) -> None:
        self._shares = shares
        self._moved = moved

    def shares_work(self) -> bool:
        return self._shares

    async def set_back(self, seconds: float, now: float) -> None:
        self._moved.append(seconds)


class OptionsTests(SynchronousTestCase):
    def configuration(self, *arguments: str) -> Config:
        options = Options()
        options.parseOptions(arguments)
        return options.configuration()

    def test_nobody_is_trusted_by_default(self) -> None:
        self.assertEqual(self.configuration(), Config())

    def test_local_trusts_loopback(self) -> None:
        path = Path(self.mktemp())
        path.write_text("[limits]\nexempt = ['192.0.2.0/24']\npings_burst = 5\n")
        config = self.configuration("--local", "--config", str(path))
        self.assertEqual(config.egress.allow_topics, LOOPBACK)
        self.assertEqual(config.egress.allow_callbacks, LOOPBACK)
        self.assertEqual(config.limits.exempt, ("192.0.2.0/24", *LOOPBACK))
        self.assertEqual(config.limits.pings_burst, 5)

    def test_local_has_the_address_of_this_machine(self) -> None:
        for arguments, address in (
            ([], "http://localhost:5337"),
            (["--listen", "tcp:8080"], "http://localhost:8080"),
            (["--listen", "tcp:port=8080:interface=127.0.0.1"], "http://localhost:8080"),
            (["--listen", "tcp:interface=127.0.0.1:port=8080"], "http://localhost:8080"),
            (["--listen", r"tcp6:8080:interface=\:\:1"], "http://localhost:8080"),
            (["--listen", "tcp:0"], "http://localhost"),
            (["--listen", "unix:/run/x.sock"], "http://localhost"),
            (["--public-url", "https://broker.example"], "https://broker.example"),
        ):
            self.assertIsNone(Config().public_url)
            self.assertEqual(self.configuration("--local", *arguments).public_url, address)

    def test_couriers(self) -> None:
        """The command line overrides the file, and the last word on it counts."""
        path = Path(self.mktemp())
        path.write_text("[delivery]\nprocesses = 3\n")
        for arguments, processes in (
            ([], 3),
            (["--couriers", "auto"], "auto"),
            (["--couriers", "auto", "--couriers", "0"], 0),
        ):
            config = self.configuration("--config", str(path), *arguments)
            self.assertEqual(config.delivery.processes, processes)
        for nonsense in ("many", "-1", "65"):
            with self.assertRaisesRegex(ConfigError, '--couriers: .*it must be "auto", or from 0'):
                self.configuration("--couriers", nonsense)


class LocalAppsTests(SynchronousTestCase):
    """With ``--local`` the applications that come with the broker run."""

    def setUp(self) -> None:
        theirs = AppMaker("theirs", "for tests", NotesOptions, make_notes)
        self.makers = Makers(apps={"test_feed": bundled.test_feed, "theirs": theirs})

    def running(self, *arguments: str, toml: str = "") -> list[str]:
        path = Path(self.mktemp())
        path.write_text(toml)
        options = Options()
        options.parseOptions([*arguments, "--config", str(path)])
        config = options.configuration(self.makers)
        return [maker.name for maker, _ in select(self.makers.apps, config.apps, "apps")]

    def test_which_run(self) -> None:
        """Those of others need a table, whether with ``--local`` or not."""
        enabled = "[apps.theirs]\nenabled = true\n"
        for arguments, toml, running in (
            ([], "", []),
            ([], enabled, ["theirs"]),
            (["--local"], "", ["test_feed"]),
            (["--local"], "[apps.test_feed]\nenabled = false\n", []),
            (["--local"], "[apps.test_feed]\nevery = 5\n", ["test_feed"]),
            (["--local"], "[apps.theirs]\n", ["test_feed"]),
            (["--local"], enabled, ["test_feed", "theirs"]),
        ):
            self.assertEqual(self.running(*arguments, toml=toml), running, (arguments, toml))


class Part(Service):
    """A part whose stop is over when the test says so."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stopped: Deferred[None] = Deferred()
        self.stopping = False

    def stopService(self) -> Deferred[None]:
        self.stopping = True
        return self.stopped


class StopTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.service = BrokerService(Config(), IReactorTime(self.clock))
        self.parts = [Part(name) for name in ("store", "sink", "listener")]
        for part in self.parts:
            part.setServiceParent(self.service)
        self._events = self.enterContext(capturedLogs())

    def given_up(self) -> list[str]:
        """The parts that the broker did not wait for, by its log."""
        return [event["parts"] for event in self._events if "parts" in event]

    def stop(self) -> Deferred[None]:
        return self.service.stopService()

    def test_one_after_the_other_in_reverse(self) -> None:
        store, sink, listener = self.parts
        stopped = self.stop()
        for part, following in ((listener, sink), (sink, store)):
            self.assertTrue(part.stopping)
            self.assertFalse(following.stopping)
            part.stopped.callback(None)
        self.assertNoResult(stopped)
        store.stopped.callback(None)
        self.successResultOf(stopped)
        self.assertEqual((self.given_up(), self.clock.getDelayedCalls()), ([], []))

    def test_a_part_that_hangs_is_not_waited_for_and_the_others_stop_too(self) -> None:
        store, sink, listener = self.parts
        stopped = self.stop()
        listener.stopped.callback(None)
        self.clock.advance(STOP_WITHIN - 0.001)
        self.assertFalse(store.stopping)
        self.clock.advance(0.001)
        self.assertTrue(store.stopping)
        store.stopped.callback(None)
        self.successResultOf(stopped)
        self.assertEqual(self.given_up(), ["sink"])
        sink.stopped.callback(None)  # it stops after all

    def test_the_time_is_that_of_all_parts_together(self) -> None:
        stopped = self.stop()
        for pause in (STOP_WITHIN, MOMENT):
            self.clock.advance(pause)
            self.assertNoResult(stopped)
        self.clock.advance(MOMENT)
        self.successResultOf(stopped)
        self.assertEqual(self.given_up(), ["listener, sink, store"])

    def test_workers_stop_at_the_same_time(self) -> None:
        self.service = BrokerService(Config(), IReactorTime(self.clock))
        store, sink, door, listener = (Part(name) for name in ("store", "sink", "door", "site"))
        self.service.add_parts([store], [sink, door], [listener])
        stopped = self.stop()
        listener.stopped.callback(None)
        self.assertEqual([part.stopping for part in (store, sink, door)], [False, True, True])
        sink.stopped.callback(None)
        self.assertFalse(store.stopping)
        door.stopped.callback(None)
        self.assertTrue(store.stopping)
        store.stopped.callback(None)
        self.successResultOf(stopped)

    def test_a_bug_of_one_does_not_keep_the_others_from_stopping(self) -> None:
        store, sink, listener = self.parts
        stopped = self.stop()
        listener.stopped.errback(ZeroDivisionError())
        for part in (sink, store):
            part.stopped.callback(None)
        self.successResultOf(stopped)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)


@implementer(IPlugin, IFrontDoorMaker, ISinkMaker)
class RecordingMaker:
    """A maker that records the parts that it is given.

    :param make: makes a front door or a sink of its options and parts.
    :param needs: the names of the parts that it needs.
    """

    name = "parts"
    help = "Keeps its parts."
    options = NoOptions

    def __init__(self, make: Callable[[NoOptions, Any], Any], *needs: str) -> None:
        self.needs = needs
        self.given: list[Any] = []
        self._make = make

    def make(self, options: NoOptions, parts: Any) -> Any:
        self.given.append(parts)
        return self._make(options, parts)


def names_of(parts: type[Any]) -> list[str]:
    """The names of all parts of a kind."""
    return [each.name for each in fields(parts)]


class ThingsTests(SynchronousTestCase):
    """A server has everything that its plugins may need."""

    def test_is_what_it_is_said_to_be(self) -> None:
        server = Server(Config(data=self.mktemp()), reactor)
        for kind in (FrontDoorParts, NotifierParts, SinkParts, AppParts):
            for name, described in get_type_hints(kind).items():
                thing, said = getattr(server, name), f"{kind.__name__}.{name}"
                # The interfaces cannot import the classes of these, which are above them.
                above = {"store": Store, "blocks": Blocks}
                hint = above[name] if described is Any else described
                kinds = get_args(hint) if get_origin(hint) in {Union, UnionType} else (hint,)
                if isinstance(kinds[0], InterfaceClass):
                    self.assertTrue(kinds[0].providedBy(thing), said)
                elif kinds == (Parsing,):
                    self.assertTrue(callable(thing), said)
                else:
                    wanted = tuple(get_origin(each) or each for each in kinds)
                    self.assertIsInstance(thing, wanted, said)

    def test_is_made_only_when_it_is_needed(self) -> None:
        server = Server(Config(data=self.mktemp()), reactor, Makers())
        self.assertTrue(server.service)
        self.assertNotIn("feed_doctor", vars(server))
        self.assertTrue(server.feed_doctor)

    def test_what_forks_processes_stops_after_them(self) -> None:
        """They end with it: couriers would be started again, and documents be lost."""
        names = [part.name for part in Server(Config(data=self.mktemp()), reactor).service]
        for forked in ("couriers", "parsers"):
            self.assertLess(names.index("fork server"), names.index(forked))

    def test_what_a_plugin_does_not_need_is_not_there(self) -> None:
        needs = ("clock", "public_directory", "public_url", "has_hub", "copy_file")
        maker = RecordingMaker(ChangeListsDoor, *needs)
        config = Config(data=self.mktemp(), front_doors={"parts": {}})
        self.assertTrue(Server(config, reactor, Makers(front_doors={"parts": maker})).service)
        (given,) = maker.given
        error = self.assertRaises(AttributeError, lambda: given.broker)
        self.assertEqual(
            str(error),
            "the front door 'parts' of tests.composition.test_server uses 'broker', which it does "
            "not name in needs",
        )


class AppPartsTests(SynchronousTestCase):
    def test_parts_of_applications_are_used(self) -> None:
        async def read(url: str) -> None:
            return None

        sink, service, own = RecordingSink(), Service(), FakeNotifier("a-river")
        topics = ServedTopics("http://broker.example/feeds/", read)
        first = App("a", sinks=[sink], notifiers=[own])
        second = App("b", services=[service], topics=[topics])
        makers = Makers(
            apps={
                app.name: AppMaker(app.name, "for tests", NotesOptions, partial(_made, app))
                for app in (first, second)
            }
        )
        apps = {name: {"enabled": True} for name in makers.apps}
        server = Server(Config(data=self.mktemp(), apps=apps), reactor, makers)
        self.assertIn(service, list(server.service))
        self.assertIn(sink, server.sinks)
        self.assertEqual(server.broker.protocols, {"a-river"})
        self.assertEqual(server.served_topics, [topics])


def _made(app: App, options: NotesOptions, parts: AppParts) -> App:
    return app


class HubTests(SynchronousTestCase):
    def has_hub(self, front_door: bool, notifier: bool) -> set[bool]:
        """The ``has_hub`` that front doors and sinks are given."""
        door = RecordingMaker(ChangeListsDoor, *names_of(FrontDoorParts))
        sink = RecordingMaker(ResourceSyncSink, *names_of(SinkParts))
        makers = Makers(
            front_doors={"websub": bundled.websub, "parts": door},
            notifiers={"websub": bundled.websub_delivery},
            sinks={"parts": sink},
        )
        config = Config(
            data=self.mktemp(),
            front_doors={"websub": {"enabled": front_door}, "parts": {}},
            notifiers={"websub": {"enabled": notifier}},
            sinks={"parts": {}},
        )
        self.assertTrue(Server(config, reactor, makers).service)
        return {parts.has_hub for parts in (*door.given, *sink.given)}

    def test_a_hub_takes_requests_and_delivers(self) -> None:
        """With one of the two nobody can subscribe, so no hub must be advertised."""
        for front_door in (False, True):
            for notifier in (False, True):
                has_hub = self.has_hub(front_door, notifier)
                self.assertEqual(has_hub, {front_door and notifier})


class DiskSpaceTests(SynchronousTestCase):
    def test_pings_wait_for_room_on_the_disk_of_the_data(self) -> None:
        maker = RecordingMaker(ChangeListsDoor, *names_of(FrontDoorParts))
        makers = Makers(front_doors={"parts": maker}, notifiers={}, sinks={})
        config = Config(data=self.mktemp(), front_doors={"parts": {}})
        service = Server(config, reactor, makers).service
        space: Any = service.getServiceNamed("disk space")
        space._problem = "it is full"
        (parts,) = maker.given
        ping = Ping("A", "http://site.example/", 1.0)
        asking: Any = parts.broker.ping(ping, 60.0, "192.0.2.7")
        asked: Deferred[None] = Deferred.fromCoroutine(asking)
        self.failureResultOf(asked, Unavailable)
