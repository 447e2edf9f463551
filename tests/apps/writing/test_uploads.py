"""Uploaded files: what they are, where they are kept, and that they harm nobody."""

from __future__ import annotations

from hashlib import sha256
from itertools import count, takewhile
from typing import Any

from attrs import evolve
from sqlalchemy import Connection, select
from twisted.python.filepath import FilePath
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.apps.writing import rows, store, upload_rows
from rsscloud_broker.apps.writing.app import make
from rsscloud_broker.apps.writing.file_urls import (
    ENDINGS,
    UNKNOWN,
    FileUrls,
    media_type,
    shown_name,
)
from rsscloud_broker.apps.writing.model import InvalidPost, NewPost, OutlineItem
from rsscloud_broker.apps.writing.options import WritingOptions
from rsscloud_broker.apps.writing.schema import chunk, upload
from rsscloud_broker.apps.writing.store import PostStore
from rsscloud_broker.apps.writing.writing import Writing
from rsscloud_broker.database.methods import writing
from rsscloud_broker.errors import DiskFull, TooMany, Unavailable
from rsscloud_broker.events import TopicEnded
from rsscloud_broker.interfaces import Caller
from rsscloud_broker.model.administration import Block
from tests.apps.writing import house

DIGEST = sha256(house.GIF).hexdigest()


