"""Tests the checks before a start, with real files and ports."""

from __future__ import annotations

import os
from fcntl import LOCK_SH, flock
from pathlib import Path
from pwd import getpwuid
from tempfile import TemporaryDirectory
from typing import Any
from unittest import SkipTest

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.apps.follows.options import FollowedFeed
from rsscloud_broker.config import Config, Log
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.runtime import data_lock
from rsscloud_broker.runtime.start_checks import Findings, examine, file_faults
from rsscloud_broker.sinks.archive import ArchiveOptions
from rsscloud_broker.storage import migrate
from rsscloud_broker.storage.upgrade import LATEST_REVISION
from tests.processes import free_port, new_directory
from tests.storage import next_version

#: A user who owns nothing.
NOBODY = 65534


class StartChecksTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.home = new_directory(self)
        self.data = self.home / "data"
        listen = f"tcp:{free_port()}:interface=127.0.0.1"
        self.config = Config(data=str(self.data), listen=(listen,))

    def found(self) -> Findings:
        """Run the checks; assert that they change no file."""
        before = sorted(self.home.rglob("*"))
        findings = examine(self.config)
        self.assertEqual(sorted(self.home.rglob("*")), before)
        return findings

    def faults(self) -> list[str]:
        return self.found().faults


class DataTests(StartChecksTestCase):
    def test_all_is_well(self) -> None:
        self.assertEqual(self.found(), Findings("will be made", "will be made"))
        self.data.mkdir()
        self.assertEqual(self.found(), Findings("can be written", "will be made"))

    def test_deep_directories_are_made(self) -> None:
        self.config = evolve(self.config, data=str(self.data / "a" / "b"))
        self.assertEqual(self.found().data, "will be made")

    def test_a_file_in_its_place(self) -> None:
        self.data.write_text("")
        self.assertEqual(
            self.faults(),
            [
                f"{self.data} is no directory, so nothing can be kept in {self.data}; "
                "--data names another directory"
            ],
        )

    def test_a_directory_of_the_database(self) -> None:
        """The database may be outside the data directory."""
        file = self.home / "other"
        file.write_text("")
        self.config = evolve(self.config, database=f"sqlite:///{file}/broker.db")
        (fault,) = self.faults()
        self.assertIn(f"{file} is no directory", fault)
        self.assertIn("'database' in the configuration names another", fault)

    def test_a_database_of_a_broker_with_other_data(self) -> None:
        migrate(self.config.database_url)
        other = self.home / "other"
        other.mkdir()
        beside = evolve(self.config, data=str(other), database=self.config.database_url)
        with data_lock.hold(str(self.data), name="broker.sqlite.lock"):
            with data_lock.hold(str(self.data)):
                self.assertEqual(self.faults(), [])  # it is the broker itself that runs
            self.config = beside
            (fault,) = self.faults()
            self.assertIn(f"a broker with other data works on {self.data}/broker.sqlite", fault)
        self.assertEqual(self.faults(), [])

    def test_of_another_database_there_is_no_file(self) -> None:
        self.config = evolve(self.config, database="sqlite://")
        self.assertEqual(file_faults(self.config), [])
        (fault,) = self.faults()
        self.assertIn("is in memory and would keep nothing", fault)

    def test_root_is_told_whose_the_data_are(self) -> None:
        if os.geteuid() != 0:
            raise SkipTest("only root may give files away")
        self.data.mkdir()
        self.assertEqual(self.found().notes, [])
        os.chown(self.data, NOBODY, NOBODY)
        (note,) = self.found().notes
        self.assertIn(f"this check ran as root, who may do anything, and {self.data} belongs", note)
        self.assertIn("runuser -u nobody", note)


class ArchivesTests(StartChecksTestCase):
    def notes(self, feed: dict[str, Any], **archive: Any) -> list[str]:
        self.config = evolve(
            self.config,
            sinks={"archive": archive},
            front_doors={"follows": {"feeds": [feed]}},
        )
        return self.found().notes

    def test_pings_that_come_into_no_archive(self) -> None:
        (note,) = self.notes({"catch_up_hours": 169})
        self.assertIn("catch_up_hours = 169, and [sinks.archive] has keep_hours = 168", note)
        self.assertEqual(self.notes({"catch_up_hours": 720}, keep_hours=720), [])
        self.assertEqual(self.notes({"catch_up_hours": 720}, enabled=False), [])

    def test_what_is_not_configured_goes_together(self) -> None:
        kept, taken = ArchiveOptions().keep_hours, FollowedFeed("http://a.example/").catch_up_hours
        self.assertEqual((kept, taken), (168, 24))
        self.assertEqual(self.notes({}, keep_hours=24), [])


