"""Messages are written, changed and deleted, and the feeds change with them."""

from __future__ import annotations

from typing import Any

from attrs import evolve
from lxml import etree
from sqlalchemy import Engine
from twisted.internet.defer import Deferred

from rsscloud_broker.apps.writing import rows
from rsscloud_broker.apps.writing import writing as writing_module
from rsscloud_broker.apps.writing.model import Enclosure, InvalidPost, NewPost, OutlineItem, Post
from rsscloud_broker.apps.writing.options import WritingOptions
from rsscloud_broker.apps.writing.schema import TABLES
from rsscloud_broker.apps.writing.writing import Writing
from rsscloud_broker.errors import AddressRefused, Forbidden, TooMany, Unavailable
from rsscloud_broker.model.administration import Block
from rsscloud_broker.storage import migrate
from rsscloud_broker.testing import CallersThread, reply
from tests.apps.writing.house import (
    ANNA,
    ATOM,
    BROKER,
    DAVE,
    FEED,
    JSON,
    SOURCE,
    SUCCESSOR,
    WritingTestCase,
)
from tests.postgresql import empty_database

FILE = "http://files.example/sound.mp3"


class WritingTests(WritingTestCase):
    def items(self, url: str = FEED) -> list[str]:
        """The texts of the messages in the feed."""
        feed = etree.fromstring(self.feed(url))
        return [str(each.findtext("description")) for each in feed.iter("item")]

    def test_a_message(self) -> None:
        post = self.add("Hello", title="A title", categories=("news",))
        parts = ("Hello", "A title", "", None, ("news",), (), post.created_at, post.created_at, 1)
        guid = f"{BROKER}/people/dave/1"
        self.assertEqual(post, Post(1, guid, DAVE.account.id, *parts, author="dave"))
        self.assertEqual(self.writing.feeds.page_url(post), post.guid)
        self.assertEqual(self.result(self.writing.post(DAVE, 1)), post)
        self.assertEqual(self.posts(), [post])
        self.assertEqual(self.items(), ["Hello"])

    def test_the_newest_is_first(self) -> None:
        texts = [self.add(text).text for text in ("a", "b", "c")]
        self.assertEqual(self.items(), texts[::-1])
        self.clock.set_wall(-3600)  # which changes no order
        self.add("d")
        self.assertEqual(self.items(), ["d", *texts[::-1]])

    def test_subscribers_of_every_format_are_told(self) -> None:
        self.add()
        self.subscribe(FEED, ATOM, JSON)
        self.add("News")
        waiting = self.waiting()
        self.assertEqual(waiting, {url: self.feed(url) for url in (FEED, ATOM, JSON)})
        for body in waiting.values():
            self.assertIn(b"News", body)
        pings = self.successResultOf(self.store.pings(0, 9e9, None, 10))
        self.assertEqual({ping.url for ping in pings}, {FEED})  # each message is one

    def test_nothing_is_stored_if_the_feed_cannot_be_published(self) -> None:
        self.add("a")
        self.subscribe(FEED)

        def fail(*args: Any) -> Any:
            raise RuntimeError("the power fails")

        self.patch(rows, "_use_category", fail)
        broken = self.writing.add(DAVE, NewPost("b", categories=("c",)), SOURCE)
        self.error(broken, RuntimeError)
        self.assertEqual((self.items(), self.waiting()), (["a"], {}))
        self.assertEqual(len(self.posts()), 1)

    def test_editing(self) -> None:
        first, second = self.add("a", categories=("x",)), self.add("b")
        self.subscribe(FEED)
        changed = self.edit(first, text="c")
        self.assertEqual(evolve(changed, text="a", changed_at=first.changed_at), first)
        self.assertGreater(changed.changed_at, first.changed_at)
        self.assertEqual(self.items(), ["b", "c"])  # in its old place
        self.assertEqual(self.result(self.writing.post(DAVE, second.id)), second)
        self.assertEqual(list(self.waiting()), [FEED])

    def test_deleting(self) -> None:
        first, second = self.add("a"), self.add("b")
        self.subscribe(FEED)
        self.assertTrue(self.delete(second.id))
        self.assertFalse(self.delete(second.id))
        self.assertEqual((self.items(), list(self.waiting())), (["a"], [FEED]))
        self.assertIsNone(self.result(self.writing.post(DAVE, second.id)))
        self.delete(first.id)
        self.assertEqual(self.items(), [])  # an empty feed, and not none
        self.assertEqual(self.add("c").id, 3)  # ids are never used twice

    def test_others_cannot_reach_a_message(self) -> None:
        post = self.add("mine")
        self.assertEqual(self.posts(ANNA), [])
        self.assertIsNone(self.result(self.writing.post(ANNA, post.id)))
        self.assertFalse(self.delete(post.id, ANNA))
        theirs = self.writing.edit(ANNA, post.id, NewPost("theirs"), SOURCE)
        self.assertIn("no message with the number 1", self.error(theirs, InvalidPost))
        other = self.add("hers", ANNA)
        self.assertEqual(other.id, 1)  # a number of her own
        self.assertNotEqual(other.guid, post.guid)
        self.assertEqual(self.items(), ["mine"])

    def test_drafts(self) -> None:
        draft = self.add("secret", is_draft=True, categories=("hidden",))
        self.assertTrue(draft.is_draft)
        self.assertFalse(self.has_feed())
        self.add("a")
        self.subscribe(FEED)
        draft = self.edit(draft, text="still secret")
        self.assertEqual((self.items(), self.waiting()), (["a"], {}))
        self.assertNotIn(b"secret", b"".join(map(self.feed, (FEED, ATOM, JSON))))
        drafts = self.result(self.writing.store.all_posts(DAVE.account.id, 9, is_draft=True))
        self.assertEqual(drafts, [draft])
        self.clock.advance(3600)
        post = self.edit(draft, is_draft=False)
        self.assertEqual((post.id, post.guid), (draft.id, draft.guid))
        self.assertGreater(post.created_at, draft.created_at + 3599)  # when it was published
        self.assertEqual(self.items(), ["still secret", "a"])
        self.edit(post, is_draft=True)
        self.assertEqual(self.items(), ["a"])
        self.delete(draft.id)
        self.assertEqual(self.items(), ["a"])

    def test_guids_stay_when_the_broker_moves(self) -> None:
        post = self.add("a")
        elsewhere = Writing(self.options, self._parts(public_url="https://new.example"))
        self.writing = elsewhere
        again = self.result(elsewhere.post(DAVE, post.id))
        self.assertEqual(again.guid, post.guid)
        self.assertEqual(elsewhere.feeds.page_url(again), "https://new.example/people/dave/1")
        feed = self.feed("https://new.example/people/dave/rss.xml")
        guid = etree.fromstring(feed).find(".//guid")
        assert guid is not None
        self.assertEqual((guid.text, guid.get("isPermaLink")), (post.guid, "false"))

    def test_a_name_that_somebody_had_before(self) -> None:
        """The new account neither shows the messages of the old one, nor uses their ids."""
        old = self.add("old")
        new = self.add("new", SUCCESSOR)
        self.assertEqual((new.id, self.items()), (old.id + 1, ["new"]))
        self.assertEqual(self.posts(), [])
        # A request that began before the account was removed takes nothing from the successor.
        self.error(self.writing.add(DAVE, NewPost("late"), SOURCE), InvalidPost)
        self.assertEqual(self.items(), ["new"])

    def test_a_message_that_is_sent_twice(self) -> None:
        """Somebody has pressed twice, or an editor had no answer."""
        post = self.add("a", title="t")
        self.clock.advance(30)
        self.assertEqual(self.add("a", title="t"), post)
        self.assertEqual(self.add("a", title="t", is_draft=True).id, 2)
        self.assertEqual(self.add("b").id, 3)
        self.assertEqual(self.add("a", title="t").id, 4)
        self.clock.advance(61)
        self.assertEqual(self.add("a", title="t").id, 5)

    def test_what_breaks_a_rule_changes_nothing(self) -> None:
        post = self.add("a")
        for new in (NewPost("x" * 141), NewPost(""), NewPost("x", link="javascript:1")):
            self.error(self.writing.add(DAVE, new, SOURCE), InvalidPost)
            self.error(self.writing.edit(DAVE, post.id, new, SOURCE), InvalidPost)
        self.assertEqual(self.posts(), [post])

    def test_blocked_and_full(self) -> None:
        post, draft = self.add("a"), self.add("d", is_draft=True)
        self.disk.full = True
        for work in (
            self.writing.add(DAVE, NewPost("b"), SOURCE),
            self.writing.add(DAVE, NewPost("b", is_draft=True), SOURCE),
            self.writing.edit(DAVE, post.id, NewPost("b"), SOURCE),
            self.writing.delete(DAVE, post.id, SOURCE),
            self.writing.upload(DAVE, "x", b"x", SOURCE),
        ):
            self.error(work, Unavailable)
        self.assertTrue(self.delete(draft.id))
        self.disk.full = False
        self.blocks.change([Block("topic", FEED, "spam", "root", 0.0)])
        for work in (
            self.writing.add(DAVE, NewPost("b"), SOURCE),
            self.writing.upload(DAVE, "x", b"x", SOURCE),
        ):
            self.assertIn("spam", self.error(work, Forbidden))
        self.assertEqual((self.posts(), self.items()), ([post], ["a"]))
        self.assertFalse(self.directory.exists())

    def test_messages_of_a_feed(self) -> None:
        self.patch(writing_module, "FEED_ITEMS", 3)
        posts = [self.add(str(number)) for number in range(5)]
        self.assertEqual(self.items(), ["4", "3", "2"])
        self.delete(4)
        self.assertEqual(self.items(), ["4", "2", "1"])  # an older one takes its place
        self.subscribe(FEED, ATOM, JSON)
        self.edit(posts[0], text="older than the feed")
        self.assertEqual(self.waiting(), {})  # nothing has changed for subscribers

    def test_a_feed_is_the_same_after_a_restart(self) -> None:
        self.add("a", items=(OutlineItem("b"),))
        before = [self.feed(url) for url in (FEED, ATOM, JSON)]
        self.clock.advance(9)
        self.writing = Writing(self.options, self.parts)
        self.assertEqual([self.feed(url) for url in (FEED, ATOM, JSON)], before)


