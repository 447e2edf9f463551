"""Tests how a changed configuration is applied while the broker runs."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from attrs import define, evolve, field
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase, TestCase

from rsscloud_broker.composition.server import Server
from rsscloud_broker.config import (
    Config,
    ConfigError,
    Egress,
    Http,
    Polling,
    RateLimitOptions,
    Topics,
    loads,
)
from rsscloud_broker.config.couriers import DeliveryConfig
from rsscloud_broker.errors import AddressRefused
from rsscloud_broker.runtime.plugin_discovery import Makers
from rsscloud_broker.runtime.reloading import Reloading, Taker, settings
from rsscloud_broker.runtime.signals import reload_at_hangup, reopen_at_request


@define
class Recorder:
    """Stands for every part, and records the calls that change it."""

    told: list[tuple[Any, ...]] = field(factory=list)

    def allow(self, networks: object) -> None:
        self.told.append(("allow", networks))

    def change(self, values: object) -> None:
        self.told.append(("change", values))

    def change_body_limit(self, limit: int) -> None:
        self.told.append(("limit", limit))

    def allow_descriptors(self, needed: int) -> None:
        self.told.append(("descriptors", needed))


@define
class Renewed:
    """A listener's certificate that was renewed, or cannot be read."""

    description: str = "ssl:443"
    fault: str = ""
    until: str = "2027-01-01 00:00 UTC"
    used: list[object] = field(factory=list)

    def read_again(self, reactor: object) -> object:
        if self.fault:
            raise ConfigError(self.fault)
        return "new"

    def use(self, options: object) -> str:
        self.used.append(options)
        return self.until


