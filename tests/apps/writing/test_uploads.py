"""Uploaded files: what they are, where they are kept, and that they harm nobody."""

from __future__ import annotations

from hashlib import sha256

from attrs import evolve
from twisted.python.filepath import FilePath
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.apps.writing.model import InvalidPost
from rsscloud_broker.apps.writing.options import WritingOptions
from rsscloud_broker.apps.writing.sniffing import ENDINGS, UNKNOWN, media_type
from rsscloud_broker.apps.writing.uploads import Files, shown_name
from rsscloud_broker.errors import TooMany
from tests.apps.writing.house import ANNA, BROKER, DAVE, SOURCE, WritingTestCase

GIF = b"GIF89a\x01\x00\x01\x00"


class SniffingTests(SynchronousTestCase):
    def test_kinds(self) -> None:
        for data, kind in (
            (b"\xff\xd8\xff\xe0", "image/jpeg"),
            (b"\x89PNG\r\n\x1a\n", "image/png"),
            (GIF, "image/gif"),
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
            (
                b"\x1aE\xdf\xa3\x01\x00\x00\x00\x00\x00\x00\x1fB\x86\x81\x01B\x82\x84webm",
                "video/webm",
            ),
            (b"%PDF-1.7\n", "application/pdf"),
        ):
            self.assertEqual(media_type(data), kind, data)
            self.assertIn(kind, ENDINGS)

    def test_what_could_be_active_is_unknown(self) -> None:
        for data in (
            b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>",
            b"<?xml version='1.0'?><svg/>",
            b"<!DOCTYPE html><script>",
            b"  <html>",
            b"GIF<script>",
            b"RIFF<html>",
            b"#!/bin/sh",
            b"\xff\xfe<\x00h\x00",
            b"MZ",
            b"",
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
        files = Files(FilePath("none"), BROKER)
        digest = "a" * 64
        url = f"{BROKER}/people/dave/files/{digest}.png"
        self.assertEqual(files.named(url), ("dave", digest))
        for other in (
            url.replace("http:", "https:"),
            url.replace("dave", "../dave"),
            url.replace(".png", "/../x"),
            url.replace("aaa", "AAA"),
            f"{BROKER}.evil/people/dave/files/{digest}.png",
            f"{BROKER}/people/dave/files/../../x",
        ):
            self.assertIsNone(files.named(other), other)


class UploadTests(WritingTestCase):
    options = WritingOptions(max_upload_bytes=1000, quota_bytes=2500, posts_per_minute=100)

    def upload(self, data: bytes = GIF, name: str = "a.gif") -> object:
        return self.result(self.writing.upload(DAVE, name, data, SOURCE))

    def refusal(self, data: bytes) -> str:
        return self.error(self.writing.upload(DAVE, "x", data, SOURCE), InvalidPost)

    def kept(self) -> list[str]:
        return sorted(each.basename() for each in self.directory.walk() if each.isfile())

    def test_an_upload(self) -> None:
        upload = self.result(self.writing.upload(DAVE, "../a.svg", GIF, SOURCE))
        digest = sha256(GIF).hexdigest()
        self.assertEqual(upload.url, f"{BROKER}/people/dave/files/{digest}.gif")
        self.assertEqual((upload.media_type, upload.size, upload.name), ("image/gif", 10, "a.svg"))
        self.assertEqual(self.kept(), [digest])
        self.assertEqual(self.writing.files.file(DAVE.account.id, digest).getContent(), GIF)
        self.assertEqual(self.result(self.writing.uploads(DAVE, 9)), [upload])
        self.assertEqual(self.result(self.writing.uploads(ANNA, 9)), [])

    def test_the_same_file_again(self) -> None:
        first = self.upload()
        self.assertEqual(self.upload(name="b.gif"), first)
        self.assertEqual(len(self.kept()), 1)
        self.result(self.writing.upload(ANNA, "x", GIF, SOURCE))
        self.assertTrue(self.result(self.writing.remove_upload(DAVE, sha256(GIF).hexdigest())))
        self.assertEqual(len(self.kept()), 1)  # hers

    def test_limits(self) -> None:
        self.assertIn("is empty", self.refusal(b""))
        self.assertIn("has 1,001 bytes; it may have 1,000", self.refusal(b"x" * 1001))
        for letter in (b"a", b"b"):
            self.upload(letter * 1000)
        self.assertIn("more than 2,500 bytes together", self.refusal(b"c" * 501))
        self.assertEqual(len(self.kept()), 2)
        self.upload(b"c" * 500)
        self.upload(b"a" * 1000)  # is there already
        self.assertTrue(
            self.result(self.writing.remove_upload(DAVE, sha256(b"a" * 1000).hexdigest()))
        )
        self.upload(b"d" * 1000)
        self.assertEqual(len(self.kept()), 3)

    def test_removing(self) -> None:
        self.upload()
        digest = sha256(GIF).hexdigest()
        self.assertFalse(self.result(self.writing.remove_upload(ANNA, digest)))
        self.assertFalse(self.result(self.writing.remove_upload(DAVE, "../../x")))
        self.assertEqual(self.kept(), [digest])
        self.assertTrue(self.result(self.writing.remove_upload(DAVE, digest)))
        self.assertEqual(self.kept(), [])

    def test_pace(self) -> None:
        self.writing = type(self.writing)(evolve(self.options, posts_per_minute=1), self.parts)
        self.upload()
        self.error(self.writing.upload(DAVE, "x", b"y", SOURCE), TooMany)
