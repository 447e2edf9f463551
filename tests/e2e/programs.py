"""Programs of other people that the end-to-end tests run, and what is done without them.

``make test`` installs them where it can: see ``install-programs.sh``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn
from unittest import SkipTest

from tests.processes import BIN, TIMEOUT, no_proxies

#: Where ``make test`` installs packages of Node.js.
NODE_MODULES = BIN.parent / "node" / "node_modules"

#: Where Debian keeps programs that only root needs.
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def missing(what: str) -> NoReturn:
    """Skip a test for lack of a program; with ``CI=true`` in the environment, fail it.

    :param what: the program, in words that tell how to get it.
    :raises SkipTest: always, but with ``CI=true``.
    """
    said = f"{what} IS MISSING: make test installs it, as root on Debian and with the network"
    if os.environ.get("CI") == "true":
        raise AssertionError(said)
    raise SkipTest(said)


def program(name: str) -> str:
    """The path of a program.

    :raises SkipTest: it is missing; see `missing`.
    """
    found = shutil.which(name, path=_PATH)
    if found is None:
        missing(name)
    return found


def output(command: Sequence[str], **variables: str) -> str:
    """What a program prints that must succeed.

    :param variables: added to its environment, in which no proxy is named.
    """
    done = subprocess.run(
        command,
        check=False,
        env=no_proxies() | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=TIMEOUT,
    )
    if done.returncode:
        raise AssertionError(f"{command} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def php(script: Path) -> list[str]:
    """The command that runs a script of PHP with its SOAP extension."""
    interpreter = program("php")
    _probe("PHP's extension soap", [interpreter, "-r", "exit(extension_loaded('soap') ? 0 : 1);"])
    return [interpreter, str(script)]


def perl(script: Path, module: str) -> list[str]:
    """The command that runs a script of Perl that uses a module."""
    interpreter = program("perl")
    _probe(f"{module} of Perl", [interpreter, f"-M{module}", "-e", "1"])
    return [interpreter, str(script)]


def _probe(what: str, command: Sequence[str]) -> None:
    if subprocess.run(command, check=False, capture_output=True, timeout=TIMEOUT).returncode:
        missing(what)


def node(script: Path, package: str) -> list[str]:
    """The command that runs a script of Node.js that uses a package.

    :raises SkipTest: Node.js is not here, which is nobody's fault: it is never installed.
    """
    interpreter = shutil.which("node")
    if interpreter is None or shutil.which("npm") is None:
        raise SkipTest("Node.js or npm is not installed")
    if not (NODE_MODULES / package).is_dir():
        missing(f"{package} of Node.js")
    return [interpreter, str(script)]
