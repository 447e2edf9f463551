"""Whether the broker could listen somewhere, and what it says where it cannot."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from tempfile import mkdtemp

from twisted.internet.error import CannotListenError
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.front_doors.listening import can_be_tried, is_busy, sentence, why_not
from tests.processes import free_port


class TryingTests(SynchronousTestCase):
    def listening(self, family: int, address: object) -> socket.socket:
        """A socket of somebody else's."""
        other = socket.socket(family)
        self.addCleanup(other.close)
        other.bind(address)  # type: ignore[arg-type] # it is one of that family
        other.listen()
        return other

    def refusal(self, description: str) -> str:
        error = why_not(description)
        assert error is not None, description
        return sentence(error)

    def test_free(self) -> None:
        port = free_port()
        for description in (f"tcp:{port}:interface=127.0.0.1", f"tcp6:{port}", f"tcp:{port}"):
            self.assertIsNone(why_not(description), description)
        # Nobody listens there afterwards.
        with socket.socket() as client:
            self.assertEqual(client.connect_ex(("127.0.0.1", port)), errno.ECONNREFUSED)

    def test_busy(self) -> None:
        port = self.listening(socket.AF_INET, ("127.0.0.1", 0)).getsockname()[1]
        error = why_not(f"tcp:{port}:interface=127.0.0.1")
        assert error is not None
        self.assertTrue(is_busy(error))
        self.assertIn("Address already in use", sentence(error))
        self.assertIn("Is a broker running already? --listen names another", sentence(error))

    def test_an_address_of_another_machine(self) -> None:
        self.assertEqual(
            self.refusal("tcp:5337:interface=192.0.2.1"),
            "cannot listen on 192.0.2.1: this machine has no such address; --listen names another",
        )

    def test_a_port_that_needs_rights(self) -> None:
        refused = PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        self.assertIn(
            "port 443: ports below 1024 need rights",
            sentence(CannotListenError("", 443, refused)),
        )
        self.assertNotIn("rights", sentence(CannotListenError("", 5337, refused)))

    def test_other_kinds_are_not_tried(self) -> None:
        for description in ("systemd:domain=INET:index=0", "le:/certificates:tcp:443", "onion:80"):
            self.assertFalse(can_be_tried(description))
        for description in ("tcp:80", "tcp6:80", "ssl:443:privateKey=k", "unix:/run/x.sock"):
            self.assertTrue(can_be_tried(description))


class UnixTests(TryingTests):
    def setUp(self) -> None:
        # The path of a UNIX socket must be short, which those of trial are not.
        self.directory = Path(mkdtemp())
        self.addCleanup(self.directory.rmdir)
        self.path = self.directory / "x.sock"

    def test_free(self) -> None:
        self.assertIsNone(why_not(f"unix:{self.path}"))
        self.assertFalse(self.path.exists())

    def test_no_directory(self) -> None:
        self.assertEqual(
            self.refusal(f"unix:{self.directory}/no/x.sock"),
            f"cannot listen: {self.directory}/no/x.sock: No such file or directory; "
            "--listen names another address",
        )

    def test_busy(self) -> None:
        self.listening(socket.AF_UNIX, str(self.path))
        self.addCleanup(self.path.unlink)
        error = why_not(f"unix:{self.path}")
        assert error is not None
        self.assertTrue(is_busy(error))
        self.assertEqual(
            sentence(error),
            f"cannot listen: {self.path}: Address already in use; --listen names another address",
        )

    def test_left_over(self) -> None:
        """A broker that was killed leaves its socket; the lock beside it tells that it has gone."""
        self.listening(socket.AF_UNIX, str(self.path)).close()
        self.addCleanup(self.path.unlink)
        self.assertIsNone(why_not(f"unix:{self.path}"))
        self.assertIn("in use", self.refusal(f"unix:{self.path}:lockfile=0"))
