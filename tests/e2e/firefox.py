"""A real Firefox for the tests of pages: Debian's program, driven by Marionette.

Playwright drives a Firefox of its own only.  Every Firefox has Marionette built in, which takes the
commands of WebDriver (https://www.w3.org/TR/webdriver2/) over a socket of loopback: a message is
its length in bytes, a colon, and ``[0, number, command, parameters]`` as JSON; the answer is
``[1, number, error, result]``.
See https://firefox-source-docs.mozilla.org/testing/marionette/Protocol.html.
"""

from __future__ import annotations

import atexit
import json
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.e2e.fixture import TIMEOUT, until
from tests.e2e.programs import program
from tests.processes import no_proxies

#: Firefox chooses a free port for Marionette, and asks for nothing by itself.
_PREFERENCES: Final = {
    "marionette.port": 0,
    "network.proxy.type": 0,
    # No name leads anywhere, so that no test reaches another machine.
    "network.dns.localDomains": "detectportal.firefox.com",
    "network.trr.mode": 5,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "app.normandy.enabled": False,
    "app.update.disabledForTesting": True,
    "browser.safebrowsing.downloads.remote.enabled": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "services.settings.server": "data:,#remote-settings-dummy/v1",
    "toolkit.telemetry.server": "data:,",
}

#: The key by which WebDriver names an element.
_ELEMENT: Final = "element-6066-11e4-a52e-4f735466cecf"

#: Keys that are no characters, as WebDriver writes them.
ENTER, CONTROL = "\ue007", "\ue009"


class Firefox:
    """A Firefox with one window, which keeps no cookies when it ends."""

    def __init__(self) -> None:
        """Start it.

        :raises SkipTest: Firefox is not installed; see `program`.
        """
        path = program("firefox-esr")
        self._directory = tempfile.TemporaryDirectory(prefix="firefox-")
        profile = Path(self._directory.name)
        lines = [f"user_pref({json.dumps(n)}, {json.dumps(v)});" for n, v in _PREFERENCES.items()]
        (profile / "user.js").write_text("\n".join(lines), encoding="ascii")
        self._process = subprocess.Popen(
            [path, "--headless", "--marionette", "--no-remote", "--profile", str(profile)],
            # Of the people's own directories it uses none.
            env=no_proxies() | {"HOME": str(profile)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            self._connect(profile / "MarionetteActivePort")
        except BaseException:
            self.end()
            raise

    def _connect(self, port: Path) -> None:
        until(lambda: port.exists() and port.read_text().isdigit(), "Firefox to start")
        self._socket = socket.create_connection(("127.0.0.1", int(port.read_text())), TIMEOUT)
        self._reader = self._socket.makefile("rb")
        self._number = 0
        self._receive()  # what it says of itself
        self._send("WebDriver:NewSession")

    def end(self) -> None:
        """End the program."""
        self._process.kill()
        self._process.wait(TIMEOUT)
        self._directory.cleanup()

    def go(self, url: str) -> None:
        """Open a page, and wait until it is loaded."""
        self._send("WebDriver:Navigate", url=url)

    def forget(self) -> None:
        """Forget the cookies of the page that is open."""
        self._send("WebDriver:DeleteAllCookies")

    def evaluate(self, script: str, *arguments: object) -> Any:
        """What an expression of JavaScript gives in the page; it calls its arguments a0, a1."""
        names = ", ".join(f"a{number}" for number, _ in enumerate(arguments))
        body = f"return (({names}) => {script})(...arguments)"
        return self._send("WebDriver:ExecuteScript", script=body, args=arguments)["value"]

    def click(self, selector: str) -> None:
        """Click on an element, as a person does, and wait for the page to which that leads."""
        self._send("WebDriver:ElementClick", id=self._find(selector))

    def type(self, selector: str, text: str) -> None:
        """Press the keys of a text in a field."""
        self._send("WebDriver:ElementSendKeys", id=self._find(selector), text=text)

    def submit(self, form: str, **fields: str) -> None:
        """Fill in a form and press its button.

        :param form: a CSS selector.
        :param fields: values by the names of its fields.
        """
        for name, value in fields.items():
            self.type(f'{form} [name="{name}"]', value)
        self.click(f"{form} button")

    def wait_for(self, text: str, selector: str = "main") -> None:
        """Wait until an element shows a text."""
        shown = "document.querySelector(a0)?.innerText.includes(a1)"
        until(lambda: self.evaluate(shown, selector, text), f"{text!r} in {selector}")

    def _find(self, selector: str) -> str:
        found = self._send("WebDriver:FindElement", using="css selector", value=selector)
        return str(found["value"][_ELEMENT])

    def _send(self, command: str, **parameters: object) -> dict[str, Any]:
        self._number += 1
        body = json.dumps([0, self._number, command, parameters]).encode()
        self._socket.sendall(b"%d:%b" % (len(body), body))
        _, number, error, result = self._receive()
        if error is not None or number != self._number:
            raise AssertionError(f"{command} of Firefox failed: {error}")
        return dict(result)

    def _receive(self) -> Any:
        length = b""
        while not length.endswith(b":"):
            more = self._reader.read(1)
            if not more:
                raise AssertionError("Firefox has ended")
            length += more
        return json.loads(self._reader.read(int(length[:-1])))


_shared: list[Firefox] = []


def shared_firefox() -> Firefox:
    """The Firefox of this process, started when the first test asks for it.

    :raises SkipTest: Firefox is not installed; see `program`.
    """
    if not _shared:
        firefox = Firefox()
        atexit.register(firefox.end)
        _shared.append(firefox)
    return _shared[0]
