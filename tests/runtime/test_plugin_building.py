"""Tests that errors of plugins name the plugin and its package, and say what to do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from attrs import field, frozen
from twisted.plugin import IPlugin
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import directlyProvides, implementer

from rsscloud_broker import __version__
from rsscloud_broker.interfaces import (
    IEventSink,
    INotifier,
    INotifierMaker,
    IPushesContent,
    ISinkMaker,
)
from rsscloud_broker.model import Denial, Intent, Notification, Outcome
from rsscloud_broker.runtime.plugin_building import (
    Given,
    make_all,
    make_notifiers,
    protocols,
    pushed_prefixes,
)
from rsscloud_broker.runtime.plugin_discovery import Makers, PluginError, discover
from rsscloud_broker.testing import FakeNotifier, RecordingSink, sink_parts


@frozen
class Options:
    """No options."""


@implementer(IPlugin, ISinkMaker, INotifierMaker)
@frozen
class Maker:
    """A maker whose ``make`` a test gives."""

    name: str
    make: Callable[[Any, Any], Any]
    help: str = "For tests."
    options: type = field(default=Options)
    needs: tuple[str, ...] = ()


@implementer(IPushesContent)
@frozen
class PushingMaker(Maker):
    """Makes what pushes content, for which it declares what a test wants."""

    pushed_prefixes: Callable[[Any, str, bool], Any] = field(kw_only=True)


def raising(error: BaseException) -> Callable[[Any, Any], Any]:
    """A ``make`` that raises."""

    def make(options: Any, parts: Any) -> Any:
        raise error

    return make


class Half:
    """A notifier that lacks a part of its interface."""

    protocol = "half"
    carries_content = False
    drop_after_failures = 3

    async def verify(self, intent: Intent, more: str) -> Outcome:
        return Outcome(True)

    async def notify(self, notification: Notification) -> Outcome:
        return Outcome(True)


class Unmarked:
    """A notifier without ``@implementer``."""

    protocol = "unmarked"
    carries_content = False
    drop_after_failures = None
    retries = ()

    async def verify(self, intent: Intent) -> Outcome:
        return Outcome(True)

    async def notify(self, notification: Notification) -> Outcome:
        return Outcome(True)

    async def deny(self, denial: Denial) -> Outcome:
        return Outcome(True)


class MakingTests(SynchronousTestCase):
    def refusal(self, kind: str, *makers: Maker) -> str:
        chosen = [(maker, Options()) for maker in makers]
        error = self.assertRaises(PluginError, make_all, Makers(), kind, chosen, None)
        return str(error)

    def test_made(self) -> None:
        sink = RecordingSink()
        chosen = [(Maker("a", lambda options, parts: (options, parts) and sink), Options())]
        self.assertEqual(make_all(Makers(), "sinks", chosen, None), [sink])

    def test_given_what_it_needs(self) -> None:
        sink, given = RecordingSink(), list[Any]()

        def make(options: Any, parts: Any) -> Any:
            given.append(parts)
            return sink

        maker = Maker("a", make, needs=("clock",))
        parts = sink_parts()
        make_all(Makers(), "sinks", [(maker, Options())], parts)
        self.assertIs(given[0].clock, parts.clock)
        other = object()
        make_all(Makers(), "sinks", [(maker, Options())], parts, clock=other)
        self.assertIs(given[1].clock, other)

    def test_needs_what_does_not_exist(self) -> None:
        maker = Maker("mine", raising(AssertionError()), needs=("clock", "colour", "pages"))
        self.assertEqual(
            self.refusal("sinks", maker),
            "the sink 'mine' of tests.runtime.test_plugin_building needs 'colour', 'pages', which "
            "does not exist; sinks may need: blocks, bus, clock, copy_file, counters, has_hub, "
            "history, in_thread, notifiers, outbound, public_directory, public_url, store; fix or "
            "uninstall it, or set enabled = false in [sinks.mine]",
        )

    def test_uses_what_it_does_not_need(self) -> None:
        maker = Maker("mine", lambda options, parts: parts.store, needs=("clock",))
        error = self.assertRaises(
            PluginError, make_all, Makers(), "sinks", [(maker, Options())], sink_parts()
        )
        self.assertIn(
            "the sink 'mine' of tests.runtime.test_plugin_building cannot be made: make() raised "
            "AttributeError: the sink 'mine' of tests.runtime.test_plugin_building uses 'store', "
            "which it does not name in needs",
            str(error),
        )

    def test_what_is_given_cannot_be_changed(self) -> None:
        given = Given("the sink 'mine'", {"clock": 1})
        with self.assertRaisesRegex(AttributeError, "the sink 'mine' must not change"):
            given.clock = 2
        self.assertEqual(given.clock, 1)

    def test_make_raises(self) -> None:
        for error, said in (
            (ZeroDivisionError("too\nsmall"), "ZeroDivisionError: too small"),
            (SystemExit(), "SystemExit"),
        ):
            message = self.refusal("sinks", Maker("mine", raising(error)))
            self.assertRegex(
                message,
                rf"^the sink 'mine' of tests.runtime.test_plugin_building cannot be made: "
                rf"make\(\) raised {said} "
                rf"\({__file__}, line \d+\); fix or uninstall it, or set enabled = false in "
                r"\[sinks.mine\]$",
            )

    def test_what_does_not_keep_to_its_interface(self) -> None:
        half: Any = Half()
        directlyProvides(half, INotifier)
        lacking: Any = RecordingSink()
        del lacking.name
        directlyProvides(lacking, IEventSink)
        notifier: Any = FakeNotifier("pigeon")
        notifier.protocol = ["pigeon"]
        sink: Any = RecordingSink()
        sink.name = None
        for made, kind, faults in (
            (
                half,
                "INotifier",
                "it lacks the attribute retries, the method verify(intent): implementation "
                "requires too many arguments, it lacks the method deny(denial)",
            ),
            (Unmarked(), "INotifier", "its class is not marked with @implementer"),
            (notifier, "INotifier", "its protocol is a list and must be a str"),
            (None, "IEventSink", "make() returned None"),
            (lacking, "IEventSink", "it lacks the attribute name"),
            (sink, "IEventSink", "its name is a NoneType and must be a str"),
        ):
            word = "notifier" if kind == "INotifier" else "sink"
            self.assertEqual(
                self.refusal(f"{word}s", Maker("mine", partial(_returned, made))),
                f"the {word} 'mine' of tests.runtime.test_plugin_building does not keep to {kind}: "
                f"{faults}; fix or uninstall it, or set enabled = false in [{word}s.mine]",
            )

    def test_all_of_a_kind_are_told_at_once(self) -> None:
        bad = raising(ValueError("no"))
        lines = self.refusal("sinks", Maker("a", bad), Maker("b", bad)).splitlines()
        self.assertEqual([line[:14] for line in lines], ["the sink 'a' o", "the sink 'b' o"])

    def test_two_notifiers_of_one_protocol(self) -> None:
        chosen = [
            (Maker(name, lambda options, outbound: FakeNotifier("pigeon")), Options())
            for name in ("a", "b")
        ]
        error = self.assertRaises(PluginError, make_notifiers, Makers(), chosen, None)
        self.assertEqual(
            str(error),
            "two notifiers carry the protocol 'pigeon': the notifier 'a' of "
            "tests.runtime.test_plugin_building, and the notifier 'b' of "
            "tests.runtime.test_plugin_building; set enabled = false in [notifiers.a] or "
            "[notifiers.b]",
        )

    def test_protocols(self) -> None:
        self.assertIn("soap", protocols({}))
        self.assertNotIn("soap", protocols({"soap": {"enabled": False}}))


class PackageTests(SynchronousTestCase):
    def test_bundled(self) -> None:
        makers = discover()
        package = makers.package_of(makers.sinks["distribution"])
        self.assertEqual(package, f"rsscloud-broker {__version__}")


def _returned(value: object, *args: object) -> object:
    return value


class PushedPrefixesTests(SynchronousTestCase):
    """Which topics the broker does not fetch, since a plugin pushes their content."""

    def declared(self, *declarations: Callable[[Any, str, bool], Any]) -> tuple[str, ...]:
        makers = [
            PushingMaker(f"sink{number}", make=raising(AssertionError()), pushed_prefixes=each)
            for number, each in enumerate(declarations)
        ]
        chosen: dict[str, list[tuple[Any, Any]]] = {
            "notifiers": [(Maker("silent", raising(AssertionError())), Options())],
            "sinks": [(maker, Options()) for maker in makers],
        }
        return pushed_prefixes(Makers(), chosen, "http://broker.example", has_hub=True)

    def test_declared_before_any_part_is_made(self) -> None:
        self.assertEqual(
            self.declared(
                lambda options, url, hub: (f"{url}/{options}/{hub}",),
                lambda options, url, hub: ["http://a.example/", "http://b.example/"],
            ),
            ("http://broker.example/Options()/True", "http://a.example/", "http://b.example/"),
        )

    def test_declarations_that_cannot_be_used(self) -> None:
        for bad in ("http://a.example/", ("http://",), ("",), (b"http://a.example/",), None):
            with self.assertRaises(PluginError) as caught:
                self.declared(partial(_returned, bad))
            self.assertIn(f"pushed_prefixes() returned {bad!r}; it must", str(caught.exception))

    def test_each_problem_has_its_line(self) -> None:
        def broken(options: Any, public_url: str, has_hub: bool) -> Any:
            raise ZeroDivisionError("too small")

        with self.assertRaises(PluginError) as caught:
            self.declared(broken, lambda options, url, hub: (), lambda options, url, hub: "x")
        first, second = str(caught.exception).splitlines()
        self.assertRegex(
            first,
            r"^the sink 'sink0' of tests.runtime.test_plugin_building: pushed_prefixes\(\) raised "
            rf"ZeroDivisionError: too small \({__file__}, line \d+\); fix or uninstall it, or set "
            r"enabled = false in \[sinks.sink0\]$",
        )
        self.assertIn("the sink 'sink2' of tests.runtime.test_plugin_building", second)
