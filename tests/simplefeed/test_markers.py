"""A marker is the old one or the new one, and that of another feed is refused."""

from __future__ import annotations

import os

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

    def loaded(self) -> Position | None:
        loading = FileMarker(self.file, FEED, execute).load()
        return self.successResultOf(Deferred.fromCoroutine(loading))

    def complaint(self) -> str:
        loading = FileMarker(self.file, FEED, execute).load()
        return str(self.failureResultOf(loading, FollowError).value)

    def test_what_is_saved_is_loaded(self) -> None:
        verifyObject(IMarker, self.marker)
        self.assertIsNone(self.loaded())
        self.file.setContent(b"\n")
        self.assertIsNone(self.loaded())
        for position in (POSITION, Position("")):
            self.successResultOf(self.marker.save(position))
            self.assertEqual(self.loaded(), position)

    def test_other_files(self) -> None:
        for content, reason in (
            (b"notes", "is not a marker: JSON is malformed"),
            (b"{}", "is not a marker: Object missing required field `feed`"),
            (b'{"feed":"http://b.example/","entry":"1"}', "of another feed, http://b.example/"),
        ):
            self.file.setContent(content)
            self.assertIn(reason, self.complaint())
        self.file.remove()
        self.file.makedirs()
        self.assertIn("is no file", self.complaint())
        self.file = FilePath("/dev/null")
        self.assertIn("/dev/null is no file", self.complaint())

    def test_old_marker_stays_if_the_disk_is_full(self) -> None:
        self.successResultOf(self.marker.save(POSITION))

        def full(descriptor: int) -> None:
            raise OSError("No space left on device")

        self.patch(os, "fsync", full)
        self.failureResultOf(self.marker.save(Position("urn:uuid:2")), OSError)
        self.assertEqual(self.loaded(), POSITION)
        self.assertEqual(self.file.parent().globChildren(f"{self.file.basename()}*"), [self.file])
