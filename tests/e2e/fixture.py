"""A broker in a process of its own, and what end-to-end tests do with one.

The tests block: servers that the broker calls run in threads (see
``servers``), and whatever takes a while is waited for with `until`.
"""

from __future__ import annotations

import atexit
import http.client
import os
import re
import shutil
import signal
import ssl
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import urlencode, urlsplit

from attrs import frozen
from click.testing import CliRunner
from lxml import etree
from sqlalchemy import select
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.commands import main
from rsscloud_broker.storage import import_in_parts, migrate, open_database
from rsscloud_broker.storage.schema import subscription
from tests import nursery
from tests.e2e.servers import Origin, Receiver
from tests.e2e.websub_servers import HubReceiver
from tests.processes import free_port, new_directory

T = TypeVar("T")


class Startable(Protocol):
    """What a test starts, and stops at its end."""

    def start(self) -> object:
        """Start it."""

    def stop(self) -> object:
        """Stop it."""


AnyServer = TypeVar("AnyServer", bound=Startable)

#: Seconds until a test gives up waiting and fails; long enough for a slow machine.
TIMEOUT = 60.0

# The last that a broker says when it has read its configuration again.
_RELOADED = r"(Reloaded|Nothing was changed)\b.*\n"


def until(condition: Callable[[], T | None], what: str) -> T:
    """Wait for a condition; what it gave when it was true.

    :param what: completes "waited for ...".
    """
    pause = threading.Event()
    deadline = time.monotonic() + TIMEOUT
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {TIMEOUT:g} s for {what}; there was only {value!r}")
        pause.wait(0.02)
    return value


# --- requests ---------------------------------------------------------------


@frozen
class Answer:
    """What a server answered; names of headers in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


def request(
    url: str,
    method: str = "GET",
    body: bytes | Iterator[bytes] | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    cafile: Path | None = None,
    source: str = "",
) -> Answer:
    """Make a request as the standard library does, without following redirects.

    :param body: what comes piece by piece is sent in chunks.
    :param cafile: for ``https``: the certificate to trust, in PEM.
    :param source: the address of this machine from which to connect; empty for any.
    """
    parts = urlsplit(url)
    assert parts.hostname is not None
    where = (parts.hostname, parts.port)
    address = (source, 0) if source else None
    connection = http.client.HTTPConnection(*where, timeout=TIMEOUT, source_address=address)
    if parts.scheme == "https":
        tls = ssl.create_default_context(cafile=cafile)
        connection = http.client.HTTPSConnection(
            *where, timeout=TIMEOUT, source_address=address, context=tls
        )
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    try:
        connection.request(method, target, body, dict(headers or {}))
        response = connection.getresponse()
        lower = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, lower, response.read())
    finally:
        connection.close()


def post_form(url: str, fields: Mapping[str, object], **headers: str) -> Answer:
    """Send a form.  Headers are named with underscores."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    form = {"content-type": "application/x-www-form-urlencoded"}
    return request(url, "POST", urlencode(fields).encode(), form | named)


# --- processes --------------------------------------------------------------


def run(
    name: str,
    *arguments: object,
    stdin: str = "",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    by_command: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end.

    :param by_command: whether Python starts anew for it, instead of in the `nursery`.
    """
    return nursery.run(
        nursery.command_line(name, *arguments),
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=stdin,
        by_command=by_command,
        timeout=TIMEOUT,
    )


def run_here(*arguments: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run an ``rsscloud-broker`` command that needs no reactor in the process of the tests.

    That is another process than the broker's, as it would be for an operator, and one that need
    not be started: this saves a second.
    """
    words = [*map(str, arguments)]
    done = CliRunner().invoke(main, words, input=stdin)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr)


#: What a broker has unless a test has a table for it.  The test feed pings by itself, and would be
#: in all lists.  Couriers take as long to start as half a broker, hundreds of times; the tests of
#: what they do have them.
_TABLES = {"[apps.test_feed]": "enabled = false", "[delivery]": "processes = 0"}

