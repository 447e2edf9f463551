"""Administrators take down what accounts publish: messages and uploaded files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from twisted.internet.defer import Deferred

from rsscloud_broker.apps.writing import serving
from rsscloud_broker.apps.writing.app import make
from rsscloud_broker.apps.writing.model import NewPost, Post
from rsscloud_broker.apps.writing.serving import FeedTopics
from rsscloud_broker.interfaces import AccountFile
from rsscloud_broker.model.administration import Block
from tests.apps.writing.house import ATOM, BROKER, DAVE, FEED, GIF, SOURCE, WritingTestCase


async def _all(files: AsyncIterator[AccountFile]) -> dict[str, bytes]:
    """The bytes of files, by their names."""
    return {each.name: b"".join([piece async for piece in each.pieces]) async for each in files}


class TakenAwayTests(WritingTestCase):
    def test_all_that_an_account_has(self) -> None:
        self.patch(serving, "AT_ONCE", 2)
        (files,) = make(self.options, self.parts).account_files
        self.assertEqual(self.result(_all(files(DAVE))), {})
        for text in ("One", "Two", "Three"):
            self.add(text)
        self.add("Not yet", is_draft=True)
        large = GIF * 20_000
        for number in range(3):
            self.upload_file(large + bytes([number]), "a/ü.gif")
        found = self.result(_all(files(DAVE)))
        feeds = {name: data for name, data in found.items() if name.endswith(".xml")}
        self.assertEqual(list(feeds), ["messages/1.xml", "messages/2.xml", "drafts/1.xml"])
        for data, said in zip(feeds.values(), (b"Three", b"One", b"Not yet"), strict=True):
            self.assertIn(said, data)
        files_of_it = [found[name] for name in found if name.endswith(" ü.gif")]
        self.assertEqual(files_of_it, [large + bytes([number]) for number in (2, 1, 0)])

    def test_files_that_come_and_go_meanwhile(self) -> None:
        """An archive takes minutes, and its owner goes on: each file that stays is in it once."""
        self.patch(serving, "AT_ONCE", 2)
        for number in range(5):
            self.upload_file(GIF + bytes([number]))
        newest = self.files_of()[0].digest
        (files,) = make(self.options, self.parts).account_files

        async def take(change: Callable[[], object]) -> list[bytes]:
            found = []
            async for each in files(DAVE):
                found.append(b"".join([piece async for piece in each.pieces])[-1:])
                if len(found) == 2:
                    change()
            return found

        everything = [bytes([number]) for number in (4, 3, 2, 1, 0)]
        deleting = take(lambda: self.result(self.writing.remove_upload(DAVE, newest)))
        self.assertEqual(self.result(deleting), everything)
        adding = take(lambda: self.upload_file(GIF + b"new"))
        self.assertEqual(self.result(adding), everything[1:])


class TakenDownTests(WritingTestCase):
    def setUp(self) -> None:
        super().setUp()
        (self.served,) = make(self.options, self.parts).topics
        self.recorded: list[Any] = []

    def take_down(self, url: str) -> bool:
        assert self.served.take_down is not None
        done = self.served.take_down(url, "it is spam", self.recorded.append)
        return bool(self.result(done))

    def post(self, number: int) -> Post | None:
        found: Post | None = self.result(self.writing.post(DAVE, number))
        return found

    def test_what_an_account_publishes(self) -> None:
        self.add("Draft", is_draft=True)
        post = self.add("Spam")
        file = self.upload_file(GIF)
        assert self.served.published is not None
        works = self.result(self.served.published("dave", 10))
        shown = [(each.url, each.kind, each.title) for each in works]
        self.assertEqual(shown, [(post.guid, "message", "Spam"), (file, "file", "a.gif")])
        self.assertEqual(self.result(self.served.published("nobody", 10)), [])
        for each in works:
            self.assertTrue(self.take_down(each.url))
        self.assertEqual(self.result(self.served.published("dave", 10)), [])

    def test_a_message(self) -> None:
        spam, other = self.add("Spam"), self.add("Ham")
        self.subscribe(self.writing.feeds.url("dave"))
        self.assertTrue(self.take_down(spam.guid))
        self.assertIsNone(self.post(spam.id))
        self.assertEqual(self.post(other.id), other)
        (feed,) = self.waiting().values()  # its subscribers learn of it
        self.assertNotIn(b"Spam", feed)
        self.assertIn(b"Ham", feed)
        self.assertEqual(len(self.recorded), 1)
        self.assertFalse(self.take_down(spam.guid))
        self.assertEqual(len(self.recorded), 1)

    def test_a_message_of_a_blocked_feed_and_on_a_full_disk(self) -> None:
        spam, ham = self.add("Spam"), self.add("Ham")
        self.subscribe(FEED, ATOM)
        self.blocks.change([Block("topic", FEED, "spam", "root", 0.0)])
        self.assertTrue(self.take_down(spam.guid))
        self.assertIsNone(self.post(spam.id))
        self.assertNotIn(b"Spam", self.feed())
        self.assertEqual(self.waiting(), {ATOM: self.feed(ATOM)})  # the others are notified
        self.assertEqual(len(self.recorded), 1)
        self.disk.full = True
        self.assertTrue(self.take_down(ham.guid))
        self.assertIsNone(self.post(ham.id))
        self.assertNotIn(b"Ham", self.feed())
        self.assertEqual(len(self.recorded), 2)

    def test_a_file_though_a_message_has_it(self) -> None:
        file = self.upload_file(GIF)
        post = self.add(enclosure_url=file)
        self.assertTrue(self.take_down(file))
        self.assertEqual(self.files_of(), [])
        place = self.writing.files.parse_url(file)
        assert place is not None
        self.assertIsNone(self.successResultOf(self.writing.store.upload_named(*place)))
        self.assertIsNotNone(self.post(post.id))
        self.assertEqual(len(self.recorded), 1)
        self.assertFalse(self.take_down(file))
        self.upload_file(GIF)  # its author may again

    def test_an_author_who_is_faster(self) -> None:
        """What is a draft by then stays, and nothing is recorded."""
        hidden, deleted = self.add("Spam"), self.add("More spam")
        topics = FeedTopics(self.writing)
        author = self.successResultOf(self.writing.store.author_named("dave"))
        assert author is not None
        lock = self.writing._lock_of(author)
        self.successResultOf(lock.acquire())
        draft = NewPost(text="Spam", is_draft=True)
        hide = Deferred.fromCoroutine(self.writing.edit(DAVE, hidden.id, draft, SOURCE))
        works = [
            *(self.writing.delete(DAVE, deleted.id, SOURCE) for _ in "12"),
            *(
                topics.take_down(each.guid, "spam", self.recorded.append)
                for each in (hidden, deleted)
            ),
        ]
        done = [Deferred.fromCoroutine(work) for work in works]
        lock.release()
        self.assertTrue(self.successResultOf(hide).is_draft)
        self.assertEqual([self.successResultOf(each) for each in done], [True, False, False, False])
        self.assertIsNotNone(self.post(hidden.id))
        self.assertEqual(self.recorded, [])

    def test_what_nobody_else_can_read(self) -> None:
        draft = self.add("Draft", is_draft=True)
        self.add()
        file, nines = f"files/{'a' * 64}.gif", "9" * 30
        for path in (f"dave/{draft.id}", "dave/99", f"dave/{nines}", "dave/²", "dave", "", "anna/1",
                     "dave/1/2", f"dave/{file}", f"anna/{file}"):  # fmt: skip
            self.assertFalse(self.take_down(f"{BROKER}/people/{path}"), path)
        self.assertEqual(self.recorded, [])

    def test_nothing_is_recorded_unless_it_is_taken_down(self) -> None:
        """Both are one transaction."""
        file = self.upload_file(GIF)
        post = self.add("Spam")

        def fail(conn: Any) -> None:
            raise ValueError

        assert self.served.take_down is not None
        for url in (file, f"{BROKER}/people/dave/{post.id}"):
            self.error(self.served.take_down(url, "it is spam", fail), ValueError)
        self.assertEqual(self.post(post.id), post)
        self.assertEqual(len(self.files_of()), 1)
