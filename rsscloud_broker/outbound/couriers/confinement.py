"""Takes from a courier's process what it does not need, before it reads anything from strangers.

A stranger in a courier has what its process has.  On Linux that is little:

- It has no capabilities, even if root started the broker, and can get none (``no_new_privs``).
- By Landlock (Linux 5.13) it can read the files that Python, OpenSSL and c-ares need, and can
  write, create and run none.  It can listen at no TCP port (Linux 6.7), signal no other process
  (6.12), and trace or read the memory of none.
- By a filter of system calls it can neither change the mode or the owner of a file, nor start a
  process or a program, make a namespace, or open a socket that is not for the internet: see
  ``system_calls``.
- It ends when the broker ends, also while it is stopped by a signal: see `end_with_parent`.  The
  filter does not let it undo that.  If the system runs out of memory, it ends before the broker.

Landlock's rules are for files that exist.  If another file replaces one of them, as programs do
that write ``/etc/resolv.conf``, the courier cannot read it.  `Confinement.outdated` says so, and a
new courier has to take over.

Sources: landlock(7), capabilities(7), prctl(2), seccomp(2).
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from ctypes import c_int32, c_long, c_size_t, c_uint32, c_uint64
from pathlib import Path
from typing import Any, Final

from rsscloud_broker.outbound.couriers import system_calls
from rsscloud_broker.outbound.couriers.system_calls import Prctl

#: Files of the system that c-ares reads again from time to time, and other programs replace.
_REPLACED: Final = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/host.conf")

#: Directories of trusted certificates, where systems have them.
_CERTIFICATES: Final = ("/etc/ssl/certs", "/etc/pki/tls/certs")

#: Further files and directories that couriers may read, where they exist: libraries, trusted
#: certificates on Debian, Fedora and their kin, and time zones.
_READABLE: Final = (
    *("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache"),
    *("/etc/ssl/cert.pem", "/etc/ssl/ca-bundle.pem", "/etc/ssl/openssl.cnf"),
    *("/etc/pki/tls/cert.pem", "/etc/pki/tls/cacert.pem", "/etc/pki/tls/openssl.cnf"),
    *_CERTIFICATES,
    "/etc/ca-certificates",
    *("/etc/pki/ca-trust", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates"),
    *("/usr/share/pki", "/usr/share/zoneinfo", "/etc/localtime"),
    *("/dev/null", "/dev/urandom"),
)

_READABLE_BELOW: Final = tuple(f"{path}/" for path in _READABLE)


class _Call:
    """landlock(7): numbers of system calls, the same on all machines of Python's but Alpha."""

    CREATE_RULESET = 444
    ADD_RULE = 445
    RESTRICT_SELF = 446


class _Landlock:
    """landlock(7): the kernel's numbers, and since which version of Landlock some can be used."""

    VERSION = 1  # the flag of landlock_create_ruleset that asks which version the kernel has
    PATH_BENEATH = 1  # the kind of rule: what is allowed for a file, or below a directory
    BIND_TCP = 1  # forbids to bind TCP sockets
    BIND_TCP_SINCE = 4
    SCOPES = 0b11  # forbids abstract Unix sockets, and signals, of processes outside
    SCOPES_SINCE = 6
    READ_FILE = 1 << 2  # what a rule allows
    READ_DIR = 1 << 3


# What a ruleset forbids: all that the version of Landlock knows.  Version 1 knows 13 rights of
# files; 2, 3 and 5 added one each.
_FILE_RIGHTS: Final = {1: 13, 2: 14, 3: 15, 5: 16}


class _Ruleset(ctypes.Structure):
    """struct landlock_ruleset_attr: what is forbidden, each a set of bits."""

    _fields_ = (("files", c_uint64), ("network", c_uint64), ("scopes", c_uint64))


class _PathBeneath(ctypes.Structure):
    """struct landlock_path_beneath_attr: what a rule allows, below an open directory."""

    _pack_ = 1
    _fields_ = (("rights", c_uint64), ("directory", c_int32))