class ForeignUserTests(StartChecksTestCase):
    """The broker runs as a user who may not do what it needs."""

    def setUp(self) -> None:
        super().setUp()
        if os.geteuid() != 0:
            raise SkipTest("only root can become another user")
        # One that others may enter, unlike that of trial.
        self.home = Path(self.enterContext(TemporaryDirectory()))
        self.home.chmod(0o755)
        self.data = self.home / "data"
        self.config = evolve(self.config, data=str(self.data))

    def give(self, path: Path, owner: int = NOBODY) -> None:
        """Make a directory of somebody."""
        path.mkdir()
        os.chown(path, owner, owner)

    def assert_nobody_is_told(self, sentence: str) -> None:
        before = sorted(self.home.rglob("*"))
        self.addCleanup(os.seteuid, 0)
        os.seteuid(NOBODY)
        found = examine(self.config)
        os.seteuid(0)
        self.assertEqual(found.faults, [sentence])
        self.assertEqual(sorted(self.home.rglob("*")), before)

    def test_data_of_somebody_else(self) -> None:
        self.give(self.data, 0)
        self.assert_nobody_is_told(
            f"{self.data} belongs to root (drwxr-xr-x), and the broker runs as nobody: "
            f"chown -R nobody {self.data}, or --data names another directory"
        )

    def test_data_of_a_user_who_may_run_the_broker(self) -> None:
        self.give(self.data, 1)
        owner = getpwuid(1).pw_name
        self.assert_nobody_is_told(
            f"{self.data} belongs to {owner} (drwxr-xr-x), and the broker runs as nobody: chown -R "
            f"nobody {self.data}, start the broker as {owner}, or --data names another directory"
        )

    def test_data_that_cannot_be_made(self) -> None:
        self.assert_nobody_is_told(
            f"{self.data} is not there, and nobody may not make it in {self.home}: make it for "
            f"nobody (install -d -o nobody {self.data}), or --data names another directory"
        )

    def test_data_in_a_place_that_is_closed(self) -> None:
        self.data.mkdir()
        self.home.chmod(0o700)
        self.assert_nobody_is_told(
            f"{self.data} cannot be reached: nobody may not enter {self.home}; "
            "--data names another directory"
        )

    def test_data_whose_owner_took_his_own_rights_away(self) -> None:
        self.give(self.data)
        self.data.chmod(0o500)
        self.assert_nobody_is_told(
            f"{self.data} cannot be written by its owner nobody (dr-x------): "
            f"chmod -R u+rwX {self.data}, or --data names another directory"
        )

    def test_a_database_of_somebody_else(self) -> None:
        """As a command leaves it that root ran before the first start."""
        self.give(self.data)
        database = self.data / "broker.sqlite"
        migrate(self.config.database_url)
        self.assert_nobody_is_told(
            f"{database} belongs to root (-rw-------), and the broker runs as nobody: chown -R "
            f"nobody {database}, or 'database' in the configuration names another file"
        )

    def test_a_command_for_a_database_of_somebody_else(self) -> None:
        self.give(self.data)
        migrate(self.config.database_url)
        self.addCleanup(os.seteuid, 0)
        os.seteuid(NOBODY)
        said = str(self.assertRaises(Unavailable, migrate, self.config.database_url))
        self.assertIn("Permission denied", said)
        self.assertIn("Do this as the broker's user", said)

    def test_a_directory_for_crawlers_of_somebody_else(self) -> None:
        self.give(self.data)
        public = self.data / "public"
        self.give(public, 0)
        self.assert_nobody_is_told(
            f"{public} belongs to root (drwxr-xr-x), and the broker runs as nobody: "
            f"chown -R nobody {public}, or --data names another directory"
        )

    def test_a_port_that_needs_rights(self) -> None:
        first = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
        if not first.exists() or int(first.read_text()) < 1024:
            raise SkipTest("no port needs rights here")
        self.give(self.data)
        self.config = evolve(self.config, listen=("tcp:81:interface=127.0.0.1",))
        self.assert_nobody_is_told(
            "cannot listen on port 81: ports below 1024 need rights; have systemd open it (a "
            "socket unit, as in tap/), give the service "
            "AmbientCapabilities=CAP_NET_BIND_SERVICE, or name another port with --listen"
        )