class PaceTests(WritingTestCase):
    options = WritingOptions(posts_per_minute=3)

    def test_changes_per_minute(self) -> None:
        """Messages that are refused do not count."""
        for _ in range(9):
            self.error(self.writing.add(DAVE, NewPost(""), SOURCE), InvalidPost)
        post = self.add("a")
        self.edit(post, text="b")
        self.add("c")
        for work in (
            self.writing.add(DAVE, NewPost("d"), SOURCE),
            self.writing.edit(DAVE, post.id, NewPost("d"), SOURCE),
            self.writing.delete(DAVE, post.id, SOURCE),
        ):
            self.assertIn("3 changes of messages in the last minute", self.error(work, TooMany))
        self.add("another's", ANNA)
        self.clock.advance(60)
        self.add("d")

    def test_enclosures_count(self) -> None:
        """Nobody can have the broker ask other servers without end."""
        self.web.otherwise = reply(404)
        for kind in (InvalidPost, InvalidPost, InvalidPost, TooMany):
            work = self.writing.add(DAVE, NewPost("a", enclosure_url=FILE), SOURCE)
            self.error(work, kind)
        self.assertEqual(len(self.web.requests), 3)


class SameMomentTestCase(WritingTestCase):
    """A test case in which changes can be held up.

    :ivar hold: whether the making of feeds waits.
    :ivar held: what it waits for.
    """

    def setUp(self) -> None:
        super().setUp()
        self.held: list[Deferred[None]] = []
        self.hold = False

    async def in_thread(self, function: Any, *args: Any) -> Any:
        if self.hold:
            gate: Deferred[None] = Deferred()
            self.held.append(gate)
            await gate
        return function(*args)


