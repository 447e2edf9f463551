"""What a courier's process can do, and what it cannot.

Processes of their own try it, since nobody who is confined gets free again.
"""

from __future__ import annotations

import json
import os
import re
import signal
from ast import literal_eval
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from subprocess import PIPE, run
from typing import Any
from unittest import mock

from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SkipTest, SynchronousTestCase

import rsscloud_broker
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.interfaces import OutboundRequest
from rsscloud_broker.outbound.couriers import confinement, spawning, system_calls
from rsscloud_broker.outbound.couriers.courier import Courier
from rsscloud_broker.outbound.couriers.fork_server import ForkServer
from rsscloud_broker.outbound.couriers.spawning import COMMAND
from tests.outbound.authority import authority
from tests.outbound.couriers.fixture import COURIER, REACTOR, CrewTestCase
from tests.outbound.servers import serve

ROOMS = Path(rsscloud_broker.__file__).parent

#: What the processes of these tests import from.
FROM = "from rsscloud_broker.outbound.couriers"

#: The packages of the broker that a courier loads.
_LOADED = {"interfaces", "model", "outbound", "policy", "util", "wire"}

# Confines a process, and says as JSON what came of some things that it tried then.
_TRIES = """
import ctypes, json, os, resource, signal, socket, subprocess, sys, threading
from rsscloud_broker.outbound.couriers import process
from rsscloud_broker.outbound.couriers import system_calls
from rsscloud_broker.outbound.couriers.confinement import Confinement
{before}
confinement = Confinement()
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long

def ended():
    raise OSError(ctypes.get_errno(), "")

def call(name, *arguments):
    column = os.uname().machine == "aarch64"
    number = system_calls.numbers(system_calls.REFUSED + " " + system_calls.SPECIAL, column)[name]
    if libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments)) < 0:
        ended()

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

# Files can be used, as where there is no Landlock.
_WITH_FILES = f"{FROM} import confinement; confinement._give_up_files = lambda libc: None"

#: All system calls that the filter knows.
_CALLS = f"{system_calls.REFUSED} {system_calls.SPECIAL}"


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


class TriesTestCase(SynchronousTestCase):
    def assert_refused(self, results: dict[str, Any], **allowed: str) -> None:
        """All that was tried is forbidden, but for some things with these results."""
        self.assertEqual(results.pop("problems"), [])
        self.assertEqual({name: results.pop(name) for name in allowed}, allowed)
        self.assertEqual(set(results.values()), {"PermissionError"}, results)


def needs_landlock() -> None:
    if fault := confinement.fault():
        raise SkipTest(fault)


class ConfinementTests(TriesTestCase):
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
                "names": "open('/etc/resolv.conf').read() and 1",
                "package": "__import__('rsscloud_broker.wire.opml') and 1",
                "standard": "__import__('wave') and 1",
            }
        )
        self.assert_refused(results, library="True", names="1", package="1", standard="1")
        self.assertTrue(secret.exists())

    def test_rights_of_root(self) -> None:
        """They are gone forever, also for programs that belong to root."""
        status = "[line for line in open('/proc/self/status') if line[:4] in ('CapE', 'CapB')]"
        tries = {"status": status, "back": "os.setgroups([0])"}
        results = tried(tries, _WITH_FILES, is_root=True)
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
        """What newer kernels can forbid by Landlock: to bind sockets, and to signal the broker."""
        needs_landlock()
        before = f"{FROM} import system_calls; system_calls.fault = lambda: 1"
        results = tried({"bound": "listen()", "signal": "os.kill(os.getppid(), 0)"}, before)
        version = confinement.version()
        self.assertEqual(results["bound"], "PermissionError" if version >= 4 else "None")
        self.assertEqual(results["signal"], "PermissionError" if version >= 6 else "None")

    def test_what_is_loaded(self) -> None:
        """Of the broker, only what makes requests: so it starts quickly, and there is no more."""
        loaded = tried({"modules": "sorted(sys.modules)"})["modules"]
        rooms = {
            name.split(".")[1]
            for name in literal_eval(loaded)
            if name.startswith("rsscloud_broker.")
        }
        self.assertLessEqual({"policy", "outbound"}, rooms)
        others = {path.name for path in ROOMS.iterdir() if path.is_dir()} - _LOADED
        self.assertIn("storage", others)
        self.assertEqual(rooms & others, set())
        self.assertNotIn("sqlalchemy", literal_eval(loaded))

    def test_kernel_without_landlock(self) -> None:
        """The rest is done all the same; what fails there is said."""
        needs_landlock()
        failed = "it can read the files that the broker can: "
        for what, said in (("version = lambda: -1", []), ("_Call.ADD_RULE = 100000", [failed])):
            before = f"{FROM} import confinement; confinement.{what}"
            results = tried({"file": f"open({__file__!r}) and 1"}, before)
            problems = [problem[: len(failed)] for problem in results["problems"]]
            self.assertEqual((problems, results["file"]), (said, "1"))

    def test_replaced_file(self) -> None:
        """A courier notices that a file which it needs is another one now."""
        needs_landlock()
        path = Path(self.mktemp()).absolute()
        path.write_text("1", encoding="ascii")
        results = tried(
            {"before": "confinement.outdated()", "after": "(os.write(1, b''), replaced())[1]"},
            f"""