class DatabaseTests(StartChecksTestCase):
    def setUp(self) -> None:
        super().setUp()
        migrate(self.config.database_url)
        self.file = self.data / "broker.sqlite"

    def test_up_to_date(self) -> None:
        self.assertEqual(self.found().database, f"revision {LATEST_REVISION}, which is up to date")

    def test_older(self) -> None:
        state = f"revision {LATEST_REVISION}; the start migrates it to {next_version.REVISION}"
        with next_version.installed():
            self.assertEqual(self.found().database, state)

    def test_empty(self) -> None:
        self.file.write_bytes(b"")
        self.assertIn("has no tables yet; the start makes those of", self.found().database)


class DataLockTests(SynchronousTestCase):
    def test_one_at_a_time(self) -> None:
        """The lock says where the broker is that has it."""
        data = self.mktemp()
        self.assertEqual((data_lock.is_held(data), data_lock.address_of(data)), (False, ""))
        Path(data).mkdir()
        self.assertFalse(data_lock.is_held(data))
        with data_lock.hold(data, "http://localhost:8000"):
            self.assertTrue(data_lock.is_held(data))
            self.assertRaises(BlockingIOError, data_lock.hold, data, "http://localhost:9")
            self.assertEqual(data_lock.address_of(data), "http://localhost:8000")
        self.assertFalse(data_lock.is_held(data))
        self.assertEqual(data_lock.address_of(data), "")  # it does not run any more
        with data_lock.hold(data):  # a command, which is no broker
            self.assertEqual(data_lock.address_of(data), "")

    def test_a_start_while_somebody_looks(self) -> None:
        """A command that looks whether a broker runs has the lock for a moment."""
        data = self.mktemp()
        Path(data).mkdir()
        looking = self.enterContext(Path(data, "lock").open("ab"))
        flock(looking, LOCK_SH)
        self.patch(data_lock, "sleep", lambda _: looking.close())
        with data_lock.hold(data):
            self.assertTrue(data_lock.is_held(data))


class AccessLogTests(StartChecksTestCase):
    def with_access(self, path: str) -> None:
        self.config = evolve(self.config, log=Log(access=path))

    def test_what_can_be_written(self) -> None:
        path = self.home / "access.log"
        for access in ("", "-", str(path)):
            self.with_access(access)
            self.assertEqual(self.faults(), [])
        path.write_text("")
        self.assertEqual(self.faults(), [])

    def test_no_directory_or_a_directory_in_its_place(self) -> None:
        for access, said in (
            (self.home / "none" / "access.log", f"{self.home}/none is no directory"),
            (self.home, "is a directory: name a file in [log] access"),
        ):
            self.with_access(str(access))
            (fault,) = self.faults()
            self.assertIn(said, fault)

    def test_a_file_of_somebody_else(self) -> None:
        if os.geteuid():
            raise SkipTest("only root can become another user")
        home = Path(self.enterContext(TemporaryDirectory()))
        home.chmod(0o755)
        data, closed = home / "data", home / "closed"
        for directory in (data, closed):
            directory.mkdir(mode=0o700)
        os.chown(data, NOBODY, -1)
        (home / "access.log").touch(0o640)
        self.addCleanup(os.seteuid, 0)
        os.seteuid(NOBODY)
        for path, said in (
            (home / "access.log", "cannot be written by"),
            (home / "other.log", f"may not write in {home}"),
            (closed / "access.log", f"may not write in {closed}"),
            (closed / "a" / "access.log", "is no directory, or"),
        ):
            log = Log(access=str(path))
            (fault,) = file_faults(evolve(self.config, data=str(data), log=log))
            self.assertIn(f"the access log {path} cannot be ", fault)
            self.assertIn(said, fault)