#: The configuration of a broker with the couriers that it has by default.
WITH_COURIERS = "[delivery]\n"


def _quiet(configuration: str) -> str:
    """A configuration with ``_TABLES``, but for those that it has already."""
    added = [f"{name}\n{said}" for name, said in _TABLES.items() if name not in configuration]
    return "\n".join([configuration, *added, ""])


class Broker:
    """A twistd with a broker in it.

    :param directory: where it runs; its data and its log go there.
    :param configuration: what its configuration file says, in TOML.  The test feed runs only if
        that has a table for it.
    :param options: more of its command line; by default it may call this machine.
    :ivar by_command: whether Python starts anew for it, as for operators; by default it comes from
        the `nursery`, which is quicker.
    """

    by_command = False

    def __init__(
        self, directory: Path, configuration: str = "", options: Sequence[str] = ("--local",)
    ) -> None:
        self.options = options
        self.directory = directory
        self.configuration = directory / "config.toml"
        self.data = directory / "data"
        self.port = free_port()
        self._log = directory / "log"
        self._process: nursery.Child | None = None
        directory.mkdir(parents=True, exist_ok=True)
        self.configuration.write_text(_quiet(configuration), encoding="utf-8")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def database(self) -> str:
        """The URL of its database."""
        return f"sqlite:///{self.data / 'broker.sqlite'}"

    @property
    def where(self) -> tuple[object, ...]:
        """The options by which a command finds its configuration and its data."""
        return ("--config", self.configuration, "--data", self.data)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8") if self._log.exists() else ""

    def start(self, ahead: float = 0.0) -> None:
        """Start it, and wait until it answers.

        :param ahead: seconds by which its clock is ahead of the real one.
        """
        for _ in range(5):
            self._spawn(ahead)
            until(lambda: not self.running or self.answers(), "the broker to answer or to end")
            if self.running:
                return
            if "Address already in use" not in self.log:
                break
            self.port = free_port()  # somebody was faster
        raise AssertionError(f"the broker did not start:\n{self.log}")

    def command(self, ahead: float) -> list[str]:
        """The command that runs it, at ``port``."""
        listen = f"tcp:{self.port}:interface=127.0.0.1"
        command = nursery.command_line("twistd", "-n", "--pidfile=", "rsscloud-broker", ahead=ahead)
        options = ["--config", str(self.configuration), "--data", str(self.data)]
        return [*command, *options, *self.options, "--listen", listen]

    def answers(self) -> bool:
        """Whether it answers requests."""
        try:
            return request(f"{self.url}/").status == 200
        except OSError:
            return False

    def _spawn(self, ahead: float) -> None:
        with self._log.open("ab") as log:
            self._process = nursery.start(
                self.command(ahead),
                cwd=self.directory,
                stdout=log.fileno(),
                by_command=self.by_command,
            )

    def terminate(self) -> None:
        """Ask it to end."""
        self._signal(signal.SIGTERM)

    def reload(self, configuration: str | None = None) -> str:
        """Have it read its configuration again, and wait until it has said what came of it.

        :param configuration: what the file says now; None if it is the same.
        :returns: what the log has got since then.
        """
        if configuration is not None:
            self.configuration.write_text(_quiet(configuration), encoding="utf-8")
        before = len(self.log)
        self._signal(signal.SIGHUP)

        def said() -> bool:
            return re.search(_RELOADED, self.log[before:]) is not None

        until(said, "the configuration to be read again")
        return self.log[before:]

    def ended(self) -> int:
        """Wait for its end; its exit status, or the number of the signal, negative."""
        assert self._process is not None
        return self._process.wait(TIMEOUT)

    def stop(self) -> None:
        """Ask it to end, and wait."""
        self.terminate()
        self.ended()

    def restart(self) -> None:
        """Stop it and start it again, after which its change lists are new."""
        self.stop()
        self.start()

    def kill(self) -> None:
        """End it at once, in the middle of whatever it does."""
        self._signal(signal.SIGKILL)
        self.ended()

    def end(self) -> None:
        """Make sure that it does not run any more."""
        if self.running:
            self.kill()

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)  # which does nothing to one that has ended

    # what tests ask of it

    def subscribe(self, receiver: Receiver, topic: str, **more: str) -> Answer:
        """Register a receiver by REST."""
        fields = receiver.registration(topic) | more
        return post_form(f"{self.url}/rsscloud/pleaseNotify", fields)

    def subscribe_all(self, topic: str, callbacks: Iterable[str], **more: object) -> None:
        """Put subscriptions by ``http-post`` into its database; it need not run.

        :param more: other members of each subscription, as an export has them.
        """
        lease = {"granted_at": datetime.now(UTC).isoformat(), "lease_seconds": 25 * 3600}
        common = {"protocol": "http-post", **lease, **more}
        subscriptions = [{"callback": one, **common} for one in callbacks]
        document = {
            "format": "rsscloud-broker",
            "version": 1,
            "topics": [{"url": topic, "subscriptions": subscriptions}],
        }
        self.data.mkdir(parents=True, exist_ok=True)
        migrate(self.database)
        import_in_parts(lambda: open_database(self.database), document, time.time())

    def subscribe_to_hub(self, callback: str, topic: str, **more: object) -> Answer:
        """Subscribe a callback by WebSub.

        :param more: further parameters, without ``hub.``.
        """
        named = {"mode": "subscribe", "topic": topic, "callback": callback, **more}
        fields = {f"hub.{name}": value for name, value in named.items()}
        return post_form(f"{self.url}/websub", fields)

    def callbacks(self) -> set[str]:
        """The callbacks of all subscriptions in its database."""
        with open_database(self.database, writes=False) as connection:
            return set(connection.execute(select(subscription.c.callback_url)).scalars())

    def add_account(self, name: str, password: str = "", *options: str) -> None:
        """Add an account; the broker need not run.

        :param password: empty for an account that has none.
        :param options: such as ``--admin``.
        """
        how = "--password-stdin" if password else "--no-password"
        added = run_here("account", "add", name, how, *options, *self.where, stdin=password)
        added.check_returncode()

    def add_token(self, name: str, *scopes: str) -> str:
        """Make a token of an account; the broker need not run."""
        options = [f"--scope={scope}" for scope in scopes]
        made = run_here("account", "token", "add", name, *options, *self.where)
        made.check_returncode()
        return made.stdout.split()[-1]

    def ping(self, topic: str) -> Answer:
        """An rssCloud ping by REST."""
        return post_form(f"{self.url}/rsscloud/ping", {"url": topic})

    def change_list(self, path: str = "/changes.xml") -> list[Mapping[str, str]]:
        """The records of a change list, which must be well-formed; none where there is none."""
        answer = request(f"{self.url}{path}")
        if answer.status != 200:
            return []
        return [
            {str(name): str(value) for name, value in weblog.items()}
            for weblog in etree.fromstring(answer.body)
        ]

    def archived(self, hours: set[str]) -> Counter[str]:
        """How often each name is in the archives of some hours, such as 2026-09-29T11."""
        names: Counter[str] = Counter()
        for hour in hours:
            day, _, number = hour.partition("T")
            path = f"/{day.replace('-', '/')}/{int(number) + 1:02}.xml"
            names.update(record["name"] for record in self.change_list(path))
        return names