class ReloadingTests(SynchronousTestCase):
    def setUp(self) -> None:
        names = ("topic_clients", "outbound", "callback_guard", "limits", "admission", "access")
        self.parts = {name: Recorder() for name in (*names, "service")}
        self.certificate: Any = Renewed()
        self.running = Config()
        self._events = self.enterContext(capturedLogs())
        self._read = 0

    def make(self, **takers: Taker) -> Reloading:
        """What reloads the configuration of a server with such parts."""
        server = Server(self.running, None, Makers())
        vars(server).update(self.parts, outgoing=500)
        return Reloading(self.running, {**server.takers, **takers}, [self.certificate], None)

    def said(self) -> list[str]:
        """The lines that were logged since the last call."""
        events = self._events[self._read :]
        self._read += len(events)
        return [f"{event['log_level'].name}: {formatEvent(event)}" for event in events]

    def told(self) -> list[tuple[Any, ...]]:
        """The changes that were applied to any of the parts."""
        return [one for part in self.parts.values() for one in part.told]

    def test_nothing_new(self) -> None:
        self.certificate.until = ""
        self.make().reload(Config)
        self.assertEqual(
            self.said(),
            [
                "info: Reading the configuration again.",
                "info: No key has another value than before.",
                "info: Reloaded the configuration.",
            ],
        )
        self.assertEqual((self.told(), self.certificate.used), ([], ["new"]))
        self.certificate.until = "2027-01-01 00:00 UTC"
        self.make().reload(Config)
        self.assertEqual(
            self.said()[-2],
            "info: New connections at ssl:443 get a new certificate, valid until "
            "2027-01-01 00:00 UTC.",
        )

    def test_each_part_takes_what_is_its_own(self) -> None:
        new = Config(
            egress=Egress(allow_topics=("10.0.0.0/8",), allow_callbacks=("10.1.0.0/16",)),
            http=Http(max_connections=5),
            limits=RateLimitOptions(pings_burst=7),
            topics=Topics(subscribe=("http://a.example/*",), body_limit=2000),
        )
        reloading = self.make()
        reloading.reload(lambda: new)
        self.assertEqual(
            {name: part.told for name, part in self.parts.items()},
            {
                "topic_clients": [("allow", new.egress.topic_networks), ("limit", 2000)],
                "outbound": [("allow", new.egress.callback_networks)],
                "callback_guard": [("allow", new.egress.callback_networks)],
                "limits": [("change", new.http)],
                "admission": [("change", new.limits)],
                "access": [("change", new.topics)],
                "service": [("descriptors", 505)],
            },
        )
        self.assertEqual(
            self.said()[1],
            "info: Changed: [egress] allow_topics, [egress] allow_callbacks, "
            "[http] max_connections, [limits] pings_burst, [topics] subscribe, "
            "[topics] body_limit.",
        )
        reloading.reload(lambda: new)
        self.assertEqual(self.said()[1], "info: No key has another value than before.")
        reloading.reload(Config)
        self.assertIn("[limits] pings_burst", self.said()[1])

    def test_what_needs_a_restart_is_said_for_as_long_as_it_does(self) -> None:
        new = loads(
            """
            data = "elsewhere"
            [polling]
            min_interval = 60.0
            [limits]
            pings_burst = 7
            [sinks.archive]
            keep_hours = 200
            [front_doors.other]
            [front_doors.another]
            a = 1
            """,
            "broker.toml",
        )
        self.running = Config(sinks={"archive": {"keep_hours": 100, "unit": "seconds"}})
        reloading = self.make()
        reloading.reload(lambda: new)
        restart = (
            "warn: What has changed in these keys needs a restart: data, [polling] min_interval, "
            "[sinks.archive] keep_hours, [sinks.archive] unit, [front_doors.other], "
            "[front_doors.another] a."
        )
        self.assertEqual(self.said()[1:3], ["info: Changed: [limits] pings_burst.", restart])
        reloading.reload(lambda: new)
        self.assertIn(restart, self.said())
        reloading.reload(lambda: evolve(self.running, limits=new.limits))
        self.assertIn("info: No key has another value than before.", self.said())

    def assert_nothing_changes(self, read: Callable[[], Config], *faults: str) -> None:
        """Check that a reload says what is wrong, and does no more."""
        self.make().reload(read)
        *said, last = self.said()[1:]
        self.assertEqual(len(said), len(faults), said)
        for line, fault in zip(said, faults, strict=True):
            self.assertIn(f"error: The configuration cannot be used: {fault}", line)
        self.assertEqual(last, "error: Nothing was changed: the broker goes on as it was.")
        self.assertEqual((self.told(), self.certificate.used), ([], []))

    def test_what_cannot_be_used_changes_nothing(self) -> None:
        def read() -> Config:
            raise ConfigError("broker.toml: a: unknown key\nbroker.toml: b: unknown key")

        def with_listen(*listen: str) -> Callable[[], Config]:
            return lambda: Config(listen=listen, limits=RateLimitOptions(pings_burst=7))

        self.assert_nothing_changes(
            with_listen("tcp:notaport", "nonsense:1", "tcp:80"),
            "listen: 'tcp:notaport' is no",
            "listen: 'nonsense:1' is no",
        )
        self.assert_nothing_changes(
            with_listen(*Config().listen, "tcp:5337:interface=127.0.0.1"),
            "listen: 'tcp:5337:interface=127.0.0.1' is the port at which 'tcp:5337' listens",
        )
        no = self.certificate.fault = "listen: the certificate of 'ssl:443' cannot be read again"
        self.assert_nothing_changes(with_listen(*Config().listen), no)
        self.assert_nothing_changes(
            read, "broker.toml: a: unknown key", "broker.toml: b: unknown key", no
        )

    def test_an_endpoint_that_is_new_needs_a_restart(self) -> None:
        self.make().reload(lambda: Config(listen=("tcp:80",)))
        self.assertIn("warn: What has changed in these keys needs a restart: listen.", self.said())

    def test_an_error_of_somebody_elses_code_changes_nothing(self) -> None:
        def read() -> Config:
            raise ZeroDivisionError("in the validator of a plugin")

        reloading = self.make()
        reloading.reload(read)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual(
            self.said()[1:],
            [
                "critical: Reading the configuration again failed.",
                "error: Nothing was changed: the broker goes on as it was.",
            ],
        )
        self.assertEqual((self.told(), self.certificate.used), ([], []))
        reloading.reload(Config)
        self.assertIn("info: Reloaded the configuration.", self.said())

    def test_a_part_that_fails_to_take_its_keys(self) -> None:
        def fail(new: Config) -> None:
            raise ZeroDivisionError("in a part")

        reloading = self.make(**{"[topics]": fail})
        reloading.reload(lambda: Config(topics=Topics(body_limit=2000)))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertIn("critical: Taking over the configuration failed, perhaps", self.said()[-1])

    def test_somebody_else_takes_keys(self) -> None:
        taken: list[Config] = []
        reloading = self.make()
        new = loads("[log]\nlevel = 'warn'\n", "broker.toml")
        reloading.reload(lambda: new)
        self.assertIn(
            "warn: What has changed in these keys needs a restart: [log] level.", self.said()
        )
        self.make(**{"[log]": taken.append}).reload(lambda: new)
        self.assertEqual(taken, [new])

    def test_keys_are_written_as_in_the_manual(self) -> None:
        found = dict(settings(Config(polling=Polling(min_interval=60.0))))
        self.assertEqual(found["[polling] min_interval"], 60.0)
        self.assertEqual(found["listen"], ("tcp:5337",))
        self.assertIn("[egress] name_servers", found)
        for keys in takers():
            self.assertTrue([key for key in found if key.startswith(keys)], keys)