class Confinement:
    """Confines this process, which has only one thread yet.

    :ivar problems: what could not be done, in words.
    """

    def __init__(self) -> None:
        self._readable = [path for path in _REPLACED if not _is_forbidden(path)]
        self.problems: list[str] = []
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no file with its memory if it crashes
        if sys.platform != "linux":
            return
        _offer_to_end()
        libc = ctypes.CDLL(None, use_errno=True)
        for give_up, problem in (
            (_give_up_users, "it can become the user again who started the broker"),
            (_give_up_capabilities, "it keeps capabilities"),
            (_give_up_files, "it can read the files that the broker can"),
            (system_calls.give_up, "it can change the modes of files and start processes"),
        ):
            try:
                give_up(libc)
            except OSError as error:
                self.problems.append(f"{problem}: {error.strerror}")

    def outdated(self) -> str:
        """Why another courier has to take over; empty if none has to."""
        lost = [path for path in self._readable if _is_forbidden(path)]
        return f"{lost[0]} was replaced, and only a new courier can read it" if lost else ""


def fault() -> str:
    """Why couriers can read the same files as the broker; empty if they cannot."""
    if sys.platform != "linux":
        return f"{sys.platform} has no Landlock"
    if version() < 1:
        return "this kernel has no Landlock (it came with Linux 5.13), or does not permit it here"
    return ""


def version() -> int:
    """Which version of Landlock the kernel has; -1 for none."""
    libc = ctypes.CDLL(None, use_errno=True)
    return _call(libc, _Call.CREATE_RULESET, None, c_size_t(0), c_uint32(_Landlock.VERSION))


def _is_forbidden(path: str) -> bool:
    """Whether a file exists and this process may not read it."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    except PermissionError:
        return True
    except OSError:
        pass  # there is none
    return False


def _offer_to_end() -> None:
    """Have the kernel end this process rather than the broker, if there is no memory left."""
    with suppress(OSError, ValueError):
        score = Path("/proc/self/oom_score_adj")
        # As if the courier had used three tenths of all memory more: the kernel ends it first.
        score.write_text(str(min(1000, int(score.read_text("utf-8")) + 300)), "utf-8")


def _give_up_users(libc: Any) -> None:
    """Make the present user and group the only ones: after ``twistd --euid`` the real user is still
    the former one, which the process could become again.
    """
    group, user = os.getegid(), os.geteuid()
    if os.getresgid() != (group, group, group):
        os.setresgid(group, group, group)
    if os.getresuid() != (user, user, user):
        os.setresuid(user, user, user)


def end_with_parent(parent: int) -> None:
    """Have the kernel end this process when its parent ends; only Linux can.

    :param parent: its number.  If that has ended before, this process ends at once.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        # The kernel keeps this when the real user changes, and when capabilities are given up.
        _check(libc.prctl(Prctl.PDEATHSIG, signal.SIGKILL, 0, 0, 0))
    if os.getppid() != parent:
        os._exit(1)


