"""What the broker gives an application, for tests: fakes, and a real database in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from twisted.cred.portal import Portal
from twisted.internet.defer import Deferred, execute
from twisted.python.filepath import FilePath
from twisted.web.server import Request
from zope.interface import implementer

from rsscloud_broker import accounts, interfaces
from rsscloud_broker.config import NoOptions
from rsscloud_broker.config.accounts import AccountsConfig as AccountOptions
from rsscloud_broker.counters import Counters
from rsscloud_broker.errors import ForgedForm
from rsscloud_broker.interfaces.accounts import SCOPES
from rsscloud_broker.model import Content
from rsscloud_broker.model.shared import JobTurn
from rsscloud_broker.policy.rate_limits import RateLimit
from rsscloud_broker.storage import AccountStore
from rsscloud_broker.storage import accounts as account_rows
from rsscloud_broker.testing.clock import Clock
from rsscloud_broker.testing.fakes import FakeBroker, FakeOutbound, FakePages, FakeTopicView
from rsscloud_broker.testing.memory import memory_database
from rsscloud_broker.testing.parsing import parse_here

#: The password of every account in tests.
PASSWORD: Final = "correct horse"  # noqa: S105 # it is for tests only

#: Options with which a password is hashed in some milliseconds, and nobody has to wait after a few
#: attempts to sign in.
QUICK: Final = AccountOptions(hash_memory_kib=8192, attempts_per_source=5.0)


@implementer(interfaces.IJobs)
class FakeJobs:
    """The jobs of the only node, which may do each whenever it wants to.

    :ivar shares: what ``shares_work`` returns.
    :ivar hinted: the name of each job of which ``hint_at_job`` said that there is something to do.
    """

    def __init__(self) -> None:
        self.shares = False
        self.hinted: list[str] = []

    def shares_work(self) -> bool:
        return self.shares

    async def claim_job(self, name: str, now: float, period: float) -> JobTurn:
        return JobTurn(now, claimed=True, is_others=False)

    async def finish_job(self, name: str, due_at: float) -> bool:
        """Say that this node still had its claim; when the job is due next is not kept."""
        return True

    async def release_job(self, name: str) -> None:
        """End the claim of a job that is not done, so that another node does it."""

    async def hint_at_job(self, name: str) -> None:
        """Send other nodes the hint that the node with a job has something to do."""
        self.hinted.append(name)

    async def request_job(self, name: str, since: float) -> None:
        """Make a job due since an earlier time, and free it."""


@implementer(interfaces.IPublisher)
class FakePublisher:
    """A publisher that notifies nobody: it runs the operations, and records its calls.

    :param database: runs the operations.
    :ivar published: the URL, the content and the source of each topic that was published, in order.
    :ivar removed: the URL, the reason and the source of each call of ``remove``, in order.
    :ivar failure: the exception to raise; None for none.
    """

    def __init__(self, database: interfaces.IDatabase) -> None:
        self._database = database
        self.published: list[tuple[str, Content, str]] = []
        self.removed: list[tuple[str, str, str]] = []
        self.failure: Exception | None = None

    async def publish(
        self, url: str, content: Content, operation: Callable[[Any], Any], source: str
    ) -> Any:
        return await self.publish_all({url: content}, operation, source)

    async def publish_all(
        self, contents: Mapping[str, Content], operation: Callable[[Any], Any], source: str
    ) -> Any:
        result = await self._run(operation)
        self.published += [(url, content, source) for url, content in contents.items()]
        return result

    def check(self, url: str, source: str) -> None:
        if self.failure is not None:
            raise self.failure

    async def remove(
        self, url: str, reason: str, operation: Callable[[Any], Any], source: str
    ) -> Any:
        result = await self._run(operation)
        self.removed.append((url, reason, source))
        return result

    async def _run(self, operation: Callable[[Any], Any]) -> Any:
        """Run an operation, unless the test wants a failure."""
        if self.failure is not None:
            raise self.failure
        return await self._database.write(operation)


@implementer(interfaces.ICallers)
class FakeCallers:
    """Says that every request was made by the same caller.

    :ivar signed_in: the caller; None for a stranger.
    """

    def __init__(self, signed_in: interfaces.Caller | None = None) -> None:
        self.signed_in = signed_in

    async def caller(self, request: Request) -> interfaces.Caller | None:
        return self.signed_in

    def is_confidential(self, request: Request) -> bool:
        return True

    def check_form(self, request: Request, caller: interfaces.Caller) -> None:
        sent = (request.args or {}).get(b"csrf", [b""])[0]
        if caller.session is not None and sent != caller.csrf.encode("ascii"):
            raise ForgedForm("the form does not belong to your session")

    def sign_in_url(self, request: Request) -> str:
        return f"/signin?next={request.path.decode('ascii')}"


def caller_of(account: interfaces.Account) -> interfaces.Caller:
    """Somebody who has signed in to an account, with the CSRF token ``csrf``."""
    scopes = frozenset(SCOPES) if account.is_admin else frozenset()
    session = interfaces.Session(1, 0.0, 0.0, 1e12, "192.0.2.7", "A browser")
    return interfaces.Caller(account, scopes, "csrf", session)


def new_account(
    database: interfaces.IDatabase, name: str, *, is_admin: bool = False
) -> interfaces.Account:
    """Make an account with ``PASSWORD`` in a database in memory."""
    made: list[interfaces.Account] = []
    hashed = accounts.Hasher(QUICK).hash(PASSWORD)
    adding = database.write(
        lambda conn: account_rows.add_account(conn, name, hashed, is_admin, 1_000_000_000.0)
    )
    cast("Deferred[interfaces.Account]", adding).addCallback(made.append)
    return made[0]


def memory_sign_in(database: Any, clock: interfaces.IClock) -> interfaces.IAccounts:
    """The real implementation of ``IAccounts`` on a database in memory, with quick hashes."""
    store = AccountStore(database)
    passwords = accounts.Passwords(store, accounts.Hasher(QUICK), execute)
    parts = interfaces.CheckerParts(passwords, clock, execute)
    checker = accounts.PasswordChecker(NoOptions(), parts)
    portal = Portal(accounts.AccountRealm(store), [accounts.AnyOf([checker])])
    return accounts.Accounts(store, portal, passwords, clock, QUICK, _never_wait, _never_wait)


def _never_wait(key: str) -> int:
    return 0


def app_parts(tables: interfaces.AppTables | None = None, **parts: Any) -> interfaces.AppParts:
    """The parts of an application: those that the test gives, else fakes and a real database.

    The database is in memory, and has the tables of the broker and of the application.  Its
    operations run at once.  ``accounts`` works on that database too; ``new_account`` makes one.

    :param tables: the tables of the application.
    """
    clock = parts.get("clock") or cast(interfaces.IClock, Clock())
    database = parts.get("database") or memory_database(*([tables] if tables else ()))
    fakes: dict[str, Any] = {
        "broker": FakeBroker(),
        "publisher": FakePublisher(database),
        "database": database,
        "jobs": FakeJobs(),
        "accounts": parts.get("accounts") or memory_sign_in(database, clock),
        "callers": FakeCallers(),
        "pages": FakePages(),
        "topics": FakeTopicView(),
        "web": FakeOutbound(),
        "outbound": FakeOutbound(),
        "clock": clock,
        "counters": parts.get("counters") or Counters(),
        "directory": FilePath("no-such-directory"),
        "public_url": "http://broker.example",
        "has_hub": True,
        "has_cloud": True,
        "in_thread": execute,
        "parse": parse_here,
        "rate_limit": lambda rate, burst: RateLimit(rate, burst, clock).take,
    }
    return interfaces.AppParts(**(fakes | parts))
