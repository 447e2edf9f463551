"""A real Chromium that opens pages, for tests of their layout and their forms.

It is driven by the Chrome DevTools Protocol over two pipes: JSON messages, each ended by a zero
byte (``--remote-debugging-pipe``).  So no WebSocket client is needed.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import time
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.e2e.fixture import TIMEOUT
from tests.e2e.programs import program

#: Where Chromium reads commands, and where it writes answers.
_COMMANDS, _ANSWERS = 3, 4

#: Happens when a page is there, with its style sheets.
_LOADED = "Page.loadEventFired"


class Chromium:
    """A browser without a window.

    :param directory: where its profile goes.
    :raises SkipTest: there is none on this machine; see `program`.
    """

    def __init__(self, directory: Path) -> None:
        self._program = program("chromium")
        self._directory = directory
        self._number = 0
        self._buffer = b""
        self._loaded = False

    def start(self) -> None:
        """Start it, with one empty page."""
        commands, self._to = _far_pipe()
        self._from, answers = _far_pipe()
        arguments = [
            self._program,
            "--headless",
            "--no-sandbox",  # tests may run as root, and open nothing but pages of their own
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--hide-scrollbars",
            "--remote-debugging-pipe",
            f"--user-data-dir={self._directory}",
            "about:blank",
        ]
        log = os.open(self._directory.with_suffix(".log"), os.O_WRONLY | os.O_CREAT, 0o600)
        self._pid = os.posix_spawn(
            self._program,
            arguments,
            os.environ,
            setpgroup=0,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, log, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
                (os.POSIX_SPAWN_DUP2, commands, _COMMANDS),
                (os.POSIX_SPAWN_DUP2, answers, _ANSWERS),
            ],
        )
        for descriptor in (commands, answers, log):
            os.close(descriptor)
        self._session = ""
        targets = self._ask("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")["targetId"]
        attached = self._ask("Target.attachToTarget", targetId=page, flatten=True)
        self._session = attached["sessionId"]
        self._ask("Page.enable")

    def stop(self) -> None:
        """End it, and all processes that it has started."""
        os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._to)
        os.close(self._from)

    # what tests do with it

    def screen(self, width: int, *, dark: bool = False, phone: bool = False) -> None:
        """Open pages in so many CSS pixels from now on.

        :param dark: whether the person likes dark pages better.
        :param phone: whether that is the screen of a phone, which may lay a page out as if it
            were wider, and not a window.
        """
        metrics = {"width": width, "height": 844, "deviceScaleFactor": 1}
        self._ask("Emulation.setDeviceMetricsOverride", **metrics, mobile=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url: str) -> None:
        """Open a page, and wait until all of it is there."""
        self._loaded = False
        self._ask("Page.navigate", url=url)
        self._await_page()

    def submit(self, form: str, fields: Mapping[str, str]) -> None:
        """Fill in a form, press its button, and wait for the next page.

        :param form: a CSS selector.
        :param fields: values by the names of its fields.
        """
        for name, value in fields.items():
            selector = f'{form} [name="{name}"]'
            field = f"document.querySelector({json.dumps(selector)})"
            self.evaluate(f"{field}.value = {json.dumps(value)}")
        self.click(f"{form} button")

    def click(self, selector: str) -> None:
        """Click on an element, and wait for the page that it leads to."""
        self._loaded = False
        self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")
        self._await_page()

    def press_tab(self) -> None:
        """Press the Tab key, which moves the focus on."""
        key = {"key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9}
        for kind in ("rawKeyDown", "keyUp"):
            self._ask("Input.dispatchKeyEvent", type=kind, **key)

    def _await_page(self) -> None:
        while not self._loaded:
            self._next_message()

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page, or of what it promises."""
        asked = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        answer = self._ask("Runtime.evaluate", **asked)
        if "exceptionDetails" in answer:
            raise AssertionError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """Keep what the page looks like, from its top to its bottom."""
        picture = self._ask("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(b64decode(picture["data"]))

    # the protocol

    def _ask(self, method: str, **params: object) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._next_message()).get("id") != self._number:
            pass  # something happened
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def _next_message(self) -> dict[str, Any]:
        deadline = time.monotonic() + TIMEOUT
        while b"\0" not in self._buffer:
            readable, _, _ = select.select([self._from], [], [], deadline - time.monotonic())
            data = os.read(self._from, 1 << 20) if readable else b""
            if not data:
                log = self._directory.with_suffix(".log").read_text(errors="replace")
                raise AssertionError(f"Chromium does not answer:\n{log}")
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        decoded: dict[str, Any] = json.loads(message)
        self._loaded |= decoded.get("method") == _LOADED
        return decoded


def _far_pipe() -> tuple[int, int]:
    """A pipe whose ends are none of the descriptors that Chromium gets."""
    near = os.pipe()
    read, write = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in near)
    for end in near:
        os.close(end)
    return read, write