class SameMomentTests(SameMomentTestCase):
    """Two changes at the same moment."""

    def test_of_one_process_wait_for_each_other(self) -> None:
        self.writing = Writing(self.options, self._parts(in_thread=self.in_thread))
        self.hold = True
        works = [
            Deferred.fromCoroutine(self.writing.add(DAVE, NewPost(text), SOURCE)) for text in "ab"
        ]
        self.assertEqual(len(self.held), 1)  # the second waits for the first
        self.hold = False
        self.held[0].callback(None)
        self.assertEqual([self.successResultOf(each).id for each in works], [1, 2])
        self.assertIn(b"<description>a", self.feed())
        self.assertIn(b"<description>b", self.feed())

    def test_of_two_processes_begin_again(self) -> None:
        slow = Writing(self.options, self._parts(in_thread=self.in_thread))
        self.hold = True
        work = Deferred.fromCoroutine(slow.add(DAVE, NewPost("slow"), SOURCE))
        self.hold = False
        quick = self.add("quick")
        self.held[0].callback(None)
        self.assertEqual((quick.id, self.successResultOf(work).id), (1, 2))
        feed = self.feed()
        self.assertLess(feed.index(b"slow"), feed.index(b"quick"))


class PartsAtTheSameMomentTests(SameMomentTestCase):
    """Two changes of parts of a message at the same moment."""

    def begin_adding(
        self, writing: Writing, post: Post, category: str, **more: Any
    ) -> Deferred[Post]:
        """Begin to add a category to a message as it is."""

        async def with_category(old: Post) -> NewPost:
            return evolve(old.as_new(), categories=(*old.categories, category), **more)

        return Deferred.fromCoroutine(writing.edit(DAVE, post.id, with_category, SOURCE))

    def begin_slowly(
        self, post: Post, options: WritingOptions | None = None, **more: Any
    ) -> Deferred[Post]:
        """Begin to add the category ``slow`` in another process, which is held up."""
        slow = Writing(options or self.options, self._parts(in_thread=self.in_thread))
        self.hold = True
        work = self.begin_adding(slow, post, "slow", **more)
        self.hold = False
        return work

    def test_in_one_process(self) -> None:
        for is_draft in (False, True):
            post = self.add("a", is_draft=is_draft)
            self.writing = Writing(self.options, self._parts(in_thread=self.in_thread))
            self.held, self.hold = [], not is_draft
            works = [self.begin_adding(self.writing, post, name) for name in "xyz"]
            self.hold = False
            for gate in self.held:
                gate.callback(None)
            for each in works:
                self.successResultOf(each)
            stored = self.result(self.writing.post(DAVE, post.id))
            self.assertEqual(sorted(stored.categories), ["x", "y", "z"])

    def test_in_two_processes(self) -> None:
        post = self.add("a")
        work = self.begin_slowly(post)
        self.successResultOf(self.begin_adding(self.writing, post, "quick"))
        self.held[0].callback(None)
        self.assertEqual(self.successResultOf(work).categories, ("quick", "slow"))
        self.assertIn(b"<category>quick</category>", self.feed())
        self.assertIn(b"<category>slow</category>", self.feed())

    def test_of_a_message_that_is_deleted_meanwhile(self) -> None:
        post = self.add("a")
        work = self.begin_slowly(post)
        self.delete(post.id)
        self.held[0].callback(None)
        self.failureResultOf(work, InvalidPost)
        self.assertNotIn(b"<item>", self.feed())

    def test_a_repeated_edit_is_one_change(self) -> None:
        """And the server of an enclosure is asked once."""
        self.web.answers[FILE] = reply()
        post = self.add("a")
        options = WritingOptions(posts_per_minute=1)
        work = self.begin_slowly(post, options, enclosure_url=FILE)
        self.edit(post, text="quick")
        self.held[0].callback(None)
        changed = self.successResultOf(work)
        assert changed.enclosure is not None
        self.assertEqual((changed.text, changed.enclosure.url), ("quick", FILE))
        self.assertEqual(len(self.web.requests), 1)


