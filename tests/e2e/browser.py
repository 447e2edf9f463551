"""A real Chromium for the tests of pages: Debian's program, driven by Playwright.

All tests of a process share one browser.  Each test has contexts of its own, which share no
cookies, no cache and no settings, and which end with the test.
"""

from __future__ import annotations

import atexit
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from attrs import define, field
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Page,
    Request,
    expect,
    sync_playwright,
)

from tests.e2e.fixture import TIMEOUT, EndToEndTestCase
from tests.e2e.programs import program
from tests.processes import no_proxies

#: CSS pixels: a small phone, a usual phone, a desk.
SMALL, PHONE, DESK = 360, 390, 1280
HEIGHT = 844

#: Where screenshots of the pages go; git ignores it.
SCREENSHOTS = Path(__file__).parent.parent.parent / "_screenshots"

_ARGUMENTS = [
    "--no-sandbox",  # tests may run as root, and open nothing but pages of their own
    "--disable-dev-shm-usage",
    "--no-proxy-server",
    # No name leads anywhere, so that no test reaches another machine.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]

#: What reaches beyond the screen, though the page does not scroll: it would be cut off.  A table
#: in a box of its own that scrolls is not.
_CUT_OFF = """
[...document.querySelectorAll('body *')]
    .filter(each => !each.closest('.table') && !each.closest('svg'))
    .filter(each => each.getBoundingClientRect().right > innerWidth + 0.5)
    .map(each => `${each.tagName} ${each.className}`)
"""

# Playwright itself gives up after five seconds, which are few on a busy machine.
expect.set_options(timeout=TIMEOUT * 1000)

_shared: list[Browser] = []


def shared_browser() -> Browser:
    """The browser of this process, started when the first test asks for it.

    :raises SkipTest: Chromium is not installed; see `program`.
    """
    if not _shared:
        path = program("chromium-headless-shell")
        playwright = sync_playwright().start()
        atexit.register(playwright.stop)
        browser = playwright.chromium.launch(
            executable_path=path, args=_ARGUMENTS, env={**no_proxies()}, timeout=TIMEOUT * 1000
        )
        atexit.register(browser.close)
        _shared.append(browser)
    return _shared[0]


@define(eq=False, slots=False)  # Playwright gives it an attribute
class Watch:
    """What happens in the pages of a context that no page of the broker may cause.

    :ivar host: the host and port of the broker.
    :ivar faults: sentences; a test compares them with the empty list.
    :ivar requests: the URLs that were asked for.
    """

    host: str
    faults: list[str] = field(factory=list)
    requests: list[str] = field(factory=list)

    def attach(self, context: BrowserContext) -> None:
        """Watch all pages of a context from now on."""
        context.on("request", self._requested)
        context.on("console", self._said)
        context.on("dialog", self._asked)
        context.on("weberror", lambda error: self.faults.append(f"a script failed: {error.error}"))

    def _requested(self, request: Request) -> None:
        self.requests.append(request.url)
        if urlsplit(request.url).netloc != self.host:
            self.faults.append(f"asked for {request.url}")

    def _said(self, message: ConsoleMessage) -> None:
        if message.type not in {"error", "warning"}:
            return  # advice to developers
        # Chromium also says so when the page itself is an error page, which is no fault of it.
        page = message.page.url if message.page else ""
        if message.text.startswith("Failed to load resource") and message.location["url"] == page:
            return
        self.faults.append(f"the console has {message.type}: {message.text}")

    def _asked(self, dialog: Dialog) -> None:
        self.faults.append(f"a dialog opened: {dialog.message}")
        dialog.dismiss()


class BrowserTestCase(EndToEndTestCase):
    """A test case with a browser.

    :ivar browser: the browser, in which tests open contexts.
    """

    maxDiff = None  # lists of faults are shown in full

    def setUp(self) -> None:
        super().setUp()
        self.browser = shared_browser()

    def context(self, **options: Any) -> BrowserContext:
        """A context that ends with this test.

        :param options: those of Playwright's ``Browser.new_context``.
        """
        context = self.browser.new_context(**options)
        context.set_default_timeout(TIMEOUT * 1000)
        self.addCleanup(context.close)
        return context

    def page(
        self, width: int = DESK, scheme: Literal["light", "dark"] = "light", **options: Any
    ) -> Page:
        """A page in a context of its own, in a window or, if it is narrow, on a phone.

        :param width: of the screen, in CSS pixels.
        :param scheme: which colours the person prefers.
        :param options: more of those of ``Browser.new_context``.
        """
        context = self.context(
            viewport={"width": width, "height": HEIGHT},
            color_scheme=scheme,
            is_mobile=width < DESK,
            **options,
        )
        return context.new_page()

    def submit(self, page: Page, form: str, fields: Mapping[str, str]) -> None:
        """Fill in a form as a person does, press its button, and wait for the next page.

        :param form: a CSS selector.
        :param fields: values by the names of its fields.
        """
        for name, value in fields.items():
            page.fill(f'{form} [name="{name}"]', value)
        self.press(page, f"{form} button")

    def sign_in(self, page: Page, url: str, name: str, password: str) -> None:
        """Go to a page for members, and sign in by the form to which it leads."""
        page.goto(url)
        self.submit(page, "main form", {"name": name, "password": password})
        expect(page).to_have_url(url)

    def press(self, page: Page, selector: str) -> None:
        """Press a button, and wait for the page that answers."""
        with page.expect_navigation():
            page.click(selector)

    def follow(self, page: Page, path: str) -> None:
        """Click on a link in the main part of a page, and wait for what is there."""
        page.click(f"main a[href='{path}']")
        page.wait_for_url(f"**{path}")

    def assert_fits(self, page: Page, what: str) -> None:
        """The page is as wide as the screen: it does not scroll sideways, and nothing is cut."""
        self.assertEqual(overflowing(page), [], what)


def overflowing(page: Page) -> list[str]:
    """What makes a page wider than the screen, and what is cut off at its edge."""
    assert page.viewport_size is not None
    width = page.viewport_size["width"]
    wide = page.evaluate("Math.max(innerWidth, document.documentElement.scrollWidth)")
    scrolls = [f"the page is {wide} px wide"] if wide > width else []
    return scrolls + [f"cut off: {each}" for each in page.evaluate(_CUT_OFF)]
