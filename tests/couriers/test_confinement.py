"""What a courier's process can do, and what it cannot.

Processes of their own try it, since nobody who is confined gets free again.
"""

from __future__ import annotations

import json
import os
from ast import literal_eval
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import PIPE, run
from typing import Any
from unittest import mock

from twisted.internet.defer import Deferred
from twisted.internet.ssl import CertificateOptions
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SkipTest, SynchronousTestCase
from twisted.web.server import Site

import rsscloud_broker
from rsscloud_broker.couriers import confinement
from rsscloud_broker.couriers.courier import Courier, CourierEnded
from rsscloud_broker.couriers.spawning import COMMAND
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.interfaces import OutboundReply
from tests.couriers.fixture import REACTOR, CrewTestCase
from tests.outbound.authority import authority

ROOMS = Path(rsscloud_broker.__file__).parent

#: The packages of the broker that a courier loads.
_LOADED = {"couriers", "interfaces", "outbound", "twisted_overrides", "wire"}

# Confines a process, and says as JSON what came of some things that it tried then.
_TRIES = """
import json, os, socket, subprocess, sys
from rsscloud_broker import courier_process
from rsscloud_broker.couriers.confinement import Confinement
{before}
confinement = Confinement()

def tried(what):
    try:
        return repr(what())
    except OSError as error:
        return type(error).__name__

def listen():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))

print(json.dumps({{"problems": confinement.problems, {tries}}}))
"""


def tried(tries: Mapping[str, str], before: str = "", *, is_root: bool = False) -> dict[str, Any]:
    """What came of some expressions in a process that is confined.

    :param tries: the expressions, by the names of their results.
    :param before: what the process does first.
    :returns: the value of each as Python shows it, or the name of its error.
    """
    if is_root and os.geteuid():
        raise SkipTest("only root can try this")
    listed = ", ".join(f"{name!r}: tried(lambda: {what})" for name, what in tries.items())
    program = _TRIES.format(tries=listed, before=before)
    done = run([*COMMAND[:2], "-c", program], stdout=PIPE, check=True, timeout=60)
    results = json.loads(done.stdout)
    assert isinstance(results, dict)
    return results


def needs_landlock() -> None:
    if fault := confinement.fault():
        raise SkipTest(fault)


