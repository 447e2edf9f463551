"""Takes system calls from a process that it does not need, by a filter of seccomp(2).

Landlock covers what opens, makes and removes files, and leaves the rest: anyone who breaks into a
courier could still change the mode and the times of the database, make namespaces of its own to
reach what only root does there, or connect to a local socket of a database.  The filter refuses
such calls with ``EPERM``, whatever they are called with, and those that start processes and
programs.  It names what is refused and not what is allowed, since nobody can know all calls of
Python, OpenSSL and c-ares in every version; what it does not name stays as it is.

The numbers are those of the kernel's tables for x86_64 and aarch64.  On other machines there is no
filter.
"""

from __future__ import annotations

import ctypes
import os
import sys
from ctypes import POINTER, c_uint8, c_uint16, c_uint32
from errno import ENOSYS, EPERM
from typing import Any, Final

# linux/audit.h: what the kernel calls a machine.  The tables below have a column for each.
_MACHINES: Final = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

#: Calls of another table of x86_64 (x32) have this bit.
_X32: Final = 0x40000000

#: What is refused: each name with its numbers on the two machines.
REFUSED: Final = (
    # modes, owners, attributes, sizes and times of files
    "chmod 90 - fchmod 91 52 fchmodat 268 53 fchmodat2 452 452 "
    "chown 92 - fchown 93 55 lchown 94 - fchownat 260 54 truncate 76 45 "
    "setxattr 188 5 lsetxattr 189 6 fsetxattr 190 7 setxattrat 463 463 "
    "removexattr 197 14 lremovexattr 198 15 fremovexattr 199 16 removexattrat 466 466 "
    "file_setattr 469 469 utime 132 - utimes 235 - futimesat 261 - utimensat 280 88 "
    # programs, processes, and what others do
    "fork 57 - vfork 58 - execve 59 221 execveat 322 281 "
    "kill 62 129 tkill 200 130 rt_sigqueueinfo 129 138 rt_tgsigqueueinfo 297 240 "
    "pidfd_send_signal 424 424 pidfd_getfd 438 438 "
    "ptrace 101 117 process_vm_readv 310 270 process_vm_writev 311 271 kcmp 312 272 "
    "process_madvise 440 440 process_mrelease 448 448 migrate_pages 256 238 move_pages 279 239 "
    "setpriority 141 140 ioprio_set 251 30 sched_setaffinity 203 122 sched_setscheduler 144 119 "
    "sched_setparam 142 118 sched_setattr 314 274 "
    # namespaces and mounts
    "unshare 272 97 setns 308 268 chroot 161 51 pivot_root 155 41 mount 165 40 umount2 166 39 "
    "open_tree 428 428 move_mount 429 429 fsopen 430 430 fsconfig 431 431 fsmount 432 432 "
    "fspick 433 433 mount_setattr 442 442 "
    # parts of the kernel that had many faults, and that a courier has no use for
    "bpf 321 280 perf_event_open 298 241 userfaultfd 323 282 "
    "add_key 248 217 request_key 249 218 keyctl 250 219 "
    "io_uring_setup 425 425 io_uring_enter 426 426 io_uring_register 427 427 "
    "listen 50 201"
)

#: Calls that ``_filter_steps`` allows with some arguments only, or refuses with another error.
SPECIAL: Final = (
    "clone 56 220 clone3 435 435 socket 41 198 prlimit64 302 261 tgkill 234 131 prctl 157 167"
)


class _Clone:
    """What clone(2) may be asked for: a thread of this process, and no namespace."""

    THREAD = 0x00010000  # CLONE_THREAD
    NEW = 0x7E020080  # all flags CLONE_NEW...: a namespace of each kind


#: The families of addresses that sockets may have: AF_INET and AF_INET6.
_INTERNET: Final = (2, 10)


class _Bpf:
    """linux/bpf_common.h: load a word of what is called, compare, and return."""

    LOAD = 0x20
    IF_EQUAL = 0x15
    IF_AT_LEAST = 0x35
    AND = 0x54
    RETURN = 0x06


# linux/seccomp.h: where in what is called the number, the machine and the first argument are.
_NUMBER, _MACHINE, _FIRST = 0, 4, 16


class _Say:
    """linux/seccomp.h: what a filter may say."""

    ALLOW = 0x7FFF0000
    KILL = 0x80000000
    ERROR = 0x00050000