class ServersThread(CallersThread):
    """The same for a database that has its tables."""

    def start(self, engine: Engine) -> None:
        self._use(engine)


class PartsAtTheSameMomentOnPostgreSQLTests(PartsAtTheSameMomentTests):
    """On PostgreSQL."""

    def new_database(self) -> tuple[str, CallersThread]:
        url = empty_database()
        migrate(url, {"writing": TABLES})
        return url, ServersThread()


class EnclosureTests(WritingTestCase):
    def refusal(self, url: str = FILE) -> str:
        new = NewPost("a", enclosure_url=url)
        return self.error(self.writing.add(DAVE, new, SOURCE), InvalidPost)

    def test_facts_are_asked_by_head(self) -> None:
        self.web.answers[FILE] = reply(content_type="Audio/MPEG; x=1", content_length="4711")
        post = self.add("a", enclosure_url=FILE)
        self.assertEqual(post.enclosure, Enclosure(FILE, "audio/mpeg", 4711))
        (request,) = self.web.requests
        self.assertEqual((request.method, request.redirects), ("HEAD", 5))
        self.assertEqual(self.edit(post, text="b").enclosure, post.enclosure)
        self.assertEqual(len(self.web.requests), 1)  # what stays is not asked again
        self.assertIsNone(self.edit(post, enclosure_url="").enclosure)

    def test_servers_without_head(self) -> None:
        def answer(request: Any) -> Any:
            if request.method == "HEAD":
                return reply(405)
            self.assertEqual(request.headers, {"range": "bytes=0-0"})
            return reply(206, b"x", content_range="bytes 0-0/1000", content_type="video/mp4")

        self.web.otherwise = answer
        enclosure = self.add("a", enclosure_url=FILE).enclosure
        self.assertEqual(enclosure, Enclosure(FILE, "video/mp4", 1000))

    def test_servers_that_tell_little(self) -> None:
        for answer in (reply(), reply(content_type="nonsense\n", content_length="-1")):
            self.web.answers[FILE] = answer
            kept = self.add(enclosure_url=FILE).enclosure
            self.assertEqual(kept, Enclosure(FILE, "audio/mpeg", 0))
        other = "http://files.example/x"
        kept = self.add(enclosure_url=other).enclosure
        self.assertEqual(kept, Enclosure(other, "application/octet-stream", 0))

    def test_refusals(self) -> None:
        for answer, said in (
            (reply(404), "its server answers with status 404; check the address"),
            (AddressRefused("it leads to a private network"), "it leads to a private network"),
            (reply(content_type="text/html"), "there is a page at"),
        ):
            self.web.answers[FILE] = answer
            self.assertIn(said, self.refusal())
        self.assertEqual(self.posts(), [])

    def test_own_uploads_are_known(self) -> None:
        url = self.upload_file(b"GIF89a...")
        post = self.add("a", enclosure_url=url)
        self.assertEqual(post.enclosure, Enclosure(url, "image/gif", 9))
        self.assertEqual(self.web.requests, [])
        other = url.replace(url[-20:-4], "0" * 16)
        self.assertIn("there is no file at", self.refusal(other))