class ConfinementTests(SynchronousTestCase):
    def test_files(self) -> None:
        """Nothing of the broker's can be read, and nothing be written or run."""
        needs_landlock()
        data = Path(self.mktemp()).absolute()
        data.mkdir()
        secret = data / "broker.sqlite"
        secret.write_text("secret", encoding="ascii")
        results = tried(
            {
                "database": f"open({str(secret)!r})",
                "directory": f"os.listdir({str(data)!r})",
                "new": f"open({str(data / 'new')!r}, 'w')",
                "removed": f"os.remove({str(secret)!r})",
                "checkout": f"open({__file__!r})",
                "temporary": "open('/tmp/of-a-courier', 'w')",
                "passwords": "open('/etc/passwd')",
                "environment of the broker": "open(f'/proc/{os.getppid()}/environ')",
                "memory of the broker": "open(f'/proc/{os.getppid()}/mem')",
                "program": "subprocess.run(['/bin/true'])",
                "library": "len(open(os.__file__).read()) > 1000",
                "name servers": "open('/etc/resolv.conf').read() and 1",
                "package": "__import__('rsscloud_broker.wire.opml') and 1",
                "standard library": "__import__('wave') and 1",
            }
        )
        self.assertEqual(results.pop("problems"), [])
        for name in ("library", "name servers", "package", "standard library"):
            self.assertIn(results.pop(name), ("True", "1"), name)
        self.assertEqual(set(results.values()), {"PermissionError"}, results)
        self.assertTrue(secret.exists())

    def test_rights_of_root(self) -> None:
        """They are gone for ever, also for programs that belong to root."""
        status = "[line for line in open('/proc/self/status') if line[:4] in ('CapE', 'CapB')]"
        with_files = "confinement._give_up_files = lambda libc: None"
        before = f"from rsscloud_broker.couriers import confinement; {with_files}"
        results = tried({"status": status, "back": "os.setgroups([0])"}, before, is_root=True)
        self.assertEqual(results["problems"], [])
        self.assertEqual(
            results["status"], repr([f"Cap{name}:\t{'0' * 16}\n" for name in ("Eff", "Bnd")])
        )
        self.assertEqual(results["back"], "PermissionError")

    def test_former_user(self) -> None:
        """After ``twistd --euid`` a courier cannot become root again, nor gets its group."""
        before = "os.setegid(65534); os.seteuid(65534)"
        tries = {"users": "os.getresuid()", "groups": "os.getresgid()", "back": "os.seteuid(0)"}
        results = tried(tries, before, is_root=True)
        everywhere = repr((65534, 65534, 65534))
        self.assertEqual(
            results,
            {"problems": [], "users": everywhere, "groups": everywhere, "back": "PermissionError"},
        )

    def test_newer_rules(self) -> None:
        """What newer kernels can forbid: to listen, and to signal the broker."""
        needs_landlock()
        results = tried({"listening": "listen()", "signal": "os.kill(os.getppid(), 0)"})
        version = confinement.version()
        self.assertEqual(results["listening"], "PermissionError" if version >= 4 else "None")
        self.assertEqual(results["signal"], "PermissionError" if version >= 6 else "None")

    def test_what_is_loaded(self) -> None:
        """Of the broker, only what makes requests: so it starts quickly, and there is no more."""
        loaded = tried({"modules": "sorted(sys.modules)"})["modules"]
        rooms = {
            name.split(".")[1]
            for name in literal_eval(loaded)
            if name.startswith("rsscloud_broker.")
        }
        self.assertLessEqual({"couriers", "outbound"}, rooms)
        others = {path.name for path in ROOMS.iterdir() if path.is_dir()} - _LOADED
        self.assertIn("storage", others)
        self.assertEqual(rooms & others, set())
        self.assertNotIn("sqlalchemy", literal_eval(loaded))

    def test_kernel_without_landlock(self) -> None:
        """The rest is done all the same."""
        before = (
            "from rsscloud_broker.couriers import confinement; confinement.version = lambda: -1"
        )
        results = tried({"file": f"open({__file__!r}) and 1"}, before)
        self.assertEqual(results, {"problems": [], "file": "1"})

    def test_what_fails(self) -> None:
        """It is said, and the rest is done."""
        before = "from rsscloud_broker.couriers import confinement; confinement._ADD_RULE = 100000"
        needs_landlock()
        results = tried({"file": f"open({__file__!r}) and 1"}, before)
        (problem,) = results["problems"]
        self.assertIn("it can read the files that the broker can: ", problem)

    def test_replaced_file(self) -> None:
        """A courier notices that a file which it needs is another one now."""
        needs_landlock()
        path = Path(self.mktemp()).absolute()
        path.write_text("1", encoding="ascii")
        results = tried(
            {"before": "confinement.outdated()", "after": "(os.write(1, b''), replaced())[1]"},
            f"""
from rsscloud_broker.couriers import confinement as module
module._REPLACED = ({str(path)!r}, "/etc/none")
import multiprocessing
ours, theirs = os.pipe(), os.pipe()
if not os.fork():  # somebody who is not confined
    os.read(ours[0], 1)
    os.replace(open({str(path)!r} + ".new", "w").name, {str(path)!r})
    os.write(theirs[1], b"1")
    os._exit(0)

def replaced():
    os.write(ours[1], b"1")
    os.read(theirs[0], 1)
    return confinement.outdated()
""",
        )
        self.assertEqual(results["before"], "''")
        self.assertIn(f"{path} was replaced", results["after"])


# A courier whose client tries to open files instead of making requests.
_NOSY = """
from rsscloud_broker import courier_process

class Nosy(courier_process.CallbackClient):
    async def request(self, method, url, headers, body, redirects, signing):
        return open(url)

courier_process.CallbackClient = Nosy
courier_process.main()
"""


