"""The contract of the store of accounts: accounts, sessions and API tokens."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from rsscloud_broker.database.columns import MICROSECONDS
from rsscloud_broker.errors import Unadministrable
from rsscloud_broker.interfaces import Account, Session, StoredPassword, Token
from rsscloud_broker.model.administration import AccountSummary, Change
from rsscloud_broker.storage import AccountStore
from rsscloud_broker.storage.operating_schema import secret

#: More than an account may have, where a test does not say.
MANY = 100


class AccountsContract(TestCase):
    """The tests that every store of accounts must pass."""

    def make_store(self) -> AccountStore:
        raise NotImplementedError

    def setUp(self) -> None:
        self.store = self.make_store()

    async def account(self, name: str = "dave", at: float = 1000.0) -> Account:
        made = await self.store.add_account(name, f"hash of {name}", False, at)
        assert made is not None
        return made

    async def session(
        self,
        owner: Account,
        digest: bytes = b"1",
        at: float = 1000.0,
        former: bytes = b"",
        limit: int = MANY,
    ) -> Session:
        made = await self.store.add_session(
            owner.id,
            f"hash of {owner.name}",
            digest,
            at,
            at + 500,
            "192.0.2.7",
            "A Browser/1",
            former,
            limit,
        )
        assert made is not None
        return made

    async def begin(self, owner: Account, password: str) -> Session | None:
        return await self.store.add_session(owner.id, password, b"3", 1.0, 2.0, "", "", b"", MANY)

    async def token(
        self, owner: Account, digest: bytes = b"1", expires_at: float | None = None
    ) -> Token:
        made = await self.store.add_token(
            owner.id, digest, "a script", {"metrics", "admin"}, 1000.0, expires_at, MANY
        )
        assert made is not None
        return made

    async def hash_of(self, name: str = "dave") -> str:
        """The hash of the password of an account."""
        stored = await self.store.stored_password(name)
        assert stored is not None
        return stored.hash

    async def assert_sessions(self, owner: Account, *expected: Session) -> None:
        self.assertEqual(await self.store.sessions(owner.id), list(expected))

    # accounts

    async def test_accounts(self) -> None:
        self.assertEqual(await self.store.accounts(), [])
        dave = await self.account("dave", 1000.5)
        self.assertEqual(dave, Account(dave.id, "dave", False, 1000.5))
        anna = await self.store.add_account("anna", "", True, 2000.0)
        self.assertIsNone(await self.store.add_account("dave", "other", True, 2000.0))
        self.assertEqual(await self.store.accounts(), [anna, dave])
        self.assertEqual(
            await self.store.stored_password("dave"), StoredPassword(dave, "hash of dave")
        )
        self.assertIsNone(await self.store.stored_password("nobody"))

    async def test_removed_account_has_nothing_left(self) -> None:
        dave, anna = await self.account(), await self.account("anna")
        for owner, digest in ((dave, b"1"), (anna, b"2")):
            await self.session(owner, digest)
            await self.token(owner, digest)
        await self.store.add_link(dave.id, b"link", 2000.0)
        self.assertTrue(await self.store.remove_account("dave"))
        self.assertFalse(await self.store.remove_account("dave"))
        self.assertIsNone(await self.redeem(b"link"))
        self.assertFalse(await self.store.add_link(dave.id, b"link", 2000.0))
        self.assertIsNone(await self.store.session(b"1"))
        self.assertIsNone(await self.store.token(b"1"))
        self.assertIsNotNone(await self.store.session(b"2"))
        self.assertIsNotNone(await self.store.token(b"2"))
        self.assertIsNone(await self.begin(dave, "hash of dave"))
        self.assertIsNone(
            await self.store.add_token(dave.id, b"3", "t", {"metrics"}, 1.0, None, MANY)
        )

    # passwords

    async def test_census_tells_that_an_account_was_removed(self) -> None:
        self.assertEqual(await self.store.census(), (0, 0))
        first, second = await self.account("dave"), await self.account("anna")
        seen = [await self.store.census()]
        await self.store.remove_account("anna")
        seen.append(await self.store.census())
        last = await self.account("anna")
        seen.append(await self.store.census())
        self.assertEqual(seen, [(2, second.id), (1, first.id), (2, last.id)])
        self.assertEqual(len(set(seen)), 3, "no id is given twice")

    async def test_ids_without_account(self) -> None:
        column = secret.c.created_at  # refers to nothing, as the columns of applications
        dave, anna = await self.account("dave"), await self.account("anna")
        nobody = anna.id + 1
        for number, key in enumerate((dave.id, anna.id, nobody, nobody, 0)):
            await self.session(dave, b"%d" % number, at=key / MICROSECONDS)
        self.assertEqual(await self.store.ids_without_account(column, MANY), [nobody])
        await self.store.remove_account("anna")
        found = await self.store.ids_without_account(column, MANY)
        self.assertEqual(sorted(found), [anna.id, nobody])
        self.assertEqual(len(await self.store.ids_without_account(column, 1)), 1)

    async def test_other_password_ends_sessions_and_links(self) -> None:
        dave, anna = await self.account(), await self.account("anna")
        await self.session(dave, b"1")
        kept = await self.session(dave, b"2")
        other = await self.session(anna, b"3")
        await self.store.add_link(dave.id, b"link", 2000.0)
        self.assertTrue(await self.store.set_password("dave", "new", kept.id))
        await self.assert_sessions(dave, kept)
        self.assertIsNone(await self.redeem(b"link"))
        self.assertTrue(await self.store.set_password("dave", "newer"))
        await self.assert_sessions(dave)
        await self.assert_sessions(anna, other)
        self.assertEqual(await self.hash_of(), "newer")
        self.assertFalse(await self.store.set_password("nobody", "new"))

    async def test_session_that_has_ended_changes_nothing(self) -> None:
        dave, anna = await self.account(), await self.account("anna")
        ended, kept = await self.session(dave, b"1"), await self.session(dave, b"2")
        other = await self.session(anna, b"3")
        await self.store.end_session(dave.id, ended.id)
        for session in (ended.id, other.id):
            self.assertFalse(await self.store.set_password("dave", "new", session))
            made = await self.store.add_token(
                dave.id, b"4", "t", {"metrics"}, 1.0, None, MANY, session
            )
            self.assertIsNone(made)
        self.assertEqual(await self.hash_of(), "hash of dave")
        await self.assert_sessions(dave, kept)
        made = await self.store.add_token(dave.id, b"4", "t", {"metrics"}, 1.0, None, MANY, kept.id)
        self.assertIsNotNone(made)

    async def test_first_password_replaces_none(self) -> None:
        dave = await self.account()
        session = await self.session(dave, b"1")
        self.assertFalse(await self.store.set_password("dave", "other", first=True))
        await self.assert_sessions(dave, session)
        self.assertTrue(await self.store.rehash("dave", "hash of dave", ""))
        self.assertTrue(await self.store.set_password("dave", "first", first=True))
        await self.assert_sessions(dave)

    async def test_no_session_with_a_password_that_was_changed_meanwhile(self) -> None:
        dave = await self.account()
        await self.store.set_password("dave", "new")
        self.assertIsNone(await self.begin(dave, "hash of dave"))
        await self.assert_sessions(dave)
        self.assertIsNotNone(await self.begin(dave, "new"))

    async def test_rehash_keeps_sessions(self) -> None:
        """It does nothing if the password was changed meanwhile."""
        dave = await self.account()
        session = await self.session(dave)
        for old, changed in (("hash of dave", True), ("hash of dave", False)):
            self.assertEqual(await self.store.rehash("dave", old, "another hash"), changed)
            await self.assert_sessions(dave, session)
            self.assertEqual(await self.hash_of(), "another hash")

    # sessions

    async def test_session(self) -> None:
        dave = await self.account()
        self.assertIsNone(await self.store.session(b"1"))
        made = await self.session(dave, b"1", 2000.0)
        self.assertEqual(made, Session(made.id, 2000.0, 2000.0, 2500.0, "192.0.2.7", "A Browser/1"))
        found = await self.store.session(b"1")
        assert found is not None
        owner, session = found
        self.assertEqual((owner.name, owner.signed_in_at, session), ("dave", 2000.0, made))

    async def test_last_used_sessions_first(self) -> None:
        dave = await self.account()
        first = await self.session(dave, b"1", 1000)
        second = await self.session(dave, b"2", 2000)
        await self.assert_sessions(dave, second, first)
        await self.store.touch_session(first.id, 3000)
        used = [(one.id, one.used_at) for one in await self.store.sessions(dave.id)]
        self.assertEqual(used, [(first.id, 3000), (second.id, 2000)])

    async def test_new_session_replaces_the_former(self) -> None:
        dave, anna = await self.account(), await self.account("anna")
        await self.session(anna, b"1")
        made = await self.session(dave, b"2", former=b"1")
        await self.assert_sessions(anna)
        await self.assert_sessions(dave, made)

    async def test_as_many_sessions_as_allowed(self) -> None:
        dave, anna = await self.account(), await self.account("anna")
        other = await self.session(anna, b"x", 1)
        first, second, third = [
            await self.session(dave, b"%d" % number, 1000 + number, limit=3) for number in range(3)
        ]
        await self.store.touch_session(first.id, 2000)
        fourth = await self.session(dave, b"4", 3000, limit=3)
        found = [one.id for one in await self.store.sessions(dave.id)]
        self.assertEqual(found, [fourth.id, first.id, third.id])
        self.assertNotIn(second.id, found)
        await self.assert_sessions(anna, other)

    async def test_only_the_owner_ends_sessions(self) -> None:
        dave, anna = await self.account(), await self.account("anna")
        session = await self.session(dave)
        self.assertFalse(await self.store.end_session(anna.id, session.id))
        self.assertEqual(await self.store.end_sessions(anna.id), 0)
        await self.assert_sessions(dave, session)
        self.assertTrue(await self.store.end_session(dave.id, session.id))
        self.assertFalse(await self.store.end_session(dave.id, session.id))
        for digest in (b"2", b"3"):
            await self.session(dave, digest)
        self.assertEqual(await self.store.end_sessions(dave.id), 2)
        await self.assert_sessions(dave)

    # tokens

    async def test_token(self) -> None:
        dave = await self.account()
        self.assertIsNone(await self.store.token(b"1"))
        made = await self.token(dave, b"1", 1500.0)
        scopes = frozenset({"admin", "metrics"})
        self.assertEqual(made, Token(made.id, "a script", scopes, 1000.0, 1500.0, None))
        self.assertEqual(await self.store.token(b"1"), (dave, made))
        await self.store.touch_token(made.id, 1200.0)
        (found,) = await self.store.tokens(dave.id)
        self.assertEqual(found.used_at, 1200.0)

    async def test_as_many_tokens_as_allowed(self) -> None:
        dave, anna = await self.account(), await self.account("anna")
        await self.token(anna, b"x")
        for digest in (b"1", b"2", b"3"):
            made = await self.store.add_token(dave.id, digest, "t", {"metrics"}, 1.0, None, 2)
            self.assertEqual(made is None, digest == b"3")
        self.assertIsNone(await self.store.token(b"3"))

    async def test_only_the_owner_removes_tokens(self) -> None:
        dave, anna = await self.account(), await self.account("anna")
        token, other = await self.token(dave), await self.token(anna, b"2")
        self.assertFalse(await self.store.remove_token(anna.id, token.id))
        self.assertEqual(await self.store.tokens(dave.id), [token])
        self.assertTrue(await self.store.remove_token(dave.id, token.id))
        self.assertIsNone(await self.store.token(b"1"))
        for digest in (b"3", b"4"):
            await self.token(dave, digest)
        self.assertEqual(await self.store.remove_tokens(dave.id), 2)
        self.assertEqual(await self.store.tokens(dave.id), [])
        self.assertEqual(await self.store.tokens(anna.id), [other])

    # sign-in links

    async def redeem(
        self, link: bytes, at: float = 1000.0, digest: bytes = b"9"
    ) -> tuple[StoredPassword, Session] | None:
        return await self.store.redeem_link(
            link, digest, at, at + 500, "127.0.0.1", "A Browser/1", b"", MANY
        )

    async def test_link_works_once(self) -> None:
        dave = await self.account()
        self.assertTrue(await self.store.add_link(dave.id, b"link", 2000.0))
        self.assertEqual(await self.store.account_of_link(b"link", 1000.0), dave)
        self.assertEqual(await self.store.account_of_link(b"link", 1000.0), dave)
        redeemed = await self.redeem(b"link")
        assert redeemed is not None
        stored, session = redeemed
        self.assertEqual((stored.account.name, stored.hash), ("dave", "hash of dave"))
        found = await self.store.session(b"9")
        assert found is not None
        self.assertEqual((found[0].signed_in_at, found[1]), (1000.0, session))
        self.assertEqual((session.expires_at, session.address), (1500.0, "127.0.0.1"))
        self.assertIsNone(await self.redeem(b"link", digest=b"8"))
        self.assertIsNone(await self.store.account_of_link(b"link", 1000.0))
        self.assertEqual(len(await self.store.sessions(dave.id)), 1)

    async def test_link_that_has_expired(self) -> None:
        dave, anna = await self.account(), await self.account("anna")
        await self.store.add_link(dave.id, b"link", 2000.0)
        await self.store.add_link(anna.id, b"later", 3000.0)
        self.assertIsNone(await self.store.account_of_link(b"link", 2000.0))
        self.assertIsNone(await self.redeem(b"link", 2000.0))
        self.assertEqual(await self.store.account_of_link(b"link", 1999.0), dave)
        self.assertEqual(await self.store.sweep_accounts(2000.0, 0.0, MANY), 1)
        self.assertIsNone(await self.store.account_of_link(b"link", 0.0))
        self.assertIsNotNone(await self.redeem(b"later", 2000.0))

    async def test_newer_link_replaces_the_older(self) -> None:
        dave, anna = await self.account(), await self.account("anna")
        for owner, link in ((dave, b"1"), (anna, b"2"), (dave, b"3")):
            await self.store.add_link(owner.id, link, 2000.0)
        self.assertIsNone(await self.redeem(b"1"))
        self.assertEqual(await self.store.account_of_link(b"2", 1000.0), anna)
        self.assertEqual(await self.store.account_of_link(b"3", 1000.0), dave)

    # sweeping

    async def test_sweep(self) -> None:
        dave = await self.account()
        await self.session(dave, b"expired", 100)  # until 600
        unused = await self.session(dave, b"unused", 900)
        used = await self.session(dave, b"used", 800)
        await self.store.touch_session(used.id, 1000)
        await self.token(dave, b"expired", 1000.0)
        for digest, expires_at in ((b"1", 1000.5), (b"2", None)):
            await self.token(dave, digest, expires_at)
        self.assertEqual(await self.store.sweep_accounts(1000.0, 900.0, MANY), 2)
        self.assertIsNone(await self.store.session(b"expired"))
        self.assertIsNotNone(await self.store.session(b"unused"))
        self.assertIsNone(await self.store.token(b"expired"))
        self.assertEqual(len(await self.store.tokens(dave.id)), 2)
        self.assertEqual(await self.store.sweep_accounts(1000.0, 950.0, MANY), 1)
        self.assertEqual([one.id for one in await self.store.sessions(dave.id)], [used.id])
        self.assertNotEqual(unused.id, used.id)

    async def test_sweep_in_portions(self) -> None:
        dave = await self.account()
        for number in range(5):
            await self.session(dave, b"%d" % number)
        for left in (3, 1, 0):
            await self.store.sweep_accounts(9000.0, 0.0, 2)
            self.assertEqual(len(await self.store.sessions(dave.id)), left)

    # what administrators do

    def change(self, verb: str, name: str, reason: str = "") -> Change:
        return Change("root", verb, name, reason, 1000.0)

    async def summary(self, name: str) -> AccountSummary:
        found = await self.store.account_summary(name)
        assert found is not None
        return found

    async def administrator(self, name: str) -> None:
        await self.store.add_account(name, f"hash of {name}", True, 1000.0)

    async def test_summaries(self) -> None:
        dave = await self.account()
        await self.session(dave)
        await self.token(dave)
        await self.store.add_link(dave.id, b"link", 2000.0)
        change = self.change("invite", "anna")
        self.assertTrue(await self.store.invite("anna", True, b"digest", 3000.0, change))
        self.assertFalse(await self.store.invite("anna", True, b"other", 3000.0, change))
        anna = await self.summary("anna")
        self.assertEqual(
            (anna.is_admin, anna.has_password, anna.invited_until, anna.created_at),
            (True, False, 3000.0, 1000.0),
        )
        found = await self.summary("dave")
        self.assertEqual((found.sessions, found.tokens, found.invited_until), (1, 1, None))
        self.assertEqual(await self.store.account_summaries("", MANY), [anna, found])
        self.assertEqual(await self.store.account_summaries("", 1), [anna])
        self.assertEqual(await self.store.account_summaries("anna", 1), [found])
        self.assertIsNone(await self.store.account_summary("nobody"))

    async def test_an_invitation_is_no_link_for_this_machine(self) -> None:
        await self.store.invite("anna", False, b"digest", 2000.0, self.change("invite", "anna"))
        self.assertIsNone(await self.store.account_of_link(b"digest", 1000.0))
        self.assertIsNone(await self.redeem(b"digest"))
        found = await self.store.account_of_link(b"digest", 1000.0, "invitation")
        assert found is not None
        self.assertEqual(found.name, "anna")
        session = (b"9", 1000.0, 1500.0, "", "", b"", MANY)
        self.assertIsNotNone(await self.store.redeem_link(b"digest", *session, kind="invitation"))
        self.assertIsNone(await self.store.redeem_link(b"digest", *session, kind="invitation"))

    async def test_reset(self) -> None:
        dave = await self.account()
        await self.session(dave)
        await self.token(dave)
        self.assertFalse(await self.store.reset("x", b"2", 2000.0, self.change("reset", "x")))
        self.assertTrue(await self.store.reset("dave", b"2", 2000.0, self.change("reset", "dave")))
        found = await self.summary("dave")
        self.assertEqual(
            (found.has_password, found.sessions, found.tokens, found.invited_until),
            (False, 0, 0, 2000.0),
        )

    async def test_disabled_account(self) -> None:
        dave = await self.account()
        await self.session(dave)
        await self.token(dave)
        await self.store.add_link(dave.id, b"link", 2000.0)
        change = self.change("disable", "dave", "spam")
        self.assertTrue(await self.store.change_account("dave", {"disabled": "spam"}, change))
        self.assertIsNone(await self.store.session(b"1"))
        self.assertIsNone(await self.store.token(b"1"))
        self.assertIsNone(await self.begin(dave, "hash of dave"))
        await self.store.add_link(dave.id, b"link", 2000.0)
        self.assertIsNone(await self.store.account_of_link(b"link", 1000.0))
        self.assertIsNone(await self.redeem(b"link"))
        await self.store.change_account("dave", {"disabled": ""}, self.change("enable", "dave"))
        self.assertIsNone(await self.store.session(b"1"))
        self.assertIsNotNone(await self.store.token(b"1"))
        self.assertIsNotNone(await self.begin(dave, "hash of dave"))

    async def test_the_last_administrator_stays(self) -> None:
        await self.administrator("dave")
        await self.account("anna")
        change = self.change("x", "dave")
        for values in ({"disabled": "x"}, {"is_admin": False}):
            with self.assertRaises(Unadministrable):
                await self.store.change_account("dave", values, change)
        with self.assertRaises(Unadministrable):
            await self.store.remove("dave", change)
        await self.administrator("berta")
        await self.store.change_account("berta", {"disabled": "x"}, change)
        with self.assertRaises(Unadministrable):  # berta cannot sign in
            await self.store.remove("dave", change)
        await self.store.change_account("berta", {"disabled": ""}, change)
        self.assertTrue(await self.store.remove("dave", change))
        self.assertFalse(await self.store.remove("dave", change))
        self.assertTrue(await self.store.remove("anna"))

    async def test_limit(self) -> None:
        dave = await self.account()
        self.assertIsNone(dave.max_bytes)
        change = self.change("set limit", "dave")
        self.assertTrue(await self.store.change_account("dave", {"max_bytes": 5}, change))
        self.assertFalse(await self.store.change_account("x", {"max_bytes": 5}, change))
        (stored,) = await self.store.accounts()
        self.assertEqual((stored.max_bytes, (await self.summary("dave")).max_bytes), (5, 5))