from rsscloud_broker.outbound.couriers import confinement as module
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


# The child says so if it outlives its parent.
_FAMILY = """
import os, signal, time
from rsscloud_broker.outbound.couriers.confinement import end_with_parent
reading, writing = os.pipe()
parent = os.getpid()
if os.fork():
    os.close(writing)
    if os.read(reading, 1):
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(0)
end_with_parent(parent)
os.write(writing, b"!")
time.sleep(10)
os.write(1, b"it lives")
"""


class ParentTests(SynchronousTestCase):
    def test_process_ends_with_its_parent(self) -> None:
        """Even if that is killed and can tell it nothing."""
        done = run([*COMMAND[:2], "-c", _FAMILY], stdout=PIPE, check=False, timeout=60)
        self.assertEqual((done.stdout, done.returncode), (b"", -signal.SIGKILL))

    def test_process_whose_parent_has_ended_before(self) -> None:
        """A parent may end just after it has forked a process, when the kernel knows nothing."""
        program = _FAMILY.replace("parent = os.getpid()", "parent = os.getppid()")
        done = run([*COMMAND[:2], "-c", program], stdout=PIPE, check=False, timeout=60)
        self.assertEqual((done.stdout, done.returncode), (b"", 0))


class SystemCallTests(TriesTestCase):
    """What Landlock does not cover: only the filter of system calls refuses it."""

    def setUp(self) -> None:
        if fault := system_calls.fault():
            raise SkipTest(fault)

    def tried(self, **tries: str) -> dict[str, Any]:
        """What came of some expressions where all files may be used."""
        return tried(tries, _WITH_FILES)

    def test_files(self) -> None:
        """The mode, the owner and the times of a file stay, also those of one that is open."""
        path = Path(self.mktemp()).absolute()
        path.write_text("secret", encoding="ascii")
        before = path.stat()
        name = repr(str(path))
        results = self.tried(
            chmod=f"os.chmod({name}, 0o666)",
            fchmod=f"os.fchmod(os.open({name}, os.O_RDWR), 0o666)",
            at=f"os.chmod({path.name!r}, 0o666, dir_fd=os.open({str(path.parent)!r}, os.O_PATH))",
            chown=f"os.chown({name}, os.getuid(), os.getgid())",
            lchown=f"os.lchown({name}, os.getuid(), os.getgid())",
            fchown=f"os.fchown(os.open({name}, os.O_RDWR), os.getuid(), os.getgid())",
            attribute=f"os.setxattr({name}, 'user.a', b'1')",
            times=f"os.utime({name}, (0, 0))",
            size=f"os.truncate({name}, 0)",
        )
        self.assert_refused(results)
        self.assertEqual(path.stat(), before)

    def test_processes(self) -> None:
        """No other process is started or touched; threads are."""
        results = self.tried(
            fork="os.fork()",
            spawn="os.posix_spawn('/bin/true', ['true'], {})",
            execute="os.execv('/bin/true', ['true'])",
            signal="os.kill(os.getppid(), 0)",
            thread_of_another="call('tgkill', os.getppid(), os.getppid(), 0)",
            limits="resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE)",
            priority="os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)",
            trace="call('ptrace', 16, os.getppid(), 0, 0)",
            memory="call('process_vm_readv', os.getppid(), 0, 0, 0, 0, 0)",
            outlive_the_broker="call('prctl', 1, 0, 0, 0, 0)",
            own_state="call('prctl', 3, 0, 0, 0, 0)",
            own_limits="resource.setrlimit(resource.RLIMIT_CORE, (0, 0))",
            own_signal="signal.raise_signal(signal.SIGCHLD)",
            thread="(each := threading.Thread(target=int)).start() or each.join()",
        )
        self.assert_refused(
            results, own_state="None", own_limits="None", own_signal="None", thread="None"
        )

    def test_namespaces_and_parts_of_the_kernel(self) -> None:
        """Root started this process or not: none of this can even be tried."""
        results = self.tried(
            user="call('unshare', 0x10000000)",
            files="call('unshare', 0x20000)",
            by_clone="call('clone', 0x10000000 | 17, 0, 0, 0, 0)",
            thread_in_one="call('clone', 0x10000 | 0x40000000, 0, 0, 0, 0)",
            joined="call('setns', 0, 0)",
            mounted="call('mount', 0, 0, 0, 0, 0)",
            root="os.chroot('/')",
            programs="call('bpf', 0, 0, 0)",
            keys="call('keyctl', 0, 0)",
            rings="call('io_uring_setup', 1, 0)",
            faults="call('userfaultfd', 0)",
            x32="libc.syscall(ctypes.c_long(0x40000000 + 90), 0) and ended()",
            newer_clone="call('clone3', 0, 0)",
        )
        self.assert_refused(results, newer_clone="OSError")  # so that clone is used

    def test_sockets(self) -> None:
        """A courier calls hosts.  It talks to no program of this machine by a socket file, and
        takes no calls.
        """
        results = self.tried(
            local="socket.socket(socket.AF_UNIX)",
            kernel="socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
            ciphers="socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)",
            listening="socket.socket().listen()",
            tcp="socket.socket().close()",
            udp="socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).close()",
            pair="[each.close() for each in socket.socketpair()] and None",
        )
        self.assert_refused(results, tcp="None", udp="None", pair="None")

    def test_documents_are_parsed(self) -> None:
        """A parser has the same filter, and all that it needs."""
        results = self.tried(
            xml="__import__('lxml.etree').etree.fromstring(b'<a>1</a>').text",
            html="__import__('nh3').clean('<b>1</b><script>2</script>')",
            feed="__import__('feedparser').parse(b'<rss><channel><title>1</title></channel></rss>')"
            ".feed.title",
        )
        self.assertEqual(
            results, {"problems": [], "xml": "'1'", "html": "'<b>1</b>'", "feed": "'1'"}
        )

    def test_numbers(self) -> None:
        """They are those of the kernel, where its tables are installed."""
        for column, header in (
            (0, "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
            (1, "/usr/include/asm-generic/unistd.h"),
        ):
            if not Path(header).exists():
                raise SkipTest(f"there is no {header}")
            told = Path(header).read_text(encoding="ascii")
            known = {
                name: int(number)
                for name, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", told)
            }
            for name, number in system_calls.numbers(_CALLS, column).items():
                self.assertEqual(known.get(name, number), number, name)

    def test_machine_without_filters(self) -> None:
        """The rest is done all the same; what fails there is said."""
        failed = "it can change the modes of files and start processes: "
        for what, said in (("Prctl.FILTER = 77", [failed]), ("machine = lambda: 'riscv64'", [])):
            before = f"{FROM} import system_calls; system_calls.{what}"
            results = tried({"fork": "os.waitpid(os.fork() or os._exit(0), 0) and 1"}, before)
            problems = [problem[: len(failed)] for problem in results["problems"]]
            self.assertEqual((problems, results["fork"]), (said, "1"))


# A courier whose client tries to open files instead of making requests.
_NOSY = """
import sys
from rsscloud_broker.composition import courier
from rsscloud_broker.outbound.couriers import process

class Nosy(process.CallbackClient):
    async def request(self, request):
        return open(request.url)

process.CallbackClient = Nosy
courier.become_courier(int(sys.argv[1]))
"""


class ConfinedCourierTests(CrewTestCase):
    fork_server = ForkServer  # couriers are forked with the environment of each test

    def courier_with(self, command: Sequence[str]) -> Courier:
        """A courier with a command, which has not started."""
        spawn = partial(spawning.spawn, REACTOR, command)
        courier = Courier(0, REACTOR, self.clock, self.crew._greeting, spawn)
        self.addCleanup(lambda: Deferred.fromCoroutine(courier.stop()))
        return courier

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
        courier = self.courier_with(command)
        courier.start()
        with self.assertRaises(Unavailable) as raised:
            await courier.request(OutboundRequest("GET", str(path)))
        self.assertIn("PermissionError", str(raised.exception))

    async def test_certificates_and_names(self) -> None:
        """A courier reads trusted certificates where the operator has them, and looks up names."""
        file = self.file(authority().trusted.dumpPEM().decode())
        with mock.patch.dict(os.environ, {"SSL_CERT_FILE": str(file)}):
            crew = self.made()
        crew.allow(["127.0.0.0/8", "::1/128"])
        self.assertEqual((await crew.request(self.over_tls())).status, 202)

    async def test_certificates_elsewhere(self) -> None:
        """A bundle that OpenSSL finds where no rule allows to read it is read all the same."""
        file = self.file(authority().trusted.dumpPEM().decode())
        program = (
            "import sys; from OpenSSL import SSL; from rsscloud_broker.composition import courier; "
            "SSL.Context.set_default_verify_paths = "
            f"lambda self: self.load_verify_locations({str(file)!r}); "
            "courier.become_courier(int(sys.argv[1]))"
        )
        await self.assert_trusts([*COMMAND[:2], "-c", program])

    async def test_relative_names_of_certificates(self) -> None:
        """They are meant from where the broker runs, and may be links to anywhere."""
        file = self.file(authority().trusted.dumpPEM().decode())
        link = self.mktemp()  # a relative name
        os.symlink(file, link)
        with mock.patch.dict(os.environ, {"SSL_CERT_FILE": link}):
            await self.assert_trusts(COURIER)

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
            await self.assert_trusts(COURIER)

    def over_tls(self) -> OutboundRequest:
        """A request of a server of the tests' authority."""
        port = serve(self, self.callback, authority().server("localhost"))
        return OutboundRequest("GET", f"https://localhost:{port}")

    async def assert_trusts(self, command: Sequence[str]) -> None:
        """A courier with a command gets an answer of such a server."""
        courier = self.courier_with(command)
        self.crew.allow(["127.0.0.0/8", "::1/128"])
        courier.start()
        self.assertEqual((await courier.request(self.over_tls())).status, 202)

    async def test_another_takes_over(self) -> None:
        """A courier that cannot read what it needs says so and ends."""
        program = "import sys; from rsscloud_broker.composition import courier; " + (
            "courier.Confinement.outdated = lambda self: 'a file was replaced'; "
            "courier.become_courier(int(sys.argv[1]))"
        )
        command = [*COMMAND[:2], "-c", program]
        courier = self.courier_with(command)
        with capturedLogs() as events:
            courier.start()
            answer = Deferred.fromCoroutine(
                courier.request(OutboundRequest("GET", f"{self.url}/slow"))
            )
            await self.assertFailure(answer, Unavailable)  # what it did is not to blame
            await self.until_ended(courier)
        self.assertIn("Courier 0: a file was replaced", map(formatEvent, events))

    async def test_system_that_cannot_confine(self) -> None:
        """The broker says once what couriers can do there."""
        for module, name, answer, expected in (
            (
                system_calls,
                "machine",
                "vax",
                "Couriers can change the modes of files and start processes: the broker does not "
                "know the system calls of vax.",
            ),
            (
                confinement,
                "version",
                -1,
                "Couriers can read the files that the broker can: this kernel has no",
            ),
        ):
            with mock.patch.object(module, name, return_value=answer), capturedLogs() as events:
                self.made(2)
            (said,) = [str(formatEvent(event)) for event in events if "fault" in event]
            self.assertTrue(said.startswith(expected), said)