class Prctl:
    """What prctl(2) may be asked for, and with what."""

    PDEATHSIG = 1
    SET_SECCOMP = 22
    FILTER = 2  # of SET_SECCOMP
    CAPBSET_READ = 23
    CAPBSET_DROP = 24
    NO_NEW_PRIVS = 38
    CAP_AMBIENT = 47
    CAP_AMBIENT_CLEAR_ALL = 4  # of CAP_AMBIENT


class _Step(ctypes.Structure):
    """struct sock_filter: an instruction, and how many to skip after a comparison with ``k``."""

    _fields_ = (("code", c_uint16), ("then", c_uint8), ("otherwise", c_uint8), ("k", c_uint32))


class _Program(ctypes.Structure):
    """struct sock_fprog: a filter."""

    _fields_ = (("length", c_uint16), ("steps", POINTER(_Step)))


def fault() -> str:
    """Why there is no filter; empty if there is one."""
    if sys.platform != "linux":
        return f"{sys.platform} has no seccomp"
    if machine() not in _MACHINES:
        return f"the broker does not know the system calls of {machine()}"
    return ""


def machine() -> str:
    """What this machine is called; where Python itself is for a smaller one, with its bits."""
    return os.uname().machine + ("" if sys.maxsize > 2**32 else ", 32 bits")


def give_up(libc: Any) -> None:
    """Give up system calls forever, if the broker knows those of this machine.

    It needs ``no_new_privs``, and holds for the thread that calls it and those that it starts.

    :raises OSError: the kernel has no filters, or does not permit them here.
    """
    if fault():
        return  # the broker has logged why
    steps = _filter_steps(*_MACHINES[machine()])
    program = _Program(len(steps), (_Step * len(steps))(*steps))
    if libc.prctl(Prctl.SET_SECCOMP, Prctl.FILTER, ctypes.byref(program), 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def numbers(table: str, column: int) -> dict[str, int]:
    """The numbers of the system calls in a table.

    :param column: 0 for x86_64, and 1 for aarch64, which does not have all of them.
    """
    words = table.split()
    found = zip(words[::3], words[1 + column :: 3], strict=True)
    return {name: int(number) for name, number in found if number != "-"}


def _filter_steps(column: int, known_as: int) -> list[_Step]:
    """The instructions of the filter: they end at the first that returns; the last allows the call.

    Behind IF_EQUAL and IF_AT_LEAST are the instructions to skip if it is so, and if it is not.

    :param column: the column of the tables for this machine.
    :param known_as: the machine as the kernel knows it.
    """
    refuse, allow = (
        _Step(_Bpf.RETURN, 0, 0, _Say.ERROR | EPERM),
        _Step(_Bpf.RETURN, 0, 0, _Say.ALLOW),
    )
    first = _Step(_Bpf.LOAD, 0, 0, _FIRST)

    def allow_only(*values: int, of: int | None = None) -> list[_Step]:
        """Allow a call if its first argument has one of some values, in these bits of it."""
        masked = [] if of is None else [_Step(_Bpf.AND, 0, 0, of)]
        each = [step for value in values for step in (_Step(_Bpf.IF_EQUAL, 0, 1, value), allow)]
        return [first, *masked, *each, refuse]

    special = {
        "clone": allow_only(_Clone.THREAD, of=_Clone.NEW | _Clone.THREAD),
        # A filter cannot see its flags.  The C library uses clone where there is none.
        "clone3": [_Step(_Bpf.RETURN, 0, 0, _Say.ERROR | ENOSYS)],
        "socket": allow_only(*_INTERNET),
        "prlimit64": allow_only(0),  # this process
        "tgkill": allow_only(os.getpid()),
        # The process could outlive the broker.
        "prctl": [first, _Step(_Bpf.IF_EQUAL, 0, 1, Prctl.PDEATHSIG), refuse, allow],
    }
    steps = [
        _Step(_Bpf.LOAD, 0, 0, _MACHINE),
        _Step(_Bpf.IF_EQUAL, 1, 0, known_as),
        _Step(_Bpf.RETURN, 0, 0, _Say.KILL),
        _Step(_Bpf.LOAD, 0, 0, _NUMBER),
        _Step(_Bpf.IF_AT_LEAST, 0, 1, _X32),
        refuse,
    ]
    for number in numbers(REFUSED, column).values():
        steps += [_Step(_Bpf.IF_EQUAL, 0, 1, number), refuse]
    for name, number in numbers(SPECIAL, column).items():
        steps += [_Step(_Bpf.IF_EQUAL, 0, len(special[name]), number), *special[name]]
    return [*steps, allow]
