"""The checkers that are asked when somebody signs in, and the realm."""

from __future__ import annotations

from twisted.cred.checkers import ICredentialsChecker
from twisted.cred.credentials import IUsernamePassword
from twisted.cred.error import UnauthorizedLogin
from twisted.cred.portal import IRealm
from twisted.internet.defer import Deferred, fail, succeed
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import Interface, implementer
from zope.interface.verify import verifyObject

from rsscloud_broker.accounts import AccountRealm, AnyOf, PasswordChecker
from rsscloud_broker.accounts.portal import AvatarId
from rsscloud_broker.config import NoOptions
from rsscloud_broker.errors import SignInFailed
from rsscloud_broker.interfaces import Account, CheckerParts, IAccount, SignIn
from tests.accounts.fixture import PASSWORD, PATIENT, AccountHouse


@implementer(ICredentialsChecker)
class Directory:
    """A checker by others, which knows some people and their passwords."""

    credentialInterfaces = (IUsernamePassword,)

    def __init__(self, **people: str) -> None:
        self._people = people
        self.asked: list[bytes] = []

    def requestAvatarId(self, credentials: IUsernamePassword) -> Deferred[AvatarId]:
        name = bytes(credentials.username)
        self.asked.append(name)
        if self._people.get(name.decode()) == bytes(credentials.password).decode():
            return succeed(name)
        return fail(UnauthorizedLogin())


class PortalTests(SynchronousTestCase):
    def test_interfaces(self) -> None:
        house = AccountHouse(self)
        parts = CheckerParts(house.passwords, house.clock, house.result)
        for checker in (PasswordChecker(NoOptions(), parts), AnyOf([])):
            self.assertTrue(verifyObject(ICredentialsChecker, checker))
        self.assertTrue(verifyObject(IRealm, AccountRealm(house.store)))
        account = Account(1, "dave", False, 1.0)
        self.assertTrue(verifyObject(IAccount, account))

    def sign_in(self, house: AccountHouse, name: str, password: str) -> object:
        return house.accounts.sign_in(SignIn(name, password, "192.0.2.7"))

    def test_the_first_that_accepts_decides(self) -> None:
        first, second = Directory(dave="one password"), Directory(dave="two password", anna="x")
        house = AccountHouse(self, PATIENT, [first, second])
        for name, password in (("dave", "one password"), ("dave", "two password"), ("anna", "x")):
            signed_in = house.result(self.sign_in(house, name, password))
            self.assertEqual(signed_in.caller.name, name)
        self.assertEqual((len(first.asked), len(second.asked)), (3, 2))
        house.error(self.sign_in(house, "dave", PASSWORD), SignInFailed)

    def test_who_has_no_account_here_is_refused(self) -> None:
        for name in ("nobody", "no name", "näme"):
            house = AccountHouse(self, PATIENT, [Directory(**{name: "right"})])
            house.error(self.sign_in(house, name, "right"), SignInFailed)

    def test_without_checkers_nobody_signs_in(self) -> None:
        house = AccountHouse(self, PATIENT, [])
        house.error(self.sign_in(house, "dave", PASSWORD), SignInFailed)

    def test_failure_of_a_checker_is_no_refusal(self) -> None:
        class Broken(Directory):
            def requestAvatarId(self, credentials: IUsernamePassword) -> Deferred[AvatarId]:
                raise RuntimeError("the directory does not answer")

        house = AccountHouse(self, PATIENT, [Broken()])
        house.error(self.sign_in(house, "dave", PASSWORD), RuntimeError)

    def test_other_avatars(self) -> None:
        class IOther(Interface):
            """Something else."""

        realm = AccountRealm(AccountHouse(self).store)
        self.failureResultOf(realm.requestAvatar(b"dave", None, IOther), NotImplementedError)
        self.failureResultOf(realm.requestAvatar(b"nobody", None, IAccount), UnauthorizedLogin)
        self.failureResultOf(realm.requestAvatar((), None, IAccount), UnauthorizedLogin)