AnyBroker = TypeVar("AnyBroker", bound=Broker)

_shared: list[Broker] = []


def _shared_broker() -> Broker:
    """A broker for all tests of this process that leave it as it is."""
    if not _shared:
        directory = tempfile.mkdtemp(prefix="rsscloud-broker-")
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        _shared.append(Broker(Path(directory)))
    (broker,) = _shared
    if not broker.running:
        atexit.register(broker.end)
        broker.start()
    return broker


# --- test cases -------------------------------------------------------------


class Told(Protocol):
    """A subscriber of whatever protocol.

    :ivar heard: the topics that it was notified of.
    """

    protocol: str
    heard: list[str]


class EndToEndTestCase(SynchronousTestCase):
    """A test case with brokers; their logs are shown where a test fails."""

    def setUp(self) -> None:
        self._marks: dict[Broker, int] = {}
        self._failed = False
        name = self.id().rpartition(".")[2]
        setattr(self, name, self._noticing_failure(getattr(self, name)))
        self.addCleanup(self._show_logs)

    def _noticing_failure(self, test: Callable[[], None]) -> Callable[[], None]:
        def watched() -> None:
            try:
                test()
            except BaseException:
                self._failed = True
                raise

        return watched

    def _show_logs(self) -> None:
        if self._failed:
            for broker, mark in self._marks.items():
                self.fail(f"The log of the broker meanwhile:\n{broker.log[mark:]}")

    def directory(self) -> Path:
        """A directory of this test's own."""
        return new_directory(self)

    def shared_broker(self) -> Broker:
        """A broker that runs, and that other tests use too."""
        return self.with_log(_shared_broker())

    def own_broker(self, configuration: str = "", options: Sequence[str] = ("--local",)) -> Broker:
        """A broker that does not run yet, and ends with this test.

        :param configuration: what its configuration file says, in TOML.
        :param options: more of its command line; by default it may call this machine.
        """
        return self.owned(Broker(self.directory(), configuration, options))

    def running_broker(self, configuration: str = "", account: Sequence[str] = ()) -> Broker:
        """A broker that runs, and ends with this test.

        :param account: the arguments of ``Broker.add_account``, for one that it has.
        """
        broker = self.own_broker(configuration)
        if account:
            broker.add_account(*account)
        broker.start()
        return broker

    def owned(self, broker: AnyBroker) -> AnyBroker:
        """The same broker, which ends with this test."""
        self.with_log(broker)
        self.addCleanup(broker.end)
        return broker

    def with_log(self, broker: Broker) -> Broker:
        """The same broker, whose log from now on is shown if this test fails."""
        self._marks[broker] = len(broker.log)
        return broker

    def served(self, server: AnyServer) -> AnyServer:
        """A server that is stopped at the end of this test."""
        server.start()
        self.addCleanup(server.stop)
        return server

    def origin(self) -> Origin:
        return self.served(Origin())

    def subscribed(self, broker: Broker, receiver: Receiver, topic: str) -> None:
        """Subscribe a receiver, which has heard nothing after this."""
        answer = broker.subscribe(receiver, topic)
        self.assertIn('success="true"', answer.text)
        receiver.heard.clear()

    def subscribed_to_hub(
        self, broker: Broker, receiver: HubReceiver, topic: str, **more: object
    ) -> None:
        """Subscribe a receiver by WebSub, and wait until that is stored."""
        answer = broker.subscribe_to_hub(receiver.callback, topic, **more)
        self.assertEqual(answer.status, 202, answer.text)
        until(lambda: receiver.callback in broker.callbacks(), "the subscription to be stored")

    def assert_told(self, receiver: Told, topic: str) -> None:
        """Wait until a receiver has heard of a topic, and forget it."""
        until(lambda: topic in receiver.heard, f"{receiver.protocol} to be notified of {topic}")
        receiver.heard.clear()

    def assert_listed(self, broker: Broker, *wanted: dict[str, str]) -> None:
        """Wait until ``changes.xml`` has, for each of these, one record with these attributes.

        It is made once a minute, which is long to wait; and whenever a broker starts.
        """

        def counts() -> list[int]:
            records = broker.change_list()
            return [sum(one.items() <= record.items() for record in records) for one in wanted]

        until(lambda: all(counts()), f"{wanted} in changes.xml")
        self.assertEqual(counts(), [1] * len(wanted))
