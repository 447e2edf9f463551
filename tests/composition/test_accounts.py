"""How the parts of accounts are made: which checkers are asked, and what is wrong with others."""

from __future__ import annotations

from typing import Any

from attrs import frozen
from twisted.cred.checkers import ICredentialsChecker
from twisted.cred.credentials import IAnonymous, IUsernamePassword
from twisted.cred.error import UnauthorizedLogin
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.plugin import IPlugin
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from rsscloud_broker.accounts import Accounts
from rsscloud_broker.composition.server import Server
from rsscloud_broker.config import Config
from rsscloud_broker.errors import SignInFailed
from rsscloud_broker.interfaces import CheckerParts, ICheckerMaker, IPasswords, SignIn
from rsscloud_broker.runtime.plugin_discovery import Makers, PluginError
from rsscloud_broker.testing import Clock
from rsscloud_broker.testing.memory import memory_accounts


@frozen
class NoOptions:
    """No options."""


@implementer(ICredentialsChecker)
class Directory:
    """Knows dave, and nobody else."""

    credentialInterfaces: Any = (IUsernamePassword,)

    async def requestAvatarId(self, credentials: IUsernamePassword) -> bytes:  # type: ignore[override] # a coroutine will do
        if credentials.username == b"dave":
            return b"dave"
        raise UnauthorizedLogin


@implementer(IPlugin, ICheckerMaker)
class DirectoryMaker:
    """A maker by others."""

    name = "directory"
    help = "asks a directory"
    options = NoOptions
    needs = ("passwords",)
    checker: Any = Directory()

    def make(self, options: Any, parts: CheckerParts) -> ICredentialsChecker:
        self.parts = parts
        made: ICredentialsChecker = self.checker
        return made


class AccountPartsTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.maker = DirectoryMaker()
        self.makers = Makers(checkers={"directory": self.maker})
        self.store = memory_accounts()

    def make(self) -> Accounts:
        server: Any = Server(Config(checkers={"directory": {}}), reactor, self.makers)
        server.clock, server.account_store = Clock(), self.store
        made: Accounts = server.accounts
        return made

    def test_checker_by_others_is_asked(self) -> None:
        accounts: Any = self.make()
        self.successResultOf(self.store.add_account("dave", "", False, 1.0))
        attempt = SignIn("dave", "whatever", "192.0.2.7")
        signing_in = Deferred.fromCoroutine(accounts.sign_in(attempt))
        signed_in: Any = self.successResultOf(signing_in)
        self.assertEqual((signed_in.caller.name, signed_in.known), ("dave", ""))
        attempt = SignIn("anna", "whatever", "192.0.2.7")
        self.failureResultOf(accounts.sign_in(attempt), SignInFailed)
        self.assertTrue(IPasswords.providedBy(self.maker.parts.passwords))

    def test_checker_of_something_else(self) -> None:
        self.maker.checker = Directory()
        self.maker.checker.credentialInterfaces = (IAnonymous,)
        error = str(self.assertRaises(PluginError, self.make))
        self.assertIn("the credentials checker 'directory' of", error)
        self.assertIn("lack IUsernamePassword", error)
        self.assertIn("enabled = false in [checkers.directory]", error)
