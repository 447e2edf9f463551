"""What ``make`` says and does for somebody who has just got the source: with real processes."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

import rsscloud_broker
from rsscloud_broker.config.couriers import DeliveryConfig
from tests.e2e.fixture import request, until
from tests.processes import (
    BIN,
    TIMEOUT,
    Process,
    children_of,
    free_port,
    new_directory,
    no_proxies,
)

TOP = Path(rsscloud_broker.__file__).parent.parent

INSTALL_PROGRAMS = TOP / "tests" / "e2e" / "install-programs.sh"


class MakeTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.directory = new_directory(self)


class InstallingTests(MakeTestCase):
    """Without the network: pip asks a port at which nobody is."""

    def setUp(self) -> None:
        super().setUp()
        for name in ("Makefile", "setup.py", "pyproject.toml", "README.rst", "LICENSE"):
            shutil.copy(TOP / name, self.directory)
        shutil.copytree(TOP / "twisted", self.directory / "twisted")
        (self.directory / "rsscloud_broker").mkdir()

    def make(self, target: str) -> subprocess.CompletedProcess[str]:
        offline = {
            "PIP_CONFIG_FILE": "/dev/null",
            "PIP_INDEX_URL": f"http://127.0.0.1:{free_port()}/simple",
            "PIP_FIND_LINKS": "",
            "PIP_NO_INDEX": "",
            # What a make that runs the tests hands down.
            "MAKELEVEL": "0",
            "MAKEFLAGS": "",
            "PYTHONPATH": "",  # in which trial --jobs names the packages of this environment
        }
        return subprocess.run(
            ["make", f"PYTHON={sys.executable}", target],
            check=False,
            cwd=self.directory,
            env=no_proxies() | offline,
            capture_output=True,
            encoding="utf-8",
            timeout=TIMEOUT,
        )

    def test_nothing_is_there(self) -> None:
        done = self.make("run")
        self.assertEqual(done.returncode, 2)
        self.assertIn("Setting up a virtual environment in .venv", done.stdout)
        self.assertIn("needs the network", done.stdout)
        said, *of_make = done.stderr.splitlines()
        self.assertTrue(said.startswith("No network: "), said)
        self.assertEqual(len(of_make), 1, done.stderr)

    def test_everything_is_there(self) -> None:
        """After a checkout that made pyproject.toml newer, no network is needed."""
        venv = self.directory / ".venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
        (packages,) = venv.glob("lib/python3*/site-packages")
        (ours,) = BIN.parent.glob("lib/python3*/site-packages")
        (packages / "ours.pth").write_text(f"{ours}\n")
        pip = venv / "bin" / "pip"
        pip.write_text(f'#!/bin/sh\nexec {venv}/bin/python -m pip "$@"\n')
        pip.chmod(0o755)
        done = self.make(".venv/run-ready")
        self.assertEqual((done.stdout, done.stderr, done.returncode), ("", "", 0))


def descendants(pid: int) -> list[bytes]:
    """The command lines of the processes that a process has started, and of theirs."""
    children = children_of(pid)
    lines = [Path(f"/proc/{child}/cmdline").read_bytes() for child in children]
    return [*lines, *(line for child in children for line in descendants(child))]


class RunTests(MakeTestCase):
    def test_arguments_and_interrupt(self) -> None:
        """``make run ARGS=...`` listens there, and Ctrl-C ends it without a word of make."""
        port, venv = free_port(), BIN.parent
        arguments = f"--data={self.directory}/data --listen=tcp:{port}:interface=127.0.0.1"
        broker = Process(
            self,
            [
                # Anyone who started the tests may have them ignore Ctrl-C.
                *("env", "--default-signal=INT", "make", f"--file={TOP / 'Makefile'}"),
                *(f"--assume-old={venv}/run-ready", f"VENV={venv}", "run", f"ARGS={arguments}"),
            ],
            cwd=TOP,
            process_group=0,
        )
        broker.wait_for(r"look \(http://localhost:5337/")
        broker.wait_for(f"at http://localhost:{port}/")
        self.assertEqual(request(f"http://127.0.0.1:{port}/").status, 200)
        wanted = 1 + DeliveryConfig().couriers  # what forks them, and they; parsers may come
        until(
            lambda: str(descendants(broker.pid)).count("composition.courier") >= wanted, "couriers"
        )
        broker.interrupt()
        self.assertEqual(broker.wait(), -signal.SIGINT)
        self.assertIn("Server Shut Down.", broker.output)
        self.assertNotIn("***", broker.output)
        self.assertNotIn("Traceback", broker.output)


class ProgramsTests(MakeTestCase):
    """``install-programs.sh``, on a machine that has few programs."""

    def setUp(self) -> None:
        super().setUp()
        self.bin = self.directory / "bin"
        self.bin.mkdir()
        self.has("id", "echo 1000")

    def has(self, name: str, script: str = "exit 0") -> None:
        """Put a program on this machine."""
        (self.bin / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.bin / name).chmod(0o755)

    def install(self) -> tuple[str, str]:
        """What it says that it installs, and what else."""
        done = subprocess.run(
            ["/bin/sh", str(INSTALL_PROGRAMS), str(self.directory)],
            check=True,
            env={"PATH": str(self.bin)},
            capture_output=True,
            encoding="utf-8",
            timeout=TIMEOUT,
        )
        return done.stdout, done.stderr

    def test_not_root(self) -> None:
        self.has("apt-get", f"touch {self.directory}/called")
        self.has("nginx")
        said, why = self.install()
        self.assertIn(
            "  php-cli php-soap php-xml: PHP's SoapClient, which calls the broker\n", said
        )
        self.assertIn("libsoap-lite-perl", said)
        self.assertNotIn("nginx-light", said)
        self.assertIn("only root may; as root run: apt-get install php-cli", why)
        self.assertIn("SKIPPED", why)
        self.assertFalse((self.directory / "called").exists())

    def test_no_apt_get(self) -> None:
        self.assertIn("there is no apt-get", self.install()[1])

    def test_everything_is_there(self) -> None:
        servers = ("nginx", "caddy", "apache2", "postgres", "pgbouncer", "promtool")
        browsers = ("chromium-headless-shell", "firefox-esr", "curl")
        systemd = ("systemd-analyze", "systemd-socket-activate")
        for name in (*servers, *browsers, *systemd, "php", "perl"):
            self.has(name)
        self.assertEqual(self.install(), ("", ""))

    def test_packages_of_node(self) -> None:
        self.test_everything_is_there()
        self.has("node")
        self.has("mkdir", '/bin/mkdir "$@"')
        self.has("npm", "echo broken; exit 1")
        said, why = self.install()
        self.assertIn("Installing soap and xmlrpc of Node.js", said)
        self.assertIn("npm failed", why)
        self.assertEqual((self.directory / "npm.log").read_text(), "broken\n")
