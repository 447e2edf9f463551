"""Backups of a broker on SQLite, and what may not be restored."""

from __future__ import annotations

import errno
import io
import os
import sqlite3
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.storage import BackupError, backups, restore_backup, save_backup


class BackupTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.directory = Path(self.mktemp()).absolute()
        self.data = self.directory / "data"
        (self.data / "public" / "2026").mkdir(parents=True)
        (self.data / "public" / "2026" / "a.xml").write_text("<a/>")
        (self.data / "public" / "b.xml.part").write_text("unfinished")
        (self.data / "lock").touch()
        self.database = self.data / "broker.sqlite"
        with closing(sqlite3.connect(self.database)) as connection, connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("CREATE TABLE numbers (number)")
            connection.execute("INSERT INTO numbers VALUES (42)")
        self.backup = self.directory / "backup"
        self.other = self.directory / "other"

    def save(self) -> int:
        return save_backup(self.database, self.data, self.backup)

    def restore(self) -> int:
        return restore_backup(self.backup, self.other / "broker.sqlite", self.other)

    def tar(self, *names: str) -> None:
        with tarfile.open(self.backup, "w") as archive:
            for name in names:
                archive.addfile(tarfile.TarInfo(name), io.BytesIO())

    def test_there_and_back(self) -> None:
        """Beside a transaction that is not committed, as of a broker that runs."""
        (self.data / "public" / "2026" / "a.xml").chmod(0o640)
        with closing(sqlite3.connect(self.database, isolation_level=None)) as broker:
            broker.execute("INSERT INTO numbers VALUES (43)")
            broker.execute("BEGIN IMMEDIATE")
            broker.execute("INSERT INTO numbers VALUES (44)")
            self.assertEqual(self.save(), self.backup.stat().st_size)
        self.assertEqual(self.backup.stat().st_mode & 0o777, 0o600)
        self.assertEqual(set(self.directory.iterdir()), {self.data, self.backup})
        self.assertEqual(self.restore(), 2)
        self.assertEqual(self.other.stat().st_mode & 0o777, 0o750)
        with closing(sqlite3.connect(self.other / "broker.sqlite")) as restored:
            rows = restored.execute("SELECT number FROM numbers").fetchall()
        self.assertEqual(rows, [(42,), (43,)])
        archives = [each / "public" / "2026" / "a.xml" for each in (self.data, self.other)]
        self.assertEqual(*[each.read_text() for each in archives])
        before, after = (each.stat() for each in archives)
        # A tar archive stores whole seconds, and rounds.
        self.assertLessEqual(abs(before.st_mtime - after.st_mtime), 1)
        self.assertEqual(after.st_mode & 0o777, 0o640)
        self.assertFalse((self.other / "public" / "b.xml.part").exists())

    def test_database_that_somebody_makes_meanwhile(self) -> None:
        self.save()
        made = self.other / "broker.sqlite"
        self.patch(backups, "_check_undamaged", lambda path: made.write_bytes(b"a new one"))
        self.assertIn("exists already", str(self.assertRaises(BackupError, self.restore)))
        self.assertEqual(made.read_bytes(), b"a new one")

    def test_nothing_is_overwritten(self) -> None:
        self.save()
        for again in (
            self.save,
            lambda: restore_backup(self.backup, self.database, self.data),
            lambda: restore_backup(self.backup, self.other / "broker.sqlite", self.data),
        ):
            self.assertIn("exists already", str(self.assertRaises(BackupError, again)))
        self.assertFalse(self.other.exists())

    def test_documents_of_a_lost_database_are_no_part_of_the_restored_one(self) -> None:
        """As both count their documents, and one that has a file is not made again."""
        self.save()
        (self.other / "feeds" / "b8f7").mkdir(parents=True)
        (self.other / "feeds" / "b8f7" / "2.atom").touch()
        self.assertIn("exists already", str(self.assertRaises(BackupError, self.restore)))
        self.assertFalse((self.other / "broker.sqlite").exists())

    def test_file_systems_without_hard_links(self) -> None:
        """Such as those of USB sticks and some network drives, whose errors differ."""
        for number in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
            self.patch(os, "link", self.refuse(number))
            self.backup = self.directory / f"backup{number}"
            self.other = self.directory / f"other{number}"
            self.assertEqual(self.save(), self.backup.stat().st_size)
            self.assertEqual(self.backup.stat().st_mode & 0o777, 0o600)
            self.assertEqual(self.restore(), 2)
            files = {path.name for path in self.other.rglob("*") if path.is_file()}
            self.assertEqual(files, {"broker.sqlite", "a.xml"})
        self.assertFalse(list(self.directory.glob(".backup-*")))

    def refuse(self, number: int) -> Callable[[object, object], None]:
        """What stands for a call of the system, and fails with an error."""

        def refused(source: object, target: object) -> None:
            raise OSError(number, os.strerror(number))

        return refused

    def test_nothing_is_overwritten_without_hard_links(self) -> None:
        """Neither what somebody makes while the backup is written."""
        self.patch(os, "link", self.refuse(errno.EPERM))
        self.patch(
            backups, "_check_undamaged", lambda path: self.backup.write_bytes(b"of somebody else")
        )
        self.assertIn("exists already", str(self.assertRaises(BackupError, self.save)))
        self.assertEqual(self.backup.read_bytes(), b"of somebody else")

    def test_no_file_is_left_where_none_can_be_made(self) -> None:
        """Neither by a link nor by a renaming."""
        for name in ("link", "replace"):
            self.patch(os, name, self.refuse(errno.EIO))
        self.assertEqual(self.assertRaises(OSError, self.save).errno, errno.EIO)
        self.assertEqual(set(self.directory.iterdir()), {self.data})

    def test_a_backup_that_was_cut_off_between_two_files(self) -> None:
        """Such as by a full disk or a broken connection while it was copied elsewhere."""
        self.save()
        with tarfile.open(self.backup) as archive:
            last = archive.getmembers()[-1].offset
        whole = self.backup.read_bytes()
        for length in (last, last + tarfile.BLOCKSIZE, last + 2 * tarfile.BLOCKSIZE):
            self.backup.write_bytes(whole[:length])
            self.assertIn("is damaged", str(self.assertRaises(BackupError, self.restore)))
        self.assertFalse(self.other.exists())

    def test_what_is_no_backup(self) -> None:
        for text in ("", "not a tar archive, but some text" * 100):  # a crash may leave no text
            self.backup.write_text(text)
            self.assertIn("is not a backup", str(self.assertRaises(BackupError, self.restore)))
        self.tar("public/a.xml")
        self.assertIn("has no broker.sqlite", str(self.assertRaises(BackupError, self.restore)))
        for name in ("../a", "/etc/a", "public/../../a", "lock"):
            self.tar("broker.sqlite", name)
            self.assertIn("not from a broker", str(self.assertRaises(BackupError, self.restore)))
        self.assertFalse(self.other.exists())

    def test_a_damaged_database(self) -> None:
        with self.database.open("r+b") as file:
            file.seek(4096)
            file.write(b"\xff" * 4096)
        self.assertIn("damaged", str(self.assertRaises(BackupError, self.save)))
        self.assertFalse(self.backup.exists())
