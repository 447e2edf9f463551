"""account add, passwd, list, remove; account token add, list, remove."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

from sqlalchemy import update

from rsscloud_broker.accounts import Hasher, digest_of
from rsscloud_broker.accounts.accounts import MAX_TOKENS
from rsscloud_broker.config import AccountsConfig
from rsscloud_broker.interfaces import StoredPassword
from rsscloud_broker.runtime import data_lock
from rsscloud_broker.storage import accounts as rows
from rsscloud_broker.storage import open_database
from rsscloud_broker.storage.operating_schema import account
from tests.commands.cases import CommandTests
from tests.processes import BIN
from tests.terminals import open_terminal

PASSWORD = "correct horse"

#: Hashing that takes little time.
QUICK = "[accounts]\nhash_memory_kib = 8192\n"


class AccountTests(CommandTests):
    def setUp(self) -> None:
        super().setUp()
        self.config = self.written("broker.toml", f"data = {self.data!r}\n{QUICK}")
        self.url = f"sqlite:///{self.data}/broker.sqlite"

    def account(self, *arguments: str, stdin: str | None = None) -> str:
        """What a command prints that succeeds."""
        return self.output_of("account", *arguments, "--config", self.config, stdin=stdin)

    def refused(self, *arguments: str, stdin: str | None = None) -> str:
        """What a command says that fails."""
        return self.complaint_of("account", *arguments, "--config", self.config, stdin=stdin)

    def add(self, name: str = "dave", *more: str) -> None:
        self.account("add", name, "--password-stdin", *more, stdin=f"{PASSWORD}\n")

    def stored(self, name: str = "dave") -> StoredPassword:
        """An account, with the hash of its password."""
        with open_database(self.url, writes=False) as connection:
            stored = rows.stored_password(connection, name)
        assert stored is not None
        return stored

    def matches(self, password: str) -> bool:
        return Hasher(AccountsConfig()).matches(self.stored().hash, password)


class LinkTests(AccountTests):
    def test_link(self) -> None:
        self.add()
        printed = [self.account("link", "dave", *more) for more in ((), ("--url", "http://[::1]/"))]
        self.assertRegex(printed[0], r"\Ahttp://localhost:5337/signin/once\?key=[\w-]{43}\n\Z")
        self.assertRegex(printed[1], r"\Ahttp://\[::1\]/signin/once\?key=[\w-]{43}\n\Z")
        with open_database(self.url, writes=False) as connection:
            digests = [digest_of(text.strip().partition("key=")[2]) for text in printed]
            found = [rows.account_of_link(connection, each, 0.0) for each in digests]
        self.assertEqual([each and each.name for each in found], [None, "dave"])

    def test_link_to_a_disabled_account(self) -> None:
        self.add()
        with open_database(self.url) as connection:
            connection.execute(update(account).values(disabled="it sent spam"))
        said = self.refused("link", "dave")
        self.assertIn("dave is disabled (it sent spam)", said)

    def test_where_the_running_broker_listens(self) -> None:
        """It need not be where the configuration says: ``--listen`` may have said otherwise."""
        self.add()
        with data_lock.hold(str(self.data), "http://localhost:8000"):
            printed = self.account("link", "dave")
        self.assertIn("http://localhost:8000/signin/once?key=", printed)

    def test_nobody(self) -> None:
        self.add()
        self.assertIn("there is no account 'anna'", self.refused("link", "anna"))


class PeopleTests(AccountTests):
    def test_add_before_the_first_start(self) -> None:
        self.assertFalse(Path(self.data).exists())
        said = self.account("add", "dave", "--admin", "--password-stdin", stdin=f"{PASSWORD}\n")
        self.assertEqual(said, "dave is an administrator now\n")
        self.assertTrue(self.matches(PASSWORD))
        self.assertIn("m=8192,t=3,p=4", self.stored().hash)

    def test_password_is_the_first_line(self) -> None:
        for stdin in (f"{PASSWORD}\r\nmore\n", PASSWORD):
            self.account("add", "dave", "--password-stdin", stdin=stdin)
            self.assertTrue(self.matches(PASSWORD))
            self.account("remove", "dave")

    def test_bad_names_and_passwords(self) -> None:
        self.assertIn("2 to 32 of the letters", self.refused("add", "Dave", "--password-stdin"))
        self.assertIn("is reserved", self.refused("add", "admin", "--password-stdin"))
        for stdin, said in (("", "at least 10"), ("short\n", "at least 10"), ("a" * 99, "guess")):
            self.assertIn(said, self.refused("add", "dave", "--password-stdin", stdin=stdin))
        self.assertNotIn("dave", self.account("list"))

    def run_add(self, *options: str, **how: Any) -> str:
        """What the real program says that cannot add an account."""
        program = [str(BIN / "rsscloud-broker"), "account", "add", "dave", "--config", self.config]
        done: Any = subprocess.run([*program, *options], check=False, capture_output=True, **how)
        self.assertEqual(done.returncode, 1)
        self.assertNotIn("dave", self.account("list"))
        return str(done.stderr.decode())

    def test_password_that_is_not_utf_8(self) -> None:
        """Otherwise a question mark would be stored for a byte, and any other would fit too."""
        utf_8 = {**os.environ, "PYTHONUTF8": "1"}
        told = self.run_add("--password-stdin", env=utf_8, input=b"correct \xff horse\n")
        self.assertEqual(told, "Error: the password is not UTF-8; nothing was changed\n")

    def test_stdin_that_is_closed(self) -> None:
        told = self.run_add("--password-stdin", preexec_fn=lambda: os.close(0))
        self.assertEqual(told, "Error: stdin is closed; nothing was changed\n")

    def test_without_a_terminal(self) -> None:
        """Such as in a container, where nobody can type a password unseen."""
        told = self.run_add(stdin=subprocess.DEVNULL, start_new_session=True)
        self.assertRegex(told, r"\AError: there is no terminal .* --password-stdin, .*\n\Z")

    def test_name_that_is_taken(self) -> None:
        self.add()
        said = self.refused("add", "dave", "--admin", "--password-stdin", stdin="other password\n")
        self.assertIn("there is an account dave already", said)
        self.assertTrue(self.matches(PASSWORD))

    def test_without_a_password(self) -> None:
        self.account("add", "robot", "--no-password")
        self.assertEqual(self.stored("robot").hash, "")
        self.misuse_of("account", "add", "x2", "--no-password", "--password-stdin")

    def test_password_is_no_argument(self) -> None:
        """Other users of the machine can see arguments."""
        self.misuse_of("account", "add", "dave", "--password", PASSWORD)

    def test_list(self) -> None:
        self.add("dave", "--admin")
        self.add("anna")
        self.account("token", "add", "anna", "--scope", "metrics")
        heading, *lines = self.account("list").splitlines()
        names = "NAME ADMIN DISABLED CREATED SIGNED IN SESSIONS TOKENS"
        self.assertEqual(" ".join(heading.split()), names)
        anna, dave = (line.split() for line in lines)
        self.assertRegex(anna[3], r"^20\d\d-\d\d-\d\dT\d\d:\d\dZ$")
        self.assertEqual([*anna[:3], *anna[4:]], ["anna", "no", "no", "never", "0", "1"])
        self.assertEqual([*dave[:3], *dave[4:]], ["dave", "yes", "no", "never", "0", "0"])

    def test_passwd(self) -> None:
        self.add()
        stored = self.stored()
        session = (stored.account.id, stored.hash, b"1", 1.0, 9e9, "", "", b"", 9)
        with open_database(self.url) as connection:
            rows.add_session(connection, *session)
        self.account("passwd", "dave", "--password-stdin", stdin="another horse\n")
        self.assertTrue(self.matches("another horse"))
        with open_database(self.url, writes=False) as connection:
            self.assertIsNone(rows.session_of(connection, b"1"))

    def test_bad_passwd(self) -> None:
        self.add()
        self.assertIn("at least 10", self.refused("passwd", "dave", "--password-stdin", stdin="x"))
        self.assertIn("no account 'anna'", self.refused("passwd", "anna", "--password-stdin"))
        self.assertTrue(self.matches(PASSWORD))

    def test_remove(self) -> None:
        self.add()
        self.account("remove", "dave")
        self.assertIn("no account 'dave'; account list shows all", self.refused("remove", "dave"))

    def test_without_a_database(self) -> None:
        for arguments in (("list",), ("passwd", "x"), ("remove", "x"), ("token", "list", "x")):
            self.assertIn("does not exist; name the broker's data", self.refused(*arguments))

    def test_newer_database(self) -> None:
        self.add()
        with open_database(self.url) as connection:
            connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
        self.assertIn("newer version", self.refused("list"))


class TokenTests(AccountTests):
    def setUp(self) -> None:
        super().setUp()
        self.account("add", "robot", "--no-password")

    def test_add_list_remove(self) -> None:
        secret = self.account(
            "token", "add", "robot", "--scope", "metrics", "--scope", "metrics", "--days", "30",
            "--for", "a dashboard",
        ).strip()  # fmt: skip
        self.assertRegex(secret, r"^rsb_[A-Za-z0-9_-]{43}$")
        listed = self.account("token", "list", "robot")
        self.assertNotIn(secret, listed)
        number, scopes, _, used, expires, *label = listed.splitlines()[1].split()
        self.assertEqual((scopes, used, label), ("metrics", "never", ["a", "dashboard"]))
        self.assertRegex(expires, r"^20\d\d-")
        self.account("token", "remove", "robot", number)
        self.assertEqual(len(self.account("token", "list", "robot").splitlines()), 1)
        said = self.refused("token", "remove", "robot", number)
        self.assertIn(f"robot has no token {number}", said)

    def test_ids_that_no_token_has(self) -> None:
        for number in ("99999999999999999999", "-1", "one"):
            removal = ("token", "remove", "--config", self.config, "robot", "--", number)
            self.misuse_of("account", *removal)

    def test_bad_tokens(self) -> None:
        for arguments, said in (
            (("robot", "--scope", "everything"), "the scopes are admin, metrics"),
            (("robot", "--scope", "admin"), "only the account of an administrator"),
            (("robot", "--scope", "metrics", "--days", "0"), "1 to 3650 days"),
            (("robot", "--scope", "metrics", "--for", "x" * 81), "1 to 80 characters"),
            (("nobody", "--scope", "metrics"), "no account 'nobody'"),
        ):
            self.assertIn(said, self.refused("token", "add", *arguments))
        self.misuse_of("account", "token", "add", "robot")

    def test_so_many(self) -> None:
        robot, about = self.stored("robot").account.id, ("x", {"metrics"}, 1.0, None, 99)
        with open_database(self.url) as connection:
            for number in range(MAX_TOKENS):
                rows.add_token(connection, robot, b"%d" % number, *about)
        said = self.refused("token", "add", "robot", "--scope", "metrics")
        self.assertIn("as many as an account may have", said)

    def test_scopes_are_explained(self) -> None:
        said = self.output_of("account", "token", "add", "--help")
        for scope in ("admin", "metrics", "metrics"):
            self.assertRegex(said, rf"\b{scope}:")


class TerminalTests(AccountTests):
    """At a terminal the command asks twice, and shows nothing of what is typed."""

    def type(self, *lines: str) -> tuple[int, str]:
        """Run ``account add dave`` at a terminal; its exit status, and what the terminal showed."""
        ours, theirs = open_terminal()
        process = subprocess.Popen(
            [BIN / "rsscloud-broker", "account", "add", "dave", "--config", self.config],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        shown = b""
        waiting = list(lines)
        while True:
            try:
                shown += os.read(ours, 1000)
            except OSError:  # the command has ended
                break
            if waiting and re.search(rb"(Password for dave|The same again): $", shown):
                os.write(ours, f"{waiting.pop(0)}\n".encode())
        os.close(ours)
        return process.wait(60), shown.decode()

    def test_the_same_twice(self) -> None:
        status, shown = self.type(PASSWORD, PASSWORD)
        self.assertEqual(status, 0, shown)
        self.assertNotIn(PASSWORD, shown)
        self.assertIn("dave is an account now", shown)
        self.assertTrue(self.matches(PASSWORD))

    def test_something_else_the_second_time(self) -> None:
        status, shown = self.type(PASSWORD, "other", PASSWORD, PASSWORD)
        self.assertEqual(status, 0, shown)
        self.assertIn("do not match", shown)
        self.assertTrue(self.matches(PASSWORD))
