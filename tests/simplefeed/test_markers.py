"""A marker is the old one or the new one, and that of another feed is refused."""

from __future__ import annotations

import os
from typing import Any

from twisted.internet.defer import Deferred, execute
from twisted.python.filepath import FilePath
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from rsscloud_broker.interfaces import IMarker, Position
from rsscloud_broker.simplefeed.errors import FollowError
from rsscloud_broker.simplefeed.markers import FileMarker

FEED = "http://a.example/recent"
POSITION = Position("urn:uuid:1", 1358341200.123456, "http://a.example/3")


class FileMarkerTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.file = FilePath(self.mktemp())
        self.marker = FileMarker(self.file, FEED, execute)

    def load(self, feed: str = FEED) -> Deferred[Any]:
        return Deferred.fromCoroutine(FileMarker(self.file, feed, execute).load())

    def save(self, position: Position = POSITION) -> Deferred[None]:
        return Deferred.fromCoroutine(self.marker.save(position))

    def test_what_is_saved_is_loaded(self) -> None:
        verifyObject(IMarker, self.marker)
        self.assertIsNone(self.successResultOf(self.load()))
        for position in (POSITION, Position("")):
            self.successResultOf(self.save(position))
            self.assertEqual(self.successResultOf(self.load()), position)

    def test_empty_file(self) -> None:
        self.file.setContent(b"\n")
        self.assertIsNone(self.successResultOf(self.load()))

    def test_other_files(self) -> None:
        for content, reason in (
            (b"notes", "is not a marker: JSON is malformed"),
            (b"{}", "is not a marker: Object missing required field `feed`"),
            (b'{"feed":"http://b.example/","entry":"1"}', "of another feed, http://b.example/"),
        ):
            self.file.setContent(content)
            error = self.failureResultOf(self.load(), FollowError).value
            self.assertIn(reason, str(error))
        self.file.remove()
        self.file.makedirs()
        self.assertIn("is no file", str(self.failureResultOf(self.load(), FollowError).value))

    def test_device_is_not_replaced(self) -> None:
        self.file = FilePath("/dev/null")
        error = self.failureResultOf(self.load(), FollowError).value
        self.assertIn("/dev/null is no file", str(error))

    def test_old_marker_stays_if_the_disk_is_full(self) -> None:
        self.successResultOf(self.save())

        def full(descriptor: int) -> None:
            raise OSError("No space left on device")

        self.patch(os, "fsync", full)
        self.failureResultOf(self.save(Position("urn:uuid:2")), OSError)
        self.assertEqual(self.successResultOf(self.load()), POSITION)
        self.assertEqual(self.file.parent().globChildren(f"{self.file.basename()}*"), [self.file])
