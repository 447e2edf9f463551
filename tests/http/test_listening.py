"""The broker finds out whether it can listen on an endpoint, and says why not."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from tempfile import mkdtemp

from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from twisted.internet import reactor
from twisted.internet.error import CannotListenError
from twisted.internet.protocol import Factory
from twisted.internet.testing import MemoryReactor
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.config import ConfigError
from rsscloud_broker.http import listening
from rsscloud_broker.http.listening import (
    BACKLOG,
    can_be_tried,
    check_endpoints,
    is_busy,
    listener,
    listening_error,
    sentence,
)
from tests.outbound.authority import authority
from tests.processes import free_port


class CheckedTests(SynchronousTestCase):
    """Endpoints that the configuration names."""

    def refusal(self, *descriptions: str) -> str:
        error = self.assertRaises(ConfigError, check_endpoints, descriptions, reactor)
        return str(error)

    def test_a_line_for_each(self) -> None:
        said = self.refusal("tcp:notaport", "tcp:80", "nonsense:1").splitlines()
        faults = [line.partition(" is no endpoint to use")[0] for line in said]
        self.assertEqual(faults, ["listen: 'tcp:notaport'", "listen: 'nonsense:1'"])

    def test_two_at_one_port(self) -> None:
        """Each alone could listen, so nobody but the start would notice."""
        local = "tcp:5337:interface=127.0.0.1"
        for first, second in (
            ("tcp:5337", local),
            (local, "tcp:port=5337"),
            (local, local),
            ("tcp6:5337", r"tcp:5337:interface=\:\:1"),
        ):
            said = f"listen: {second!r} is the port at which {first!r} listens already"
            self.assertEqual(self.refusal(first, second), said)
        other = "tcp:5337:interface=127.0.0.2"
        check_endpoints([local, other, "tcp:5338", "tcp:0", "tcp:0", "unix:a", "unix:b"], reactor)

    def test_all_addresses_of_ipv6_and_one_of_ipv4(self) -> None:
        for ipv4 in ("tcp:5337", "tcp:5337:interface=127.0.0.1"):
            self.patch(listening, "_takes_ipv4", lambda: True)
            self.assertIn("listens already", self.refusal(ipv4, "tcp6:5337"))
            check_endpoints([ipv4, r"tcp6:5337:interface=\:\:1"], reactor)
            self.patch(listening, "_takes_ipv4", lambda: False)
            check_endpoints([ipv4, "tcp6:5337"], reactor)

    def test_whether_ipv6_takes_ipv4(self) -> None:
        with socket.socket(socket.AF_INET6) as everywhere:
            everywhere.bind(("::", 0))
            everywhere.listen()
            error = listening_error(f"tcp:{everywhere.getsockname()[1]}")
        self.assertEqual(error is not None, listening._takes_ipv4())

    def test_sockets_of_systemd_that_are_not_there_yet(self) -> None:
        for about in ("domain=INET:index=0", "UNIX:name=web", "domain=INET6:name=a"):
            check_endpoints([f"systemd:{about}"], reactor)

    def test_what_systemd_can_pass_to_nobody(self) -> None:
        for about in (
            *("nonsense", "domain=INET", "domain=INET:index=first", "domain=INET:index=0:name=web"),
            *("domain=NONSENSE:index=0", "index=0", "domain=INET:index=0:colour=red"),
        ):
            description = f"systemd:{about}"
            self.assertIn(f"listen: {description!r} is no", self.refusal(description))


class QueueTests(SynchronousTestCase):
    """How many connections wait in the system's queue until the broker accepts them."""

    def backlog(self, description: str) -> int:
        memory = MemoryReactor()
        listener(description, Factory(), memory).privilegedStartService()
        ((*_, backlog, _),) = memory.tcpServers or memory.unixServers
        return int(backlog)

    def test_a_thousand_browsers_that_come_again_wait_for_no_second_attempt(self) -> None:
        for description in ("tcp:8080", "tcp:8080:interface=127.0.0.1", "tcp6:8080"):
            self.assertEqual(self.backlog(description), BACKLOG, description)
        self.assertGreaterEqual(BACKLOG, 1000)

    def test_the_operator_says_another_number(self) -> None:
        for description in ("tcp:8080:backlog=7", "tcp:8080:127.0.0.1:7"):
            self.assertEqual(self.backlog(description), 7, description)