class ConfinedCourierTests(CrewTestCase):
    def file(self, text: str) -> Path:
        """A file with a text."""
        path = Path(self.mktemp()).absolute()
        path.write_text(text, encoding="ascii")
        return path

    async def test_data_directory(self) -> None:
        """Whatever a courier is made to do, it cannot open the broker's files."""
        needs_landlock()
        path = self.file("secret")
        command = [*COMMAND[:2], "-c", _NOSY]
        courier = Courier(0, REACTOR, self.clock, self.crew._greeting, command=command)
        courier.start()
        self.addCleanup(lambda: Deferred.fromCoroutine(courier.stop()))
        with self.assertRaises(Unavailable) as raised:
            await courier.request("GET", str(path), {}, b"", 0, None)
        self.assertIn("PermissionError", str(raised.exception))

    async def test_certificates_and_names(self) -> None:
        """A courier reads trusted certificates where the operator has them, and looks up names."""
        file = self.file(authority().trusted.dumpPEM().decode())
        options: CertificateOptions = authority().server("localhost")
        port = REACTOR.listenSSL(0, Site(self.callback), options, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        with mock.patch.dict(os.environ, {"SSL_CERT_FILE": str(file)}):
            crew = self.made()
        crew.allow(["127.0.0.0/8", "::1/128"])
        reply: OutboundReply = await crew.request("GET", f"https://localhost:{port.getHost().port}")
        self.assertEqual(reply.status, 202)

    async def test_certificates_elsewhere(self) -> None:
        """A bundle that OpenSSL finds where no rule allows to read it is read all the same."""
        file = self.file(authority().trusted.dumpPEM().decode())
        program = (
            "from OpenSSL import SSL; from rsscloud_broker import courier_process; "
            "SSL.Context.set_default_verify_paths = "
            f"lambda self: self.load_verify_locations({str(file)!r}); courier_process.main()"
        )
        self.assertEqual((await self.over_tls([*COMMAND[:2], "-c", program])).status, 202)

    async def test_relative_names_of_certificates(self) -> None:
        """They are meant from where the broker runs, and may be links to anywhere."""
        file = self.file(authority().trusted.dumpPEM().decode())
        link = self.mktemp()  # a relative name
        os.symlink(file, link)
        with mock.patch.dict(os.environ, {"SSL_CERT_FILE": link}):
            self.assertEqual((await self.over_tls(COMMAND)).status, 202)

    async def test_directory_of_certificates(self) -> None:
        """OpenSSL opens its files when it needs them; they may be links to anywhere."""
        needs_landlock()
        file = self.file(authority().trusted.dumpPEM().decode())
        directory = self.mktemp()  # a relative name
        os.mkdir(directory)
        name = f"{authority().trusted.original.subject_name_hash():08x}.0"
        os.symlink(file, f"{directory}/{name}")
        both = f"/none{os.pathsep}{directory}"
        with mock.patch.dict(os.environ, {"SSL_CERT_DIR": both, "SSL_CERT_FILE": "/none"}):
            self.assertEqual((await self.over_tls(COMMAND)).status, 202)

    async def over_tls(self, command: Sequence[str]) -> OutboundReply:
        """What a courier with a command gets from a server of the tests' authority."""
        options: CertificateOptions = authority().server("localhost")
        port = REACTOR.listenSSL(0, Site(self.callback), options, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        courier = Courier(0, REACTOR, self.clock, self.crew._greeting, command=command)
        self.crew.allow(["127.0.0.0/8", "::1/128"])
        courier.start()
        self.addCleanup(lambda: Deferred.fromCoroutine(courier.stop()))
        url = f"https://localhost:{port.getHost().port}"
        return await courier.request("GET", url, {}, b"", 0, None)

    async def test_another_takes_over(self) -> None:
        """A courier that cannot read what it needs says so and ends."""
        program = "from rsscloud_broker import courier_process as program; " + (
            "program.Confinement.outdated = lambda self: 'a file was replaced'; program.main()"
        )
        command = [*COMMAND[:2], "-c", program]
        courier = Courier(0, REACTOR, self.clock, self.crew._greeting, command=command)
        self.addCleanup(lambda: Deferred.fromCoroutine(courier.stop()))
        with capturedLogs() as events:
            courier.start()
            answer = Deferred.fromCoroutine(
                courier.request("GET", f"{self.url}/slow", {}, b"", 0, None)
            )
            error = await self.assertFailure(answer, Unavailable)
            await self.until_ended(courier)
        self.assertNotIsInstance(error, CourierEnded)  # what it did is not to blame
        self.assertIn("Courier 0: a file was replaced", map(formatEvent, events))

    async def test_no_landlock(self) -> None:
        """The broker says once that it cannot confine couriers."""
        with (
            mock.patch.object(confinement, "version", lambda: -1),
            capturedLogs() as events,
        ):
            self.made(2)
        (said,) = [formatEvent(event) for event in events if "fault" in event]
        self.assertIn("Couriers can read the files that the broker can: this kernel has no", said)
