"""Tests the resolver with a name server of the tests."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Any
from unittest import mock

from pycares import AresError, Channel, errno
from twisted.internet import reactor
from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.python.threadable import isInIOThread
from twisted.trial.unittest import SynchronousTestCase, TestCase

from rsscloud_broker.errors import Unavailable
from rsscloud_broker.outbound import Resolver, resolver
from rsscloud_broker.outbound.names import Names
from tests.name_server import NameServer


class ResolverTests(TestCase):
    def setUp(self) -> None:
        self.server = NameServer(
            {
                "a.example": ["192.0.2.1", "2001:db8::1", "192.0.2.1"],
                "b.example": ["192.0.2.2"],
                "empty.example": [],
                "silent.example": None,
            }
        )
        self.server.start()
        self.addCleanup(self.server.stop)
        self.patch(resolver, "TRIES", 2)
        self.patch(resolver, "has_public_ipv6", lambda: True)
        self.resolve = self.resolver(self.server.place)

    def resolver(self, *servers: str) -> Resolver:
        made = Resolver(reactor, servers)
        made.startService()
        self.addCleanup(made.stopService)
        return made

    async def problem(self, host: str, kind: type[Exception] = OSError) -> str:
        return await self.why(self.resolve(host), kind)

    async def why(self, looking: Deferred[Any], kind: type[Exception]) -> str:
        return str(await self.assertFailure(looking, kind))

    async def test_addresses(self) -> None:
        self.assertEqual(set(await self.resolve("a.example")), {"192.0.2.1", "2001:db8::1"})
        self.assertEqual(len(await self.resolve("a.example")), 2)
        self.assertEqual(await self.resolve("b.example"), ["192.0.2.2"])
        self.assertEqual(await self.resolve("B.Example."), ["192.0.2.2"])

    async def test_what_needs_no_name_server(self) -> None:
        self.assertEqual(await self.resolve("192.0.2.7"), ["192.0.2.7"])
        self.assertEqual(await self.resolve("2001:db8::7"), ["2001:db8::7"])
        for host in ("localhost", "localhost.", "LocalHost.", "a.localhost."):
            self.assertIn("127.0.0.1", await self.resolve(host), host)
        self.assertEqual(self.server.asked, [])

    async def test_addresses_in_disguise(self) -> None:
        for host in (
            "127.1", "127.0.1", "0x7f.1", "0x7f.0.0.1", "0177.0.0.1", "017700000001", "2130706433",
            "0x7F000001", "127.0.0.1.",
        ):  # fmt: skip
            self.assertEqual(await self.resolve(host), ["127.0.0.1"], host)
        for host in ("256.0.0.1", "1.2.3.4.5", "example.1", "0x", "a.0x7f"):
            self.assertEqual(await self.problem(host), "it is no address", host)
        self.assertEqual(self.server.asked, [])

    async def test_what_is_wrong(self) -> None:
        for has_public_ipv6 in (True, False):
            self.patch(resolver, "has_public_ipv6", lambda has=has_public_ipv6: has)
            self.resolve = self.resolver(self.server.place)
            for host, why in {
                "nobody.test": "there is no such name",
                "empty.example": "it has no address",
                "a..example": "it is no name",
                f"{'x' * 64}.example": "it is no name",
            }.items():
                self.assertEqual(await self.problem(host), why, host)

    async def test_bug_at_one_answer_is_not_the_end(self) -> None:
        with mock.patch.object(resolver, "_addresses", side_effect=ZeroDivisionError):
            self.assertIn("could not be looked up", await self.problem("a.example"))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        for host in ("a.example", "b.example"):
            self.assertIn("192.0.2.", (await self.resolve(host))[0])

    async def test_is_kept(self) -> None:
        for _ in range(3):
            await self.resolve("b.example")
        self.assertEqual(self.server.asked.count("b.example"), 2)  # each kind of address

    async def test_all_wait_for_one_answer(self) -> None:
        """Anyone who forges answers has a better chance with each further question."""
        first, second, third = (self.resolve("b.example") for _ in range(3))
        self.assertEqual(self.resolve.lookups, 1)
        second.cancel()
        self.assertEqual(await first, ["192.0.2.2"])
        self.assertEqual(await third, ["192.0.2.2"])
        await self.why(second, CancelledError)
        self.assertEqual(self.server.asked, ["b.example"] * 2)
        self.assertEqual(self.resolve.lookups, 0)

    async def test_who_is_told_may_ask_again_at_once(self) -> None:
        """Many answers that come together do not nest."""

        is_asking = False

        def ask_again(_: object, number: int) -> Deferred[list[str]]:
            nonlocal is_asking
            self.assertFalse(is_asking)
            is_asking = True
            looking = self.resolve(f"{number}.again.b.example")
            is_asking = False
            return looking

        self.patch(resolver, "TRIES", 5)
        self.resolve = self.resolver(self.server.place)
        tell, count = self.resolve._handle_results, 20
        self.patch(self.resolve, "_handle_results", lambda: None)
        all_asked = [
            self.resolve(f"{number}.b.example").addCallback(ask_again, number)
            for number in range(count)
        ]
        while len(self.resolve._results) < count:
            self.resolve._process()  # lost questions are asked again
            await self.turn()
        self.patch(self.resolve, "_handle_results", tell)
        tell()
        found = await DeferredList(all_asked, consumeErrors=True)
        self.assertEqual(found, [(True, ["192.0.2.2"])] * count)

    async def test_machine_without_public_ipv6(self) -> None:
        """It asks for IPv6 addresses only if there are no others."""
        self.patch(resolver, "has_public_ipv6", lambda: False)
        self.server.names["six.example"] = ["2001:db8::2"]
        self.resolve = self.resolver(self.server.place)
        self.assertEqual(await self.resolve("a.example"), ["192.0.2.1"])
        self.assertEqual(self.server.asked, ["a.example"])
        self.assertEqual(await self.resolve("six.example"), ["2001:db8::2"])
        self.assertEqual(await self.resolve("2001:db8::7"), ["2001:db8::7"])
        self.assertIn("127.0.0.1", await self.resolve("localhost"))

    async def test_is_not_kept_without_end(self) -> None:
        self.patch(resolver, "CACHED", 10)
        self.patch(Names, "keep", lambda *arguments: None)
        for number in range(12):
            await self.resolve(f"{number}.a.example")
        before = len(self.server.asked)
        while len(self.server.asked) == before:
            await self.resolve("0.a.example")
            await self.turn()

    async def test_cannot_be_made_to_forget(self) -> None:
        def fail(channel: object) -> None:
            raise AresError(errno.ARES_ENOMEM, "Out of memory")

        self.patch(resolver, "REFRESH", 0.0)
        self.patch(Names, "keep", lambda *arguments: None)
        self.patch(Channel, "reinit", fail)
        for _ in range(3):
            self.assertEqual(await self.resolve("b.example"), ["192.0.2.2"])

    async def test_nobody_waits_for_those_who_are_silent(self) -> None:
        silent = [self.resolve(f"{number}.silent.example") for number in range(100)]
        self.assertEqual(await self.resolve("b.example"), ["192.0.2.2"])
        self.assertFalse(any(one.called for one in silent))
        for one in silent[1:]:
            one.cancel()
        last, *cancelled = silent
        self.assertEqual(await self.why(last, OSError), "no name server has answered")
        await DeferredList(cancelled, consumeErrors=True)

    async def test_server_that_loses_questions(self) -> None:
        """The resolver asks the name server again."""
        self.server.names["late.example"] = None
        looking = self.resolve("late.example")
        while "late.example" not in self.server.asked:
            await self.turn()
        self.server.names["late.example"] = ["192.0.2.3"]
        self.assertEqual(await looking, ["192.0.2.3"])

    async def turn(self) -> None:
        await deferLater(IReactorTime(reactor), 0.001)

    async def test_no_server(self) -> None:
        gone = NameServer({})
        gone.start()
        gone.stop()
        self.resolve = self.resolver(gone.place)
        why = await self.problem("b.example", Unavailable)
        self.assertEqual(why, "names cannot be looked up just now: no name server can be reached")
        self.assertEqual(str(self.assertRaises(Unavailable, self.resolve.check)), why)
        self.patch(resolver, "LACK_LASTS", 0.0)
        self.resolve.check()  # nobody has asked for long

    async def test_no_file_descriptors(self) -> None:
        await self.resolve("a.example")
        with self.exhausted():
            why = await self.problem("b.example", Unavailable)
        self.assertIn("names cannot be looked up just now", why)
        self.assertRaises(Unavailable, self.resolve.check)
        self.assertEqual(await self.resolve("b.example"), ["192.0.2.2"])
        self.resolve.check()

    @contextlib.contextmanager
    def exhausted(self) -> Any:
        """Use up all file descriptors of the process."""
        import resource  # noqa: PLC0415

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        highest = max(map(int, os.listdir("/proc/self/fd")))
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 10, hard))
        taken = []
        try:
            with contextlib.suppress(OSError):
                while True:
                    taken.append(os.open(os.devnull, os.O_RDONLY))
            yield
        finally:
            for one in taken:
                os.close(one)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    async def test_sockets_are_watched_in_the_thread_of_the_reactor(self) -> None:
        """c-ares opens and closes some sockets in a thread of its own."""
        any_reactor: Any = reactor
        ours, theirs = socket.socketpair()
        self.addCleanup(ours.close)
        self.addCleanup(theirs.close)
        called: list[tuple[str, bool]] = []
        for name in ("addReader", "removeReader", "addWriter", "removeWriter"):
            self.watch_calls(name, called)
        descriptor = ours.fileno()
        await deferToThread(self.resolve._watch, descriptor, True, False)
        await self.turn()
        (watched,) = (one for one in any_reactor.getReaders() if isinstance(one, resolver._Socket))
        await deferToThread(self.resolve._watch, descriptor, False, False)
        ours.close()  # its number may be reused at once
        await self.turn()
        self.assertNotIn(watched, any_reactor.getReaders())
        self.assertRaises(OSError, os.fstat, watched.fileno())
        self.assertEqual({here for _, here in called}, {True})

    def watch_calls(self, name: str, called: list[tuple[str, bool]]) -> None:
        real = getattr(reactor, name)

        def call(watched: object) -> None:
            called.append((name, isInIOThread()))
            real(watched)

        self.patch(self.resolve._reactor, name, call)

    async def test_stop(self) -> None:
        looking = self.resolve("silent.example")
        while not self.server.asked:
            await self.turn()
        self.resolve.stopService()
        why = "names cannot be looked up just now: the broker stops"
        self.assertEqual(await self.why(looking, Unavailable), why)
        self.assertRaises(Unavailable, self.resolve.check)
        await self.problem("b.example", Unavailable)
        self.resolve.startService()
        self.assertEqual(await self.resolve("b.example"), ["192.0.2.2"])


class PublicIPv6Tests(SynchronousTestCase):
    """Whether this machine has a public IPv6 address, by that from which it would call one."""

    def has_public_ipv6(self, source: str) -> bool:
        class Probe(socket.socket):
            def connect(self, place: Any) -> None:
                if not source:
                    raise OSError("network is unreachable")

            def getsockname(self) -> Any:
                return source, 53, 0, 0

        self.patch(socket, "socket", Probe)
        return resolver.has_public_ipv6()

    def test_by_its_source(self) -> None:
        for source, is_public in (
            ("2001:db8::1", True),
            ("3fff::1", True),
            ("", False),
            ("fd00::2", False),
            ("fe80::1", False),
            ("::1", False),
        ):
            self.assertEqual(self.has_public_ipv6(source), is_public, source)
