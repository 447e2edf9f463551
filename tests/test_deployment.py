"""Tests the deployment files in ``tap`` with real processes."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
import zipfile
from configparser import ConfigParser
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from signal import SIGHUP

import yaml
from sqlalchemy import make_url
from twisted.trial.unittest import SynchronousTestCase

import rsscloud_broker
from rsscloud_broker import config
from rsscloud_broker.runtime.command_line import Options
from rsscloud_broker.runtime.data_lock import address_of
from rsscloud_broker.runtime.plugin_discovery import discover, faults
from tests.e2e.fixture import request, until
from tests.e2e.programs import program
from tests.processes import BIN, LISTENS, TIMEOUT, Process, new_directory

TOP = Path(rsscloud_broker.__file__).parent.parent
TAP = TOP / "tap"

#: Runs a command like systemd with socket activation: the socket is descriptor 3, and the
#: environment names it and this process.
ACTIVATOR = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.set_inheritable(3, True)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1", "LISTEN_FDNAMES": sys.argv[2]}
os.execv(sys.argv[3], sys.argv[3:])
"""


class DeploymentTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.directory = new_directory(self)

    def written(self, name: str, text: str) -> Path:
        path = self.directory / name
        path.write_text(text, encoding="utf-8")
        return path


def unit(name: str) -> ConfigParser:
    """A unit as a configuration; of repeated keys the last counts."""
    text = re.sub(r"\\\n\s*", " ", (TAP / name).read_text(encoding="utf-8"))
    parser = ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign] # as configparser's manual says
    parser.read_string(text)
    return parser


#: The services that systemd examines: one alone, and one of several.
UNITS = ("rsscloud-broker.service", "rsscloud-broker@5337.service")


