"""The broker as the manual for operators installs it: with systemd's socket, and nginx before it.

What the manual and the units in ``tap`` say is used to the letter; only names, ports and paths of
the system are replaced with those of a test.
"""

from __future__ import annotations

import re
import socket
import textwrap
from collections.abc import Mapping
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding

import rsscloud_broker
from tests.e2e.fixture import Broker
from tests.e2e.programs import program
from tests.outbound.authority import authority
from tests.processes import BIN
from tests.test_deployment import TAP, unit

_PAGE = Path(rsscloud_broker.__file__).parents[1] / "docs" / "operating" / "reverse-proxy.rst"


def manual() -> str:
    """The page of the manual about a reverse proxy."""
    return _PAGE.read_text(encoding="utf-8")


def nginx_recipe(language: str = "nginx") -> str:
    """The configuration of nginx in the manual, or of another reverse proxy."""
    found = re.search(rf"(?m)^\.\. code-block:: {language}\n\n((?: .*\n|\n)+)", manual())
    assert found is not None, f"the manual has no configuration of {language}"
    return textwrap.dedent(found[1])


def replaced(text: str, meant: Mapping[str, str]) -> str:
    """A text with each of some words replaced; all of them must be in it."""
    for said, mine in meant.items():
        assert said in text, f"{said!r} is not in:\n{text}"
        text = text.replace(said, mine)
    return text


def containers_recipe(*addresses: str) -> str:
    """The configuration of nginx of ``tap/compose-cluster.yaml``, for brokers at these addresses.

    Their addresses are not looked up, which Docker does, and nginx since 1.27.3.
    """
    text = (TAP / "compose" / "nginx.conf").read_text(encoding="utf-8")
    text = replaced(text, {" resolve ": " ", "resolver 127.0.0.11 valid=2s;\n": ""})
    for number, address in enumerate(addresses, 1):
        text = replaced(text, {f"broker-{number}:5337": address})
    return re.sub(r"(?m)^ *server broker-.*\n", "", text)


class ActivatedBroker(Broker):
    """A broker that ``systemd-socket-activate`` starts when somebody connects to its UNIX socket.

    :param place: the path of that socket, which must be short.
    """

    def __init__(self, directory: Path, configuration: str, place: Path) -> None:
        super().__init__(directory, configuration)
        self._activate = program("systemd-socket-activate")
        self.place = place

    def command(self, ahead: float) -> list[str]:
        """The command line of the unit, changed as the manual says for nginx."""
        assert not ahead
        activated = "--listen systemd:domain=UNIX:index=0"
        assert f"``{activated}``" in re.sub(r"\s+", " ", manual())
        line = replaced(
            unit("rsscloud-broker.service")["Service"]["ExecStart"],
            {
                "/opt/rsscloud-broker/bin": str(BIN),
                "/etc/rsscloud-broker/broker.toml": str(self.configuration),
                "/var/lib/rsscloud-broker": str(self.data),
                "--listen systemd:domain=INET:index=0": activated,
            },
        )
        # systemd names each socket after its unit; Twisted takes none without a name.
        named = ["--fdname", "rsscloud-broker.socket"]
        return [self._activate, "--listen", str(self.place), *named, *line.split()]

    def answers(self) -> bool:
        try:
            with socket.socket(socket.AF_UNIX) as caller:
                caller.connect(str(self.place))
                caller.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                return caller.makefile("rb").readline().startswith(b"HTTP/1.1 200 ")
        except OSError:
            return False


def has_ipv6() -> bool:
    """Whether this machine has an IPv6 address to itself."""
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def certified(directory: Path, *names: str) -> tuple[Path, Path]:
    """A certificate for some names or addresses with that of who signed it, and its key."""
    signer = authority()
    certificate, key = signer.pem(*names)
    files = directory / "certificate.pem", directory / "key.pem"
    files[0].write_bytes(certificate + signer.certificate.public_bytes(Encoding.PEM))
    files[1].write_bytes(key)
    return files