class SniffingTests(SynchronousTestCase):
    def test_kinds(self) -> None:
        for data, kind in (
            (b"\xff\xd8\xff\xe0", "image/jpeg"),
            (b"\x89PNG\r\n\x1a\n", "image/png"),
            (house.GIF, "image/gif"),
            (b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp"),
            (b"\x00\x00\x00\x1cftypavif", "image/avif"),
            (b"RIFF\x00\x00\x00\x00WAVEfmt ", "audio/wav"),
            (b"ID3\x03\x00", "audio/mpeg"),
            (b"\xff\xfb\x90\x44", "audio/mpeg"),
            (b"OggS" + bytes(24) + b"\x01vorbis", "audio/ogg"),
            (b"OggS" + bytes(24) + b"\x01\x80theora", "video/ogg"),
            (b"fLaC\x00", "audio/flac"),
            (b"\x00\x00\x00\x20ftypM4A ", "audio/mp4"),
            (b"\x00\x00\x00\x20ftypisom", "video/mp4"),
            (b"\x1aE\xdf\xa3\x01" + bytes(6) + b"\x1fB\x86\x81\x01B\x82\x84webm", "video/webm"),
            (b"%PDF-1.7\n", "application/pdf"),
        ):
            self.assertEqual(media_type(data), kind, data)
            self.assertIn(kind, ENDINGS)

    def test_what_could_be_active_is_unknown(self) -> None:
        for data in (
            *(b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"<?xml version='1.0'?><svg/>"),
            *(b"<!DOCTYPE html><script>", b"  <html>", b"GIF<script>", b"RIFF<html>"),
            *(b"#!/bin/sh", b"\xff\xfe<\x00h\x00", b"MZ", b""),
        ):
            self.assertEqual(media_type(data), UNKNOWN, data)


class NamesTests(SynchronousTestCase):
    def test_names_are_made_harmless(self) -> None:
        for name, harmless in (
            ("a.png", "a.png"),
            ("../../../etc/passwd", "passwd"),
            ("C:\\Users\\me\\b.gif", "b.gif"),
            ("..", "file"),
            ("", "file"),
            ("\x00\r\nSet-Cookie: x", "Set-Cookie x"),
            ('"><script>', "script"),
            ("Bild für Anna.jpg", "Bild für Anna.jpg"),
            ("x" * 5000, "x" * 100),
        ):
            self.assertEqual(shown_name(name), harmless)

    def test_urls(self) -> None:
        files = FileUrls(house.BROKER)
        digest = "a" * 64
        url = f"{house.BROKER}/people/dave/files/{digest}.png"
        self.assertEqual(files.parse_url(url), ("dave", digest))
        odd = url.replace("http://broker", "HTTP://Broker").replace("files", "%66iles")
        self.assertEqual(files.parse_url(odd), ("dave", digest))
        for spelled, stored in (
            (url, url),
            (odd, url),
            (f"{odd}?x=%31#t=10", f"{url}?x=1#t=10"),
            ("HTTP://Other.example/%66", "HTTP://Other.example/%66"),
        ):
            self.assertEqual(files.as_stored(spelled), stored)
        replaced = (("http:", "https:"), ("dave", "../dave"), (".png", "/../x"), ("aaa", "AAA"))
        for other in (
            *(url.replace(*each) for each in replaced),
            f"{house.BROKER}.evil/people/dave/files/{digest}.png",
            f"{house.BROKER}/people/dave/files/../../x",
            f"{house.BROKER}//x/people/dave/files/{digest}.png",
            f"{house.BROKER}//[",
        ):
            self.assertIsNone(files.parse_url(other), other)


class UploadTestCase(house.WritingTestCase):
    options = WritingOptions(max_upload_bytes=1000, quota_bytes=2500, posts_per_minute=100)

    def refusal(
        self, data: bytes, kind: type[Exception] = InvalidPost, caller: Caller = house.DAVE
    ) -> str:
        """The text of the error of an upload."""
        return self.error(self.writing.upload(caller, "x", data, house.SOURCE), kind)

    def kept(self) -> list[str]:
        """The digests of the files whose bytes are stored."""

        def digests(conn: Connection) -> list[str]:
            numbers = conn.execute(select(chunk.c.upload_id).distinct()).scalars().all()
            rows = conn.execute(select(upload.c.id, upload.c.digest)).all()
            known = {row.id: row.digest for row in rows}
            return sorted(known.get(number, "lost") for number in numbers)

        found: list[str] = self.successResultOf(self.threads.read(digests))
        return found

    def content(self, digest: str) -> bytes:
        """The bytes of a file of dave's."""
        found = self.successResultOf(self.writing.store.upload_named("dave", digest))
        assert found is not None
        pieces = iter(
            self.successResultOf(self.writing.store.get_chunk(found.id, number))
            for number in count()
        )
        return b"".join(piece or b"" for piece in takewhile(lambda each: each is not None, pieces))


class UploadTests(UploadTestCase):
    def test_an_upload(self) -> None:
        upload = self.result(self.writing.upload(house.DAVE, "../a.svg", house.GIF, house.SOURCE))
        url = self.writing.files.url("dave", upload)
        self.assertEqual(url, f"{house.BROKER}/people/dave/files/{DIGEST}.gif")
        self.assertEqual((upload.media_type, upload.size, upload.name), ("image/gif", 10, "a.svg"))
        self.assertEqual((self.kept(), self.content(DIGEST)), ([DIGEST], house.GIF))
        self.assertEqual([each.id for each in self.files_of()], [upload.id])
        self.assertEqual(self.files_of(house.ANNA), [])
        # Another node has it, too.
        self.writing = Writing(self.options, self._parts(directory=FilePath(self.mktemp())))
        self.assertEqual([each.name for each in self.files_of()], ["a.svg"])
        self.assertEqual(self.content(DIGEST), house.GIF)

    def test_the_same_file_again(self) -> None:
        for name in ("a.gif", "b.gif"):
            self.upload_file(house.GIF, name)
        self.assertEqual([each.name for each in self.files_of()], ["a.gif"])
        self.assertEqual(len(self.kept()), 1)
        self.upload_file(house.GIF, caller=house.ANNA)
        for removed in (True, False):
            self.assertEqual(self.remove_upload(DIGEST), removed)
            self.assertEqual(len(self.kept()), 1)  # hers
        self.assertFalse(self.remove_upload("../../x"))
        self.assertTrue(self.remove_upload(DIGEST, house.ANNA))
        self.assertEqual(self.kept(), [])

    def test_limits(self) -> None:
        self.assertIn("is empty", self.refusal(b""))
        self.assertIn("has 1,001 bytes; it may have 1,000", self.refusal(b"x" * 1001))
        for letter in (b"a", b"b"):
            self.upload_file(letter * 1000)
        self.assertIn("more than 2,500 bytes together", self.refusal(b"c" * 501))
        self.assertEqual(len(self.kept()), 2)
        self.upload_file(b"c" * 500)
        self.upload_file(b"a" * 1000)  # is there already
        self.assertTrue(self.remove_upload(sha256(b"a" * 1000).hexdigest()))
        self.upload_file(b"d" * 1000)
        self.assertEqual(len(self.kept()), 3)

    def test_limit_that_an_administrator_has_set(self) -> None:
        small, large = (
            evolve(house.DAVE, account=evolve(house.DAVE.account, max_bytes=most))
            for most in (50, 5000)
        )
        self.assertIn("more than 50 bytes", self.refusal(house.GIF + b"x" * 50, caller=small))
        for number in range(4):
            self.upload_file(bytes([number]) * 900, caller=large)
        self.assertIn("more than 2,500 bytes", self.refusal(b"y" * 900))

    def test_a_file_that_a_message_has_stays(self) -> None:
        """However its URL is spelled, and wherever in the message it is."""
        url = self.upload_file(house.GIF)
        odd = url.replace("http://broker", "HTTP://Broker").replace("/files/", "/%66iles/./")
        odd = odd.replace(DIGEST[:1], f"%{ord(DIGEST[0]):02x}", 1)
        below = OutlineItem("a", items=(OutlineItem("b", link=odd),))
        for new in (
            NewPost("x", enclosure_url=odd),
            NewPost("x", link=odd),
            NewPost("x", items=(below,)),
            NewPost(f"x {url}"),
        ):
            self.writing = Writing(evolve(self.options, max_characters=1000), self.parts)
            post = self.result(self.writing.add(house.DAVE, new, house.SOURCE))
            text = self.error(self.writing.remove_upload(house.DAVE, DIGEST), InvalidPost)
            self.assertIn(f"belongs to your message {post.id};", text)
            self.delete(post.id)
        self.assertEqual(self.web.requests, [])  # nobody has to be asked about an own file
        self.assertTrue(self.remove_upload(DIGEST))

    def test_pace(self) -> None:
        self.writing = Writing(evolve(self.options, posts_per_minute=1), self.parts)
        self.upload_file(house.GIF)
        self.refusal(b"y", TooMany)


class InterruptedTests(UploadTestCase):
    """Uploads that fail half-way, or whose node crashes."""

    def setUp(self) -> None:
        super().setUp()
        self.patch(store, "CHUNK", 2)
        self.patch(store, "AT_ONCE", 2)

    def fail_at(self, number: int, error: Exception) -> None:
        """Have the store fail at a piece of a file."""

        def put(conn: Connection, upload_id: int, at: int, data: Any, is_last: bool) -> None:
            if at == number:
                raise error
            upload_rows.put_chunks(conn, upload_id, at, data, is_last)

        self.patch(PostStore, "put_chunks", writing(put))

    def test_a_disk_that_becomes_full(self) -> None:
        self.fail_at(2, DiskFull("no space is left"))
        self.refusal(house.GIF, DiskFull)
        self.assertEqual(self.files_of(), [])
        self.result(self.writing.kept_files.sweep())
        self.assertEqual(self.kept(), [])

    def test_a_crash(self) -> None:
        self.fail_at(4, KeyError("a crash, after which nothing is done any more"))
        self.refusal(house.GIF, KeyError)
        self.assertEqual(self.kept(), [DIGEST])
        self.result(self.writing.kept_files.sweep())
        self.assertEqual(self.kept(), [DIGEST])  # another node may be at work
        self.clock.advance(3601)
        self.result(self.writing.kept_files.sweep())
        self.assertEqual(self.kept(), [])

    def test_the_same_file_after_a_crash(self) -> None:
        self.fail_at(4, KeyError("a crash"))
        self.refusal(house.GIF, KeyError)
        self.patch(PostStore, "put_chunks", writing(upload_rows.put_chunks))
        self.upload_file(house.GIF)
        self.result(self.writing.kept_files.sweep())
        self.assertEqual((self.kept(), self.content(DIGEST)), ([DIGEST], house.GIF))

    def test_the_file_is_removed_meanwhile(self) -> None:
        def put(conn: Connection, upload_id: int, at: int, data: Any, is_last: bool) -> None:
            if is_last:
                upload_rows.drop_unfinished(conn, 9e9)
            upload_rows.put_chunks(conn, upload_id, at, data, is_last)

        self.patch(PostStore, "put_chunks", writing(put))
        self.refusal(house.GIF, Unavailable)
        self.assertEqual(self.files_of(), [])


class RemovedAccountTests(UploadTestCase):
    """What an account has published goes with the account."""

    def forget(self) -> None:
        for data in make(self.options, self.parts).account_data:
            self.result(data.remove(house.DAVE.account.id))

    def ended(self) -> list[str]:
        """The topics that have ended."""
        return [each.topic for each in self.bus.events if isinstance(each, TopicEnded)]

    def test_everything_goes(self) -> None:
        self.patch(rows, "FORGOTTEN_AT_ONCE", 1)
        for caller in (house.DAVE, house.ANNA):
            url = self.upload_file(house.GIF, caller=caller)
            for text in "xyz":
                self.add(text, caller, enclosure_url=url, categories=("c",))
        self.subscribe(house.FEED, house.ATOM)
        self.disk.full = True  # what is taken away needs no space
        self.blocks.change([Block("topic", house.FEED, "spam", "root", 0.0)])
        self.forget()
        self.forget()  # two nodes may do it
        self.assertFalse(self.has_feed())
        self.assertTrue(self.has_feed(house.FEED.replace("dave", "anna")))
        self.assertEqual(self.ended(), [house.FEED, house.ATOM, house.JSON])
        self.assertEqual(len(self.kept()), 1)  # hers
        self.assertEqual(self.posts(), [])
        self.disk.full = False
        self.blocks.change([])
        new = self.add("new", house.SUCCESSOR)  # with whom the topics live again
        self.assertEqual(new.id, 4)
        self.assertIn(b"new", self.feed())

    def test_who_published_nothing(self) -> None:
        self.add("secret", is_draft=True)
        self.upload_file(house.GIF)
        self.forget()
        self.assertEqual((self.kept(), self.posts()), ([], []))

    def test_a_crash_half_way(self) -> None:
        """The account is found again, since its rows go last."""
        self.add("x")
        self.subscribe(house.FEED, house.ATOM)
        publisher = self.parts.publisher
        removed: list[str] = []

        def remove(url: str, *args: Any) -> Any:
            removed.append(url)
            if len(removed) == 2:
                raise Unavailable("the power fails")
            return type(publisher).remove(publisher, url, *args)

        self.patch(publisher, "remove", remove)
        self.error(self.writing.forget_account(house.DAVE.account.id), Unavailable)
        self.assertTrue(self.has_feed())
        self.forget()
        self.assertFalse(self.has_feed())
        self.assertEqual(self.ended(), [house.FEED, house.ATOM, house.JSON])