class TLSFilesTests(SynchronousTestCase):
    """The files of an ``ssl:`` endpoint; errors are sentences and not OpenSSL's codes."""

    def setUp(self) -> None:
        self.directory = Path(self.mktemp()).absolute()
        self.directory.mkdir()
        self.certificate = self.directory / "cert.pem"
        self.key = self.directory / "key.pem"
        certificate, key = authority().pem("localhost")
        self.certificate.write_bytes(certificate)
        self.key.write_bytes(key)

    def refusal(self, more: str = "") -> str:
        description = f"ssl:443:privateKey={self.key}:certKey={self.certificate}{more}"
        error = self.assertRaises(ConfigError, check_endpoints, [description], reactor)
        beginning = f"listen: {description!r} is no endpoint to use: "
        self.assertTrue(str(error).startswith(beginning), str(error))
        reason = str(error).removeprefix(beginning)
        self.assertNotIn("[(", reason)
        self.assertNotIn("\n", reason)
        return reason

    def test_files_that_can_be_used(self) -> None:
        description = f"ssl:443:privateKey={self.key}:certKey={self.certificate}"
        check_endpoints([description, f"ssl:444:{self.key}:{self.certificate}"], reactor)
        both = self.directory / "both.pem"
        both.write_bytes(self.key.read_bytes() + self.certificate.read_bytes())
        check_endpoints([f"ssl:443:privateKey={both}"], reactor)

    def test_files_that_hold_something_else(self) -> None:
        certificate, key = self.certificate.read_bytes(), self.key.read_bytes()
        what = "in PEM that can be read"
        for bad_certificate, bad_key, said in (
            (b"no certificate", key, rf"\A{self.certificate} holds no certificate {what} \("),
            (b"no certificate", key, r"\(no start line\); certKey must name one\Z"),
            (certificate, b"no key", rf"\A{self.key} holds no private key {what} \("),
            (certificate, b"no key", r"; privateKey must name one\Z"),
            (certificate, authority().pem("localhost")[1], "do not belong together"),
        ):
            self.certificate.write_bytes(bad_certificate)
            self.key.write_bytes(bad_key)
            self.assertRegex(self.refusal(), said)

    def test_a_key_with_a_passphrase(self) -> None:
        """OpenSSL must not ask for it at the terminal, where the start would wait for it."""
        key = load_pem_private_key(self.key.read_bytes(), None)
        for kind in (PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL):
            self.key.write_bytes(
                key.private_bytes(Encoding.PEM, kind, BestAvailableEncryption(b"sesame"))
            )
            self.assertIn(f"the key in {self.key} has a passphrase", self.refusal())

    def test_files_that_cannot_be_read(self) -> None:
        said = f"{self.directory}/no.pem cannot be read: No such file or directory"
        self.assertEqual(self.refusal(f":extraCertChain={self.directory}/no.pem"), said)
        self.key.unlink()
        self.assertIn(f"{self.key} cannot be read: No such file", self.refusal())
        self.certificate.unlink()
        self.certificate.mkdir()
        self.assertIn(f"{self.certificate} cannot be read: Is a directory", self.refusal())

    def test_other_files_that_hold_something_else(self) -> None:
        other = self.directory / "other.pem"
        other.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "utf-8")
        for name in ("extraCertChain", "dhParameters"):
            said = self.refusal(f":{name}={other}")
            self.assertIn("OpenSSL refuses its files: ", said)


class TryingTests(SynchronousTestCase):
    def listening(self, family: int, address: object) -> socket.socket:
        """A socket on which another program listens."""
        other = socket.socket(family)
        self.addCleanup(other.close)
        other.bind(address)  # type: ignore[arg-type] # it is one of that family
        other.listen()
        return other

    def refusal(self, description: str, *, busy: bool = False) -> str:
        """What is said of an endpoint, and not because a broker runs there unless it is busy."""
        error = listening_error(description)
        assert error is not None, description
        self.assertEqual(is_busy(error), busy)
        return sentence(error)

    def test_free(self) -> None:
        port = free_port()
        for description in (f"tcp:{port}:interface=127.0.0.1", f"tcp6:{port}", f"tcp:{port}"):
            self.assertIsNone(listening_error(description), description)
        # Nobody listens there afterwards.
        with socket.socket() as client:
            self.assertEqual(client.connect_ex(("127.0.0.1", port)), errno.ECONNREFUSED)

    def test_busy(self) -> None:
        port = self.listening(socket.AF_INET, ("127.0.0.1", 0)).getsockname()[1]
        said = self.refusal(f"tcp:{port}:interface=127.0.0.1", busy=True)
        self.assertIn("Address already in use", said)
        self.assertIn("Is a broker running already? --listen names another", said)

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
        # The path of a UNIX socket must be short, and trial's temporary paths are long.
        self.directory = Path(mkdtemp())
        self.addCleanup(self.directory.rmdir)
        self.path = self.directory / "x.sock"

    def test_free(self) -> None:
        self.assertIsNone(listening_error(f"unix:{self.path}"))
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
        why = "Address already in use; --listen names another address"
        said = self.refusal(f"unix:{self.path}", busy=True)
        self.assertEqual(said, f"cannot listen: {self.path}: {why}")

    def leave_lock(self) -> None:
        """Leave the lock of a broker that has ended."""
        lock = Path(f"{self.path}.lock")
        lock.symlink_to("1")
        self.addCleanup(lock.unlink)

    def test_left_over(self) -> None:
        """A killed broker leaves its socket file; the lock beside it shows that it has ended."""
        self.listening(socket.AF_UNIX, str(self.path)).close()
        self.addCleanup(self.path.unlink)
        self.assertIn("in use", self.refusal(f"unix:{self.path}", busy=True))
        self.leave_lock()
        self.assertIsNone(listening_error(f"unix:{self.path}"))
        self.assertIn("in use", self.refusal(f"unix:{self.path}:lockfile=0", busy=True))

    def test_another_file_in_its_place(self) -> None:
        self.path.write_text("Somebody's letters.", encoding="utf-8")
        self.addCleanup(self.path.unlink)
        self.leave_lock()
        said = (
            f"cannot listen: {self.path} is a file and no socket: remove it, or name another "
            "address with --listen"
        )
        self.assertEqual(self.refusal(f"unix:{self.path}"), said)
        busy = OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        at_start = CannotListenError(None, os.fsencode(self.path), busy)
        self.assertEqual(sentence(at_start), said)
