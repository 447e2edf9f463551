"""Checks of the machine, with real files and ports."""

from __future__ import annotations

import os
import socket
from resource import RLIMIT_NOFILE, getrlimit
from unittest import SkipTest

import rsscloud_broker.plugins
import twisted.plugins
from rsscloud_broker import storage
from rsscloud_broker.commands.doctor_checks import machine
from rsscloud_broker.config import Metrics, Storage
from rsscloud_broker.storage import migrate
from tests.commands.doctor_checks.cases import DoctorTestCase


class BrokerTests(DoctorTestCase):
    async def test_whether_it_runs(self) -> None:
        await self.assert_only(machine.broker, "warn", "no broker runs")
        self.run_broker()
        await self.assert_only(machine.broker, "ok")


class DataTests(DoctorTestCase):
    async def test_well(self) -> None:
        migrate(self.config.database_url)
        await self.assert_only(machine.data, "ok", f"{self.data} can be written; ")

    async def test_to_be_made(self) -> None:
        self.data.rmdir()
        await self.assert_only(machine.data, "ok", "will be made")

    async def test_for_root(self) -> None:
        if os.geteuid() != 0:
            raise SkipTest("only root may give files away")
        os.chown(self.data, 65534, -1)
        results = await self.assert_levels(machine.data, "ok", "warn")
        self.assertIn("this check ran as root", results[1][1])

    async def test_a_file_in_its_place(self) -> None:
        self.data.rmdir()
        self.data.write_text("")
        await self.assert_only(machine.data, "fail", "is no directory")

    async def test_secrets_that_everybody_may_read(self) -> None:
        migrate(self.config.database_url)
        file = self.data / "broker.sqlite"
        file.chmod(0o644)
        results = await self.assert_levels(machine.data, "ok", "warn")
        self.assertIn("the secrets of subscribers", results[1][1])
        self.assertEqual(results[1][2], f"chmod o-rwx {file}")

    async def test_a_configuration_with_secrets(self) -> None:
        file = self.home / "broker.toml"
        file.write_text("")
        file.chmod(0o644)
        publisher = {"topic": "https://x.example/", "token": "t" * 16}
        for values, what in (
            (
                {"front_doors": {"resourcesync": {"publishers": [publisher]}}},
                "tokens of publishers",
            ),
            ({"metrics": Metrics(token="t" * 16), "front_doors": {}}, "the token of the metrics"),
            ({"database": "postgresql+psycopg://me:sesame@h/x", "metrics": Metrics()}, "password"),
            ({"database": "postgresql+psycopg://me@h/x?password=sesame"}, "password"),
        ):
            self.change(**values)
            results = await self.results(machine.data, self.context(config_file=str(file)))
            self.assertIn(what, results[-1][1])
            self.assertNotIn("sesame", str(results))
        self.change(database=None)
        results = await self.results(machine.data, self.context(config_file=str(file)))
        self.assertEqual([level for level, _, _ in results], ["ok"])


class LogTests(DoctorTestCase):
    async def test_log(self) -> None:
        self.assertEqual(await self.results(machine.log), [])
        context = self.context(log_file=str(self.home / "broker.log"))
        await self.assert_only(machine.log, "ok", context=context)
        context = self.context(log_file=str(self.home / "none" / "broker.log"))
        await self.assert_only(machine.log, "ok", context=context)  # it can be made
        (self.home / "file").write_text("")
        context = self.context(log_file=str(self.home / "file" / "broker.log"))
        await self.assert_only(machine.log, "fail", "--logfile", context=context)


class DiskTests(DoctorTestCase):
    async def test_space(self) -> None:
        status = os.statvfs(self.data)
        free, size = (n * status.f_frsize for n in (status.f_bavail, status.f_blocks))
        self.change(storage=Storage(min_free_mb=0))
        self.assertEqual((await self.results(machine.disk))[0][0], "ok")
        if free < size // 10:
            return  # this disk has too little anyway
        self.patch(machine, "_PLENTY", 10_000)
        self.change(storage=Storage())
        ((level, found, advice), *_) = await self.results(machine.disk)
        self.assertEqual((level, advice), ("warn", "make room there soon"))
        self.assertIn("below 100 MB the broker accepts nothing new", found)

    async def test_too_little(self) -> None:
        self.patch(storage, "required_space", lambda *_: 2**62)
        ((level, found, advice), *_) = await self.results(machine.disk)
        self.assertEqual((level, "min_free_mb" in advice), ("fail", True))
        self.assertIn("accepts nothing new", found)


class EndpointTests(DoctorTestCase):
    async def test_free(self) -> None:
        await self.assert_only(machine.endpoints, "ok")
        self.run_broker()
        await self.assert_only(machine.endpoints, "warn", "nobody listens")

    async def test_taken(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            self.change(listen=(f"tcp:{port}:interface=127.0.0.1",))
            await self.assert_only(machine.endpoints, "fail", "Address already in use")
            self.run_broker()
            await self.assert_only(machine.endpoints, "ok")

    async def test_of_the_metrics(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            self.change(metrics=Metrics(listen=(f"tcp:{port}:interface=127.0.0.1",)))
            results = await self.assert_levels(machine.endpoints, "ok", "fail")
        self.assertIn(f":{port}: ", results[1][1])

    async def test_of_systemd(self) -> None:
        self.change(listen=("systemd:domain=INET:index=0",))
        await self.assert_only(machine.endpoints, "ok", "was not tried")


class DescriptorsTests(DoctorTestCase):
    async def test_of_this_user(self) -> None:
        await self.assert_only(machine.descriptors, "ok")
        context = self.context()
        context.descriptors = getrlimit(RLIMIT_NOFILE)[1] + 1
        await self.assert_only(
            machine.descriptors, "warn", "a process of this user", context=context
        )

    async def test_of_the_running_broker(self) -> None:
        context = self.context()
        for number, expected in (("100", "ok"), ("99", "warn")):
            context.arrived = {"descriptors": number}
            await self.assert_only(
                machine.descriptors, expected, "the running broker", context=context
            )


class PluginCacheTests(DoctorTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.directory = self.home / "plugins"
        self.directory.mkdir()
        self.patch(twisted.plugins, "__path__", [str(self.directory)])
        self.patch(rsscloud_broker.plugins, "__path__", [])

    async def test_nothing_to_cache(self) -> None:
        self.assertEqual(await self.results(machine.plugin_caches), [])

    async def test_states(self) -> None:
        (self.directory / "one.py").write_text("")
        await self.assert_only(machine.plugin_caches, "ok", "will be written")
        cache = self.directory / "dropin.cache"
        cache.write_text("")
        await self.assert_only(machine.plugin_caches, "ok", "is up to date")
        os.utime(cache, (1, 1))
        await self.assert_only(machine.plugin_caches, "ok", "will be written")
        self.patch(os, "access", lambda *_, **__: False)
        await self.assert_only(machine.plugin_caches, "warn", "as root, run: twistd --help")