def takers() -> set[str]:
    """All keys that are taken, where the broker writes its log itself."""
    server: Any = Server(Config(), None, Makers())
    server.observer = server.logs
    return set(server.takers)


class ManualTests(SynchronousTestCase):
    def test_the_manual_names_what_is_taken(self) -> None:
        page = Path(__file__).parents[2] / "docs" / "configuration.rst"
        text = page.read_text(encoding="utf-8")
        table = text.partition(".. _reloading:")[2].partition("All other keys need a restart.")[0]
        named = set(re.findall(r"``(\[\w+\](?: \w+)?)``", table))
        taken = takers()
        # The keys of a table that is taken as a whole need not be named.
        whole = {keys for keys in taken if " " not in keys}
        single = {keys for keys in taken if keys.split()[0] not in whole}
        self.assertEqual(named, whole | single)


class CourierTests(SynchronousTestCase):
    def test_requests_are_checked_by_the_new_networks(self) -> None:
        """Couriers call the callbacks, and this process judges requests that name one."""
        config = Config(delivery=DeliveryConfig(processes=1))
        server = Server(config, reactor, Makers())
        taker = server.takers["[egress] allow_callbacks"]

        def check() -> Deferred[None]:
            return Deferred.fromCoroutine(server.callback_policy.check("http://10.1.2.3/callback"))

        self.failureResultOf(check(), AddressRefused)
        taker(evolve(config, egress=Egress(allow_callbacks=("10.1.0.0/16",))))
        self.successResultOf(check())
        taker(config)
        self.failureResultOf(check(), AddressRefused)


class SignalTests(TestCase):
    def setUp(self) -> None:
        before = signal.getsignal(signal.SIGHUP)
        self.addCleanup(signal.signal, signal.SIGHUP, before)

    async def test_sighup_reloads(self) -> None:
        reloaded: Deferred[None] = Deferred()
        reload_at_hangup(reactor, partial(reloaded.callback, None))
        os.kill(os.getpid(), signal.SIGHUP)
        await reloaded

    async def test_sigusr1_reopens_and_does_what_it_did(self) -> None:
        earlier: list[int] = []
        before = signal.signal(signal.SIGUSR1, lambda number, frame: earlier.append(number))
        self.addCleanup(signal.signal, signal.SIGUSR1, before)
        reopened: Deferred[None] = Deferred()
        reopen_at_request(reactor, partial(reopened.callback, None))
        await deferLater(IReactorTime(reactor), 0)  # now the reactor runs
        os.kill(os.getpid(), signal.SIGUSR1)
        await reopened
        self.assertEqual(earlier, [signal.SIGUSR1])

    def test_sigusr1_ends_no_broker_that_starts(self) -> None:
        before = signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        self.addCleanup(signal.signal, signal.SIGUSR1, before)
        asked: list[object] = []
        not_running = SimpleNamespace(callFromThread=asked.append, callWhenRunning=id)
        reopen_at_request(not_running, print, at_once=True)
        self.assertTrue(callable(signal.getsignal(signal.SIGUSR1)))
        os.kill(os.getpid(), signal.SIGUSR1)
        self.assertEqual(asked, [print])