def _give_up_capabilities(libc: Any) -> None:
    """Give up all capabilities forever, and the groups of root."""
    if not _has_capabilities():
        _check(libc.prctl(Prctl.NO_NEW_PRIVS, 1, 0, 0, 0))
        return
    with suppress(PermissionError):
        os.setgroups([])
    for number in range(64):  # the structures of capset(2) have room for this many
        if libc.prctl(Prctl.CAPBSET_READ, number, 0, 0, 0) == 1:
            libc.prctl(Prctl.CAPBSET_DROP, number, 0, 0, 0)
    libc.prctl(Prctl.CAP_AMBIENT, Prctl.CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    _check(libc.prctl(Prctl.NO_NEW_PRIVS, 1, 0, 0, 0))
    # The first number is the version of those structures.
    header, none = (c_uint32 * 2)(0x20080522, 0), (c_uint32 * 6)()
    _check(libc.capset(header, none))


def _has_capabilities() -> bool:
    """Whether this process has any, or the system does not say."""
    try:
        status = Path("/proc/self/status").read_bytes()
    except OSError:
        return True
    names = (b"CapInh:", b"CapPrm:", b"CapEff:", b"CapAmb:")
    return any(int(line.split()[1], 16) for line in status.splitlines() if line.startswith(names))


def _give_up_files(libc: Any) -> None:
    """Give up all files but those that a courier needs, if the kernel has Landlock."""
    known = version()
    if known < 1:
        return  # the broker has said so: see ``fault``
    rights = max(bits for since, bits in _FILE_RIGHTS.items() if since <= known)
    wanted = _Ruleset(
        files=(1 << rights) - 1,
        network=_Landlock.BIND_TCP if known >= _Landlock.BIND_TCP_SINCE else 0,
        scopes=_Landlock.SCOPES if known >= _Landlock.SCOPES_SINCE else 0,
    )
    size = c_size_t(ctypes.sizeof(wanted))
    ruleset = _check(_call(libc, _Call.CREATE_RULESET, ctypes.byref(wanted), size, c_uint32(0)))
    try:
        for path in dict.fromkeys((*_REPLACED, *_READABLE, *_certificates(), *_libraries())):
            _allow(libc, ruleset, path)
        _check(_call(libc, _Call.RESTRICT_SELF, c_int32(ruleset), c_uint32(0)))
    finally:
        os.close(ruleset)


def _allow(libc: Any, ruleset: int, path: str) -> None:
    """Add a rule to a ruleset: a file, or all that is below a directory, may be read."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # there is none, or nobody here can read it anyway
    try:
        rights = _Landlock.READ_FILE | (_Landlock.READ_DIR if os.path.isdir(path) else 0)
        rule = _PathBeneath(rights, descriptor)
        _check(
            _call(
                libc,
                _Call.ADD_RULE,
                c_int32(ruleset),
                c_int32(_Landlock.PATH_BENEATH),
                ctypes.byref(rule),
                c_uint32(0),
            )
        )
    finally:
        os.close(descriptor)


def _certificates() -> Iterator[str]:
    """Where OpenSSL looks for certificates: by the environment, or as it was built.

    OpenSSL opens a file of a directory when it needs it.  Some are links to elsewhere, and then
    their targets must be readable too.
    """
    paths = ssl.get_default_verify_paths()
    if paths.cafile:
        yield paths.cafile
    named = os.environ.get(paths.openssl_capath_env, "").split(os.pathsep)
    for directory in (*named, paths.capath, *_CERTIFICATES):
        if directory and os.path.isdir(directory):
            yield directory
            targets = map(os.path.realpath, _links(directory))
            yield from (path for path in targets if not path.startswith(_READABLE_BELOW))


def _links(directory: str) -> list[str]:
    """The links in a directory; none if nobody here can read it."""
    try:
        with os.scandir(directory) as entries:
            return [entry.path for entry in entries if entry.is_symlink()]
    except OSError:
        return []


def _libraries() -> Iterator[str]:
    """The directories of Python, and of all packages: some modules are imported when needed."""
    yield str(Path(os.__file__).parent)
    yield os.path.join(sys.base_prefix, "lib")
    for path in sys.path:
        if os.path.basename(path) in {"site-packages", "dist-packages"}:
            yield path
    for name, module in list(sys.modules.items()):
        if "." not in name:  # a package that is elsewhere, such as this one in a checkout
            yield from getattr(module, "__path__", ())


def _call(libc: Any, number: int, *arguments: object) -> int:
    """Make a system call that libc has no function for."""
    syscall: Callable[..., int] = libc.syscall
    syscall.restype = c_long  # type: ignore[attr-defined]
    return syscall(c_long(number), *arguments)


def _check(result: int) -> int:
    """The result of a system call; OSError if it failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
