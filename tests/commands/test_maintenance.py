"""export, import and sweep."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

from rsscloud_broker import storage
from rsscloud_broker.apps.test_feed.items import TABLES, TestItem, add_item
from rsscloud_broker.runtime.data_lock import hold
from rsscloud_broker.storage.accounts import add_account
from rsscloud_broker.storage.nodes import ensure_registered
from tests.commands.cases import CommandTests
from tests.notes import FIRST
from tests.postgresql import empty_database
from tests.processes import BIN

OLD = {
    "version": 2,
    "feeds": {
        "http://example.org/rss.xml": {
            "resource": {},
            "subscriptions": [
                {
                    "url": "http://reader.example:8080/notify",
                    "protocol": "http-post",
                    "ctUpdates": 3,
                    "ctErrors": 0,
                    "ctConsecutiveErrors": 0,
                    "whenCreated": "2025-01-01T00:00:00.000Z",
                    "whenLastUpdate": "2025-01-01T00:00:00.000Z",
                    "whenLastError": "1970-01-01T00:00:00.000Z",
                    "whenExpires": "2999-01-01T00:00:00.000Z",
                }
            ],
        }
    },
}


class MaintenanceTests(CommandTests):
    def setUp(self) -> None:
        super().setUp()
        self.url = f"sqlite:///{self.data}/broker.sqlite"

    def import_old(self, *where: str) -> str:
        """Import the old data: into the data directory, if no other place is given."""
        file = self.written("data.json", json.dumps(OLD))
        return self.output_of("import", *(where or ("--data", self.data)), file)

    def topics(self, *where: str) -> Any:
        """The topics that are exported."""
        return json.loads(self.output_of("export", *(where or ("--data", self.data))))["topics"]


class DatabaseTests(MaintenanceTests):
    """export, import and sweep"""

    def test_go_by_the_clock_of_the_database(self) -> None:
        """As brokers do, which may run on other computers; this one's clock is wrong."""
        self.patch(time, "time", lambda: 5e10)  # the lease has ended by then
        self.assertIn("topics: 1, subscriptions: 1", self.import_old())
        swept = self.output_of("sweep", "--data", self.data)
        self.assertIn("dropped subscriptions: 0 expired", swept)

    def test_there_and_back(self) -> None:
        self.import_old()
        exported = self.output_of("export", "--data", self.data)
        (topic,) = json.loads(exported)["topics"]
        self.assertEqual(topic["url"], "http://example.org/rss.xml")
        (subscription,) = topic["subscriptions"]
        self.assertEqual(subscription["callback"], "http://reader.example:8080/notify")

        other = str(self.directory / "other")
        self.output_of("import", "--data", other, "-", stdin=exported)
        self.assertEqual(self.topics("--data", other), [topic])

    def test_what_became_of_a_document_is_said(self) -> None:
        taken = OLD["feeds"]["http://example.org/rss.xml"]["subscriptions"][0]  # type: ignore[index] # it is there
        different: tuple[dict[str, object], ...] = (
            {"url": "http://reader.example/1", "ctConsecutiveErrors": 3},
            {"url": "http://reader.example/2", "protocol": "websub"},
            {"url": "http://reader.example/3", "whenExpires": "2001-01-01T00:00:00Z"},
            {"url": "http://reader.example/4", "protocol": "pigeon\x1b"},
        )
        some = [taken, *(taken | one for one in different)]
        feeds = {"http://example.org/rss.xml": {"resource": None, "subscriptions": some}}
        file = self.written("d.json", json.dumps({"version": 2, "feeds": feeds}))
        configuration = self.written("c.toml", "listen = ['tcp:8181']\n")
        options = ("--config", configuration, "--data", self.data)
        expected = [
            "topics: 1, subscriptions: 3",
            "of these, to be dropped since their callbacks failed too often in a row, at "
            "the top of the hour: 1",
            "of these, by WebSub from another hub: 1; their deliveries name "
            "http://localhost:8181/websub",
            "left out because they had expired: 1",
            "left out because no notifier here speaks pigeon: 1",
        ]
        said = self.output_of("import", *options, file).splitlines()
        self.assertEqual(
            [line[: len(start)] for line, start in zip(said, expected, strict=True)], expected
        )
        again = self.output_of("import", *options, file).splitlines()
        self.assertEqual(again[1], "of these, in the place of one that was here: 3")

    def test_protocol_whose_notifier_does_not_run(self) -> None:
        file = self.written("c.toml", "[notifiers.http_post]\nenabled = false\n")
        said = self.import_old("--config", file, "--data", self.data)
        self.assertIn("left out because no notifier here speaks http-post: 1", said)

    def test_export_to_a_file(self) -> None:
        self.import_old()
        file = self.directory / "export.json"
        self.assertEqual(self.output_of("export", "--data", self.data, str(file)), "")
        self.assertEqual(file.stat().st_mode & 0o777, 0o600, "there are secrets in it")
        self.assertEqual(len(json.loads(file.read_text())["topics"]), 1)

    def test_export_says_what_is_left_out(self) -> None:
        Path(self.data).mkdir()
        storage.migrate(self.url, {"test_feed": TABLES})
        with storage.open_database(self.url) as connection:
            self.assertEqual(storage.left_out(connection), [])
            add_account(connection, "dave", "", False, 1000.0)
            add_item(connection, TestItem(900, "urn:uuid:1"), 20)
            self.assertEqual(storage.left_out(connection), ["account", "test_feed_item"])
        command = [str(BIN / "rsscloud-broker"), "export", "--data", self.data]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        self.assertEqual(json.loads(done.stdout)["topics"], [])
        self.assertIn("Not exported", done.stderr)
        self.assertIn("account, test_feed_item. To keep", done.stderr)

    def test_the_database_of_a_configuration(self) -> None:
        database = self.directory / "elsewhere.sqlite"
        file = self.written("c.toml", f'database = "sqlite:///{database}"\n')
        self.import_old("--config", file)
        self.assertTrue(database.exists())
        self.assertEqual(len(self.topics("--config", file)), 1)

    def test_backup_and_restore(self) -> None:
        file, other = self.directory / "backup", str(self.directory / "other")
        self.assertIn("does not exist", self.complaint_of("backup", "--data", self.data, str(file)))
        self.import_old()
        self.output_of("backup", "--data", self.data, str(file))
        Path(other).mkdir()
        with hold(other):
            told = self.complaint_of("restore", "--data", other, str(file))
            self.assertIn(f"a broker runs with {other}: stop it", told)
        self.assertIn("1 files", self.output_of("restore", "--data", other, str(file)))
        self.assertEqual(self.topics("--data", other), self.topics())
        for again in ("backup", "restore"):
            told = self.complaint_of(again, "--data", other, str(file))
            self.assertIn("exists already, and is not overwritten", told)

    def test_restore_of_a_file_that_is_not_there(self) -> None:
        other = self.directory / "other"
        told = self.complaint_of("restore", "--data", str(other), str(self.directory / "backup"))
        self.assertIn("backup does not exist; name a file that backup has made", told)
        self.assertFalse(other.exists())

    def test_export_to_a_pipe(self) -> None:
        """As the shell names it, for instance: export >(gzip > FILE)."""
        self.import_old()
        reader, writer = os.pipe()
        self.output_of("export", "--data", self.data, f"/dev/fd/{writer}")
        os.close(writer)
        with open(reader, "rb") as pipe:
            self.assertIn("topics", json.load(pipe))

    def test_backup_of_postgresql(self) -> None:
        url = "postgresql+psycopg://me:secret@db.example/broker"
        file = self.written("c.toml", f"database = '{url}'\n")
        for command, instead in (("backup", "pg_dump"), ("restore", "pg_restore")):
            told = self.complaint_of(command, "--config", file, "FILE")
            self.assertIn(f"Run: {instead} ", told)
            (database,) = re.findall("--dbname='(.*)'", told)
            self.assertEqual(set(database.split()), {"user=me", "host=db.example", "dbname=broker"})

    def test_backup_of_a_postgresql_with_a_standby(self) -> None:
        url = "postgresql+psycopg://me@/broker?host=a.example:5432&host=b.example:5433"
        file = self.written("c.toml", f"database = '{url}&target_session_attrs=read-write'\n")
        told = self.complaint_of("backup", "--config", file, "FILE")
        self.assertIn("host=a.example,b.example", told)
        self.assertIn("port=5432,5433", told)
        self.assertIn("target_session_attrs=read-write", told)

    def test_sweep(self) -> None:
        self.import_old()
        now = int(time.time() * 1e6)
        for expired in (0, 1):
            said = self.output_of("sweep", "--data", self.data)
            self.assertIn(f"{expired} expired, 0 whose callbacks failed", said)
            with storage.open_database(self.url) as connection:
                connection.exec_driver_sql(f"UPDATE subscription SET expires_at = {now}")
                (count,) = connection.exec_driver_sql("SELECT count(*) FROM subscription").one()
            self.assertEqual(count, 1 - expired)

    def test_no_database_is_made_by_mistake(self) -> None:
        for command in ("export", "sweep"):
            complaint = self.complaint_of(command, "--data", self.data)
            self.assertIn("broker.sqlite does not exist", complaint)
        self.assertFalse(Path(self.data).exists())

    def test_copy_of_a_database(self) -> None:
        self.import_old()
        file = self.written("c.toml", f'database = "{empty_database()}"\n')
        copy = ("import", "--config", file, "--from", self.url)
        said = self.output_of(*copy)
        self.assertIn("subscription: 1\ntopic: 1\n2 rows were copied.\nNot copied are files", said)
        self.assertEqual(self.topics("--config", file), self.topics())
        self.assertIn("is not empty", self.complaint_of(*copy))

    def test_copy_of_what_is_no_database(self) -> None:
        for source, said in (
            ("broker.sqlite", "'--from' is no SQLAlchemy URL"),
            (f"sqlite:///{self.directory}/none", "/none does not exist"),
        ):
            complaint = self.complaint_of("import", "--data", self.data, "--from", source)
            self.assertIn(said, complaint)
            self.assertEqual(complaint.count("\n"), 1)
        self.assertFalse(Path(self.data).exists())
        for both in ((), ("--from", "sqlite:///x", "-")):
            self.misuse_of("import", "--data", self.data, *both)

    def test_copy_leaves_out_what_is_not_installed(self) -> None:
        storage.migrate(self.url, {"notes": FIRST})
        with storage.open_database(self.url) as connection:
            connection.exec_driver_sql("INSERT INTO notes_note (id) VALUES (7)")
        done = self.run_command("import", "--data", str(self.directory / "new"), "--from", self.url)
        self.assertEqual(done.exit_code, 0)
        self.assertIn("Not copied are the tables notes_note, which belong to nothing", done.stderr)

    def test_what_cannot_be_imported(self) -> None:
        for content, reason in (
            ("", "is not JSON"),
            ("[" * 100_000, "is not JSON"),
            ("[]", "must"),
            ('{"version": 99}', "version"),
            (json.dumps(OLD).replace("http-post", ""), "protocol"),
        ):
            file = self.written("d.json", content)
            self.assertIn(reason, self.complaint_of("import", "--data", self.data, file))

    def test_a_reader_that_has_had_enough(self) -> None:
        """``head`` closes the pipe, for instance."""
        self.import_old()
        reading, writing = os.pipe()
        os.close(reading)
        command = [str(BIN / "rsscloud-broker"), "export", "--data", self.data]
        ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
        os.close(writing)
        self.assertEqual((ended.returncode, ended.stderr), (0, b""))


class NodesTests(MaintenanceTests):
    def setUp(self) -> None:
        super().setUp()
        self.import_old()

    def nodes(self) -> tuple[Any, str]:
        """What the command prints: as JSON, and as text."""
        text = self.output_of("nodes", "--data", self.data)
        return json.loads(self.output_of("nodes", "--data", self.data, "--json")), text

    def test_nobody(self) -> None:
        self.assertEqual(self.nodes(), ([], "No broker works on this database.\n"))

    def test_only_broker_on_sqlite(self) -> None:
        with storage.open_database(self.url) as connection:
            ensure_registered(connection, None)
        (node,), text = self.nodes()
        self.assertEqual((node["silent_for"], node["ping_rate"], node["jobs"]), (None, None, []))
        self.assertIn(f" {os.getpid()}", node["name"])
        self.assertIn("works on      nothing", text)
        self.assertIn("writes none", text)