class SystemdTests(DeploymentTests):
    """``rsscloud-broker.service`` and ``rsscloud-broker.socket``."""

    def test_structure(self) -> None:
        service, listening = unit("rsscloud-broker.service"), unit("rsscloud-broker.socket")
        self.assertEqual(service.sections(), ["Unit", "Service", "Install"])
        self.assertEqual(listening.sections(), ["Unit", "Socket", "Install"])
        self.assertEqual(service["Unit"]["Requires"], "rsscloud-broker.socket")
        self.assertEqual(listening["Socket"]["ListenStream"].rpartition(":")[2], "5337")

    def analyzed(self, verb: str, name: str, *options: str) -> tuple[int, str]:
        """The exit status and the output of ``systemd-analyze VERB`` for a unit.

        :param name: the unit; it may be an instance of the template.
        """
        command = program("systemd-analyze")
        for file in TAP.glob("rsscloud-broker*.s[eo]*"):
            text = file.read_text(encoding="utf-8")
            self.written(file.name, text.replace("/opt/rsscloud-broker/bin", f"{BIN}"))
        place = self.directory / name
        if not place.exists():
            shutil.copy(self.directory / "rsscloud-broker@.service", place)
        done = subprocess.run(
            [command, verb, *options, str(place)],
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT,
        )
        return done.returncode, done.stdout + done.stderr

    def test_systemd_understands_them(self) -> None:
        for name in (*UNITS, "rsscloud-broker.socket"):
            status, said = self.analyzed("verify", name)
            self.assertEqual([line for line in said.splitlines() if "rsscloud-broker" in line], [])
            self.assertEqual(status, 0, said)

    def test_systemd_finds_it_hardened(self) -> None:
        """systemd rates what a service may do, from 0 for nothing to 100 for everything."""
        for name in UNITS:
            status, said = self.analyzed("security", name, "--offline=yes", "--threshold=20")
            self.assertEqual(status, 0, said)
            self.assertIn("Overall exposure level", said)

    def test_template(self) -> None:
        """Its instances are as the service, but for their ports and directories."""
        one, many = (dict(unit(f"rsscloud-broker{at}.service")["Service"]) for at in ("", "@"))
        port = "5338"
        self.assertEqual(many["StateDirectory"], "rsscloud-broker/%i")
        self.assertEqual(
            many.pop("ExecStart").replace("%i", port),
            one.pop("ExecStart")
            .replace("--data /var/lib/rsscloud-broker", f"--data /var/lib/rsscloud-broker/{port}")
            .replace("systemd:domain=INET:index=0", f"tcp:{port}:interface=127.0.0.1"),
        )
        self.assertEqual(many["WorkingDirectory"], f"/var/lib/{many['StateDirectory']}")
        for name in ("StateDirectory", "WorkingDirectory"):
            del many[name], one[name]
        del one["RuntimeDirectory"]  # instances would remove it from each other
        self.assertEqual(many, one)

    def test_limits_and_restarts(self) -> None:
        service = unit("rsscloud-broker.service")["Service"]
        self.assertEqual(service["StateDirectory"], "rsscloud-broker")
        self.assertIn(f"--data /var/lib/{service['StateDirectory']}", service["ExecStart"])
        for key in ("LimitNOFILE", "MemoryMax", "User"):
            self.assertTrue(service[key], key)
        self.assertEqual(service["Restart"], "always")
        self.assertEqual(service["ExecReload"], "/bin/kill -HUP $MAINPID")
        # twistd sends no readiness message, so systemd must not wait for one.
        self.assertIn(service["Type"], {"simple", "exec"})

    def test_the_access_log_of_the_manual(self) -> None:
        """The service may write where the manual puts the access log."""
        manual = (TAP.parent / "docs" / "operating" / "logs.rst").read_text(encoding="utf-8")
        (file,) = re.findall(r'^ +access = "(.+)"$', manual, re.MULTILINE)
        for name in ("rsscloud-broker.service", "rsscloud-broker@.service"):
            service = unit(name)["Service"]
            self.assertEqual(Path(file).parent, Path("/var/log", service["LogsDirectory"]))
            self.assertEqual(service["LogsDirectoryMode"], "0750")

    def line_of_service(self) -> list[str]:
        """The service's command line, with the paths of this test."""
        config = self.written("broker.toml", "")
        line = unit("rsscloud-broker.service")["Service"]["ExecStart"]
        for said, meant in (
            ("/opt/rsscloud-broker/bin", str(BIN)),
            ("/etc/rsscloud-broker/broker.toml", str(config)),
            ("/var/lib/rsscloud-broker", "data"),
        ):
            self.assertIn(said, line)
            line = line.replace(said, meant)
        return line.split()

    def test_a_reload_just_after_the_start(self) -> None:
        """A SIGHUP before the broker has its handler does not end the broker."""
        line = self.line_of_service()
        line[-1] = "tcp:0:interface=127.0.0.1"
        broker = Process(self, line, cwd=self.directory)
        place = Path(f"/proc/{broker.pid}/cmdline")
        # It is empty for a moment at each exec, also before ``env`` ignores the signal.
        python = re.compile(rb"(?!/usr/bin/env\0).*twistd\0", re.DOTALL)
        until(lambda: python.match(place.read_bytes()) is not None, "Python to begin")
        broker.signal(SIGHUP)
        port = broker.wait_for(LISTENS)[1]
        self.assertEqual(request(f"http://127.0.0.1:{port}/").status, 200)
        broker.signal(SIGHUP)
        broker.wait_for("Reloaded the configuration")

    def test_socket_activation(self) -> None:
        """The service's command line runs with a socket as systemd passes it."""
        line = self.line_of_service()
        host = unit("rsscloud-broker.socket")["Socket"]["ListenStream"].rpartition(":")[0]
        self.assertEqual(host, "0.0.0.0")
        with socket.create_server(("127.0.0.1", 0)) as listening:
            number, port = listening.fileno(), listening.getsockname()[1]
            broker = Process(
                self,
                [
                    *(sys.executable, "-c", ACTIVATOR),
                    *(f"{number}", "rsscloud-broker.socket"),
                    *line,
                ],
                cwd=self.directory,
                pass_fds=[number],
            )
            # A connection that comes before the broker accepts waits in the socket's queue.
            with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT) as early:
                early.sendall(b"GET /changes.xml HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                answer = early.makefile("rb").readline()
        self.assertRegex(answer, rb"^HTTP/1\.1 (200|503) ")
        self.assertEqual(broker.wait_for(LISTENS)[1], str(port))
        self.assertEqual(request(f"http://127.0.0.1:{port}/").status, 200)
        # It is where the link to sign in leads.
        self.assertEqual(address_of(str(self.directory / "data")), f"http://localhost:{port}")


class DockerfileTests(DeploymentTests):
    def setUp(self) -> None:
        super().setUp()
        text = (TAP / "Dockerfile").read_text(encoding="utf-8")
        self.instructions = [
            line.split(maxsplit=1)
            for line in re.sub(r"\\\n\s*", " ", text).splitlines()
            if line and not line.startswith("#")
        ]

    def values(self, name: str) -> list[str]:
        return [value for instruction, value in self.instructions if instruction == name]

    def test_runs_as_a_user_with_a_volume(self) -> None:
        self.assertTrue(self.values("USER"))
        self.assertNotIn(self.values("USER")[-1], {"root", "0"})
        [volume] = self.values("VOLUME")
        [entry] = self.values("ENTRYPOINT")
        self.assertIn(f'"--data", "{volume}"', entry)
        self.assertEqual(self.values("EXPOSE"), ["5337"])

    def test_names_no_registry(self) -> None:
        for image in self.values("FROM") + self.values("ARG"):
            self.assertNotIn("/", image)

    def test_says_whether_the_broker_works(self) -> None:
        [check] = self.values("HEALTHCHECK")
        self.assertIn(f":{self.values('EXPOSE')[0]}/health/ready", check)

    def test_has_locked_versions(self) -> None:
        """PostgreSQL's driver too, which the package does not need by itself."""
        [lock] = [line.split()[0] for line in self.values("COPY") if "requirements" in line]
        self.assertIn("\npsycopg-binary==", (TOP / lock).read_text(encoding="utf-8"))
        pip = [line for line in self.values("RUN") if line.startswith("$PIP")]
        self.assertIn("--require-hashes", pip[0])
        self.assertTrue(all("--no-deps" in line for line in pip), pip)

    def test_what_it_copies_makes_a_whole_package(self) -> None:
        source = self.directory / "source"
        source.mkdir()
        for copied in self.values("COPY"):
            *names, target = copied.split()
            if copied.startswith("--from"):
                continue
            for name in names:
                if (TOP / name).is_dir():
                    ignored = shutil.ignore_patterns("__pycache__", "dropin.cache")
                    shutil.copytree(TOP / name, self.directory / target[1:], ignore=ignored)
                else:
                    shutil.copy(TOP / name, source)
        subprocess.run(
            [
                *(str(BIN / "python"), "-m", "pip", "wheel", "--quiet", "--no-index"),
                *("--no-deps", "--no-build-isolation", "--wheel-dir", ".", str(source)),
            ],
            cwd=self.directory,
            check=True,
            capture_output=True,
        )
        [wheel] = self.directory.glob("*.whl")
        packed = set(zipfile.ZipFile(wheel).namelist())
        package = TOP / "rsscloud_broker"
        needed = {
            str(path.relative_to(TOP))
            for path in package.rglob("*")
            if path.suffix in {".py", ".toml", ".html", ".css", ".wsdl", ".typed"}
        }
        self.assertEqual(needed - packed, set())
        self.assertIn("twisted/plugins/rsscloud_broker_plugin.py", packed)
        self.assertNotIn("twisted/plugins/__init__.py", packed)


BROKERS = ("broker-1", "broker-2", "broker-3")


class ComposeTests(DeploymentTests):
    """``compose-cluster.yaml`` and the files that it names; tests.e2e.test_compose runs them."""

    def setUp(self) -> None:
        super().setUp()
        self.compose = yaml.safe_load((TAP / "compose-cluster.yaml").read_text(encoding="utf-8"))
        self.services = self.compose["services"]

    def test_services(self) -> None:
        brokers = [self.services[name] for name in BROKERS]
        images = {name: service["image"] for name, service in self.services.items()}
        self.assertEqual(
            images,
            {
                "postgresql": "postgres:15",
                "nginx": "nginx:1.28",
                **dict.fromkeys(BROKERS, "rsscloud-broker"),
            },
        )
        for broker in brokers:
            build = broker["build"]
            self.assertTrue((TAP / build["context"] / build["dockerfile"]).is_file())
            self.assertEqual(broker["depends_on"]["postgresql"]["condition"], "service_healthy")

    def test_each_mounts_what_is_there(self) -> None:
        for service in self.services.values():
            for mount in service["volumes"]:
                source, target, *_ = mount.split(":")
                self.assertTrue(target.startswith("/"))
                if source.startswith("."):
                    self.assertTrue((TAP / source).is_file(), source)
                else:
                    self.assertIn(source, self.compose["volumes"])
        own = [service["volumes"][-1] for name, service in self.services.items() if "-" in name]
        self.assertEqual(own, [f"{name}:/data" for name in BROKERS])

    def test_names(self) -> None:
        """No address is fixed: each service is found by its name, and Docker chooses networks."""
        self.assertNotIn("networks", self.compose)
        recipe = (TAP / "compose" / "nginx.conf").read_text(encoding="utf-8")
        named = re.findall(r"server (broker-\d):5337 resolve (?:max_fails|backup)", recipe)
        self.assertEqual(named, [*BROKERS, *BROKERS])
        settings = config.load(str(TAP / "compose" / "broker.toml"), partial(faults, discover()))
        trusted = [ip_network(each) for each in settings.http.trusted_proxies]
        for pool in ("172.17.0.0/16", "172.31.0.0/16", "192.168.240.0/20"):
            within = [ip_network(pool).subnet_of(each) for each in trusted]  # type: ignore[arg-type]
            self.assertTrue(any(within), pool)
        url = make_url(settings.database_url)
        postgresql = self.services["postgresql"]["environment"]
        self.assertEqual((url.host, url.password), ("postgresql", None))
        self.assertEqual(url.username, postgresql["POSTGRES_USER"])
        self.assertEqual(url.database, postgresql["POSTGRES_DB"])
        for name in BROKERS:
            password = self.services[name]["environment"]["PGPASSWORD"]
            self.assertEqual(password, postgresql["POSTGRES_PASSWORD"])

    def test_command(self) -> None:
        """The image's command takes the options of the file."""
        (command,) = {tuple(self.services[name]["command"]) for name in BROKERS}
        mount, _ = self.services["broker-1"]["volumes"]
        self.assertEqual(command, ("--config", mount.split(":")[1]))
        Options().parseOptions(command)


class SingleComposeTests(DeploymentTests):
    """``compose.yaml``: one broker.  ``make image`` runs its image."""

    def test_service(self) -> None:
        compose = yaml.safe_load((TAP / "compose.yaml").read_text(encoding="utf-8"))
        (broker,) = compose["services"].values()
        name, value = broker["command"]
        options = Options()
        options.parseOptions([name, re.sub(r"\$\{PUBLIC_URL:\?.*\}", "https://a.example", value)])
        self.assertEqual(options["public-url"], "https://a.example")
        dockerfile = (TAP / "Dockerfile").read_text(encoding="utf-8")
        for port in broker["ports"]:
            self.assertIn(f"EXPOSE {port.split(':')[1]}\n", dockerfile)
        for mount in broker["volumes"]:
            volume, target = mount.split(":")
            self.assertIn(volume, compose["volumes"])
            self.assertIn(f"VOLUME {target}\n", dockerfile)
        self.assertTrue(
            (TAP / broker["build"]["context"] / broker["build"]["dockerfile"]).is_file()
        )
