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
        level, text = await self.only(machine.broker(self.patient()))
        self.assertEqual(level, "warn")
        self.assertIn("no broker runs", text)
        self.run_broker()
        self.assertEqual((await self.only(machine.broker(self.patient())))[0], "ok")


class DataTests(DoctorTestCase):
    async def test_well(self) -> None:
        migrate(self.config.database_url)
        level, text = await self.only(machine.data(self.patient()))
        self.assertEqual((level, text), ("ok", f"{self.data} can be written; "))

    async def test_to_be_made(self) -> None:
        self.data.rmdir()
        self.assertIn("will be made", (await self.only(machine.data(self.patient())))[1])

    async def test_for_root(self) -> None:
        if os.geteuid() != 0:
            raise SkipTest("only root may give files away")
        os.chown(self.data, 65534, -1)
        results = await self.results(machine.data(self.patient()))
        self.assertEqual([level for level, _, _ in results], ["ok", "warn"])
        self.assertIn("this check ran as root", results[1][1])

    async def test_a_file_in_its_place(self) -> None:
        self.data.rmdir()
        self.data.write_text("")
        level, text = await self.only(machine.data(self.patient()))
        self.assertEqual(level, "fail")
        self.assertIn("is no directory", text)

    async def test_secrets_that_everybody_may_read(self) -> None:
        migrate(self.config.database_url)
        file = self.data / "broker.sqlite"
        file.chmod(0o644)
        results = await self.results(machine.data(self.patient()))
        self.assertEqual([level for level, _, _ in results], ["ok", "warn"])
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
            results = await self.results(machine.data(self.patient(config_file=str(file))))
            self.assertIn(what, results[-1][1])
            self.assertNotIn("sesame", str(results))
        self.change(database=None)
        results = await self.results(machine.data(self.patient(config_file=str(file))))
        self.assertEqual([level for level, _, _ in results], ["ok"])


class LogTests(DoctorTestCase):
    async def test_log(self) -> None:
        self.assertEqual(await self.results(machine.log(self.patient())), [])
        patient = self.patient(log_file=str(self.home / "broker.log"))
        self.assertEqual((await self.only(machine.log(patient)))[0], "ok")
        patient = self.patient(log_file=str(self.home / "none" / "broker.log"))
        self.assertEqual((await self.only(machine.log(patient)))[0], "ok")  # it can be made
        (self.home / "file").write_text("")
        patient = self.patient(log_file=str(self.home / "file" / "broker.log"))
        level, text = await self.only(machine.log(patient))
        self.assertEqual(level, "fail")
        self.assertIn("--logfile", text)


class DiskTests(DoctorTestCase):
    async def test_space(self) -> None:
        status = os.statvfs(self.data)
        free, size = (n * status.f_frsize for n in (status.f_bavail, status.f_blocks))
        self.change(storage=Storage(min_free_mb=0))
        self.assertEqual((await self.results(machine.disk(self.patient())))[0][0], "ok")
        if free < size // 10:
            return  # this disk has too little anyway
        self.patch(machine, "_PLENTY", 10_000)
        self.change(storage=Storage())
        ((level, found, advice), *_) = await self.results(machine.disk(self.patient()))
        self.assertEqual((level, advice), ("warn", "make room there soon"))
        self.assertIn("below 100 MB the broker accepts nothing new", found)

    async def test_too_little(self) -> None:
        self.patch(storage, "required_space", lambda *_: 2**62)
        ((level, found, advice), *_) = await self.results(machine.disk(self.patient()))
        self.assertEqual(level, "fail")
        self.assertIn("accepts nothing new", found)
        self.assertIn("min_free_mb", advice)


class EndpointTests(DoctorTestCase):
    async def test_free(self) -> None:
        self.assertEqual((await self.only(machine.endpoints(self.patient())))[0], "ok")
        self.run_broker()
        level, text = await self.only(machine.endpoints(self.patient()))
        self.assertEqual(level, "warn")
        self.assertIn("nobody listens", text)

    async def test_taken(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            self.change(listen=(f"tcp:{port}:interface=127.0.0.1",))
            level, text = await self.only(machine.endpoints(self.patient()))
            self.assertEqual(level, "fail")
            self.assertIn("Address already in use", text)
            self.run_broker()
            self.assertEqual((await self.only(machine.endpoints(self.patient())))[0], "ok")

    async def test_of_the_metrics(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            self.change(metrics=Metrics(listen=(f"tcp:{port}:interface=127.0.0.1",)))
            results = await self.results(machine.endpoints(self.patient()))
        self.assertEqual([level for level, _, _ in results], ["ok", "fail"])
        self.assertIn(f":{port}: ", results[1][1])

    async def test_of_systemd(self) -> None:
        self.change(listen=("systemd:domain=INET:index=0",))
        level, text = await self.only(machine.endpoints(self.patient()))
        self.assertEqual(level, "ok")
        self.assertIn("was not tried", text)


class DescriptorsTests(DoctorTestCase):
    async def test_of_this_user(self) -> None:
        self.assertEqual((await self.only(machine.descriptors(self.patient())))[0], "ok")
        patient = self.patient()
        patient.descriptors = getrlimit(RLIMIT_NOFILE)[1] + 1
        level, text = await self.only(machine.descriptors(patient))
        self.assertEqual(level, "warn")
        self.assertIn("a process of this user", text)

    async def test_of_the_running_broker(self) -> None:
        patient = self.patient()
        for number, expected in (("100", "ok"), ("99", "warn")):
            patient.arrived = {"descriptors": number}
            level, text = await self.only(machine.descriptors(patient))
            self.assertEqual(level, expected)
            self.assertIn("the running broker", text)


class PluginCacheTests(DoctorTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.directory = self.home / "plugins"
        self.directory.mkdir()
        self.patch(twisted.plugins, "__path__", [str(self.directory)])
        self.patch(rsscloud_broker.plugins, "__path__", [])

    async def test_nothing_to_cache(self) -> None:
        self.assertEqual(await self.results(machine.plugin_caches(self.patient())), [])

    async def test_states(self) -> None:
        async def said() -> str:
            return ": ".join(await self.only(machine.plugin_caches(self.patient())))

        (self.directory / "one.py").write_text("")
        self.assertIn("will be written", await said())
        cache = self.directory / "dropin.cache"
        cache.write_text("")
        self.assertIn("is up to date", await said())
        os.utime(cache, (1, 1))
        self.assertIn("will be written", await said())
        self.patch(os, "access", lambda *_, **__: False)
        found = await said()
        self.assertTrue(found.startswith("warn: "), found)
        self.assertIn("as root, run: twistd --help", found)
