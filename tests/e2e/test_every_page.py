"""What every page owes to everybody, in a real browser: narrow and wide, light and dark.

Each page of ``PAGES`` has tests of its own, such as ``EveryPageTests.test_stats``, which also keep
screenshots in ``_screenshots/``.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from typing import Final, Literal
from urllib.parse import urljoin, urlsplit

from lxml import html
from playwright.sync_api import Page, StorageState

from tests.e2e.browser import DESK, HEIGHT, PHONE, SCREENSHOTS, SMALL, Watch, overflowing
from tests.e2e.every_page import ACCOUNT, PAGES, PASSWORD, BusyTestCase, PageOfBroker
from tests.e2e.fixture import request
from tests.test_words import on_pages

#: The most bytes that travel for a page with all that it loads, to a browser that has nothing yet.
MOST_BYTES: Final = 60_000

AXE: Final = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")

#: What makes a page hard or impossible to use for some people, in the words of axe-core.
SERIOUS: Final = """
async () => {
    const {violations} = await axe.run(document, {resultTypes: ['violations'], preload: false});
    return violations
        .filter(each => ['serious', 'critical'].includes(each.impact))
        .flatMap(each => each.nodes.map(node => `${each.id}: ${node.html}`));
}
"""

#: The bytes of the page and of what it has loaded, as they travel: style sheets are compressed.
_BYTES: Final = (
    "performance.getEntries().reduce((sum, each) => sum + (each.encodedBodySize ?? 0), 0)"
)

#: The controls that somebody sees, in the order of the document.
_CONTROLS: Final = """
[...document.querySelectorAll(
    'a[href], button, input, select, textarea, summary, audio, video, [tabindex="0"]'
)].filter(each => !each.disabled && each.type !== 'hidden' && each.checkVisibility())
"""

#: Which control has the focus, and whether that can be seen: on the screen, and by an outline.
_FOCUS: Final = f"""
() => {{
    const focused = document.activeElement;
    const style = getComputedStyle(focused);
    const place = focused.getBoundingClientRect();
    return {{
        number: {_CONTROLS}.indexOf(focused),
        name: focused.outerHTML.slice(0, 90),
        seen: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0
            && place.width > 0 && place.bottom > 0 && place.top < innerHeight,
    }};
}}
"""

#: What somebody finds and can do in a page; only scripts add the buttons that copy.
_USES: Final = """
[
    document.querySelector('h1').innerText,
    ...['form', 'input', 'select', 'button:not(.copier)', 'figure svg', 'table'].map(
        each => `${document.querySelectorAll('main ' + each).length} ${each}`
    ),
]
"""

#: The links that lead to other pages.
_LINKS: Final = "//a/@href[not(starts-with(., '#'))]"
_BROWSER: Final = {"accept": "text/html,application/xhtml+xml"}


_signed_in: list[StorageState] = []


class EveryPageTests(BusyTestCase):
    """One test for each page; they are added below."""

    def setUp(self) -> None:
        super().setUp()
        self.faults: list[str] = []

    def check(self, shown: PageOfBroker) -> None:
        """Look at a page on small and large screens; report every fault at once."""
        SCREENSHOTS.mkdir(exist_ok=True)
        page = self.page(SMALL, storage_state=self.signed_in() if shown.is_private else None)
        watch = Watch(urlsplit(self.busy.broker.url).netloc)
        watch.attach(page.context)
        answer = page.goto(shown.url(self.busy.broker, self.busy.feed))
        assert answer is not None
        self.assertEqual(answer.status, shown.status)
        self.weigh(page)
        if shown.name != "api_docs":  # which is for programs
            self.assertEqual(on_pages(page.inner_text("main")), [])
        self.faults += watch.faults
        page.evaluate(AXE)
        # At every width the colours are the same, and between the widths there is nothing else.
        self.look(page, shown.name, DESK, "dark")
        self.look(page, shown.name, SMALL, "light")
        page.set_viewport_size({"width": PHONE, "height": HEIGHT})
        self.faults += [f"{shown.name}-{PHONE}: {each}" for each in overflowing(page)]
        self.walk(page)
        self.assertEqual(self.faults, [])

    def signed_in(self) -> StorageState:
        """What a browser keeps of somebody who has signed in, which all tests share."""
        if not _signed_in:
            page = self.page(SMALL)
            page.goto(f"{self.busy.broker.url}/signin")
            self.submit(page, "main form", {"name": ACCOUNT, "password": PASSWORD})
            _signed_in.append(page.context.storage_state())
        return _signed_in[0]

    def look(self, page: Page, name: str, width: int, scheme: Literal["light", "dark"]) -> None:
        """Look at a page at one width and in one scheme: its accessibility, whether it fits."""
        page.set_viewport_size({"width": width, "height": HEIGHT})
        page.emulate_media(color_scheme=scheme)
        picture = f"{name}-{width}-{scheme}"
        page.screenshot(path=SCREENSHOTS / f"{picture}.png", full_page=True)
        found = [*page.evaluate(SERIOUS), *overflowing(page)]
        self.faults += [f"{picture}: {each}" for each in found]

    def weigh(self, page: Page) -> None:
        """Add up the page, its assets and its icons."""
        icons = page.locator("link[rel=icon]").evaluate_all("all => all.map(each => each.href)")
        weight = page.evaluate(_BYTES) + sum(len(request(icon).body) for icon in icons)
        if weight > MOST_BYTES:
            self.faults.append(f"the page and its assets have {weight} bytes")

    def walk(self, page: Page) -> None:
        """Walk through a page with the Tab key, from its top."""
        # A line of the event log that comes meanwhile would move the others.
        page.evaluate("document.getElementById('live-pause')?.click()")
        wanted = page.evaluate(f"{_CONTROLS}.length")
        walked: list[int] = []
        # Boxes that scroll get the focus too, and fields for times and players stop at each part.
        for _ in range(2 * wanted + 20):
            if len(walked) == wanted:
                break
            page.keyboard.press("Tab")
            focus = page.evaluate(_FOCUS)
            if not walked and 'class="skip"' not in focus["name"]:
                self.faults.append(f"Tab leads to {focus['name']} before the skip link")
            # The browser itself marks the parts of a field or a player after its first one.
            if not focus["seen"] and focus["number"] not in walked[-1:]:
                self.faults.append(f"nobody sees that {focus['name']} has the focus")
            if focus["number"] >= 0 and focus["number"] not in walked[-1:]:
                walked.append(focus["number"])
        if walked != list(range(wanted)):
            self.faults.append(f"Tab leads through {walked}, not through {wanted} controls")


def _test_of(shown: PageOfBroker) -> Callable[[EveryPageTests], None]:
    def test(self: EveryPageTests) -> None:
        self.check(shown)

    test.__doc__ = f"``{shown.path}``"
    return test


for each in PAGES:
    setattr(EveryPageTests, f"test_{each.name}", _test_of(each))


class TogetherTests(BusyTestCase):
    """All pages in one test."""

    def test_without_scripts(self) -> None:
        """What a page has for people is the same where the browser runs no scripts."""
        usual, bare = self.page(), self.page(java_script_enabled=False)
        for shown in PAGES:
            for page in (usual, bare):
                page.goto(shown.url(self.busy.broker, self.busy.feed))
            self.assertEqual(bare.evaluate(_USES), usual.evaluate(_USES), shown.path)

    def test_every_link(self) -> None:
        """Each link of a page leads to something; if that is a page, it is in the table too."""
        broker, feed = self.busy.broker, self.busy.feed
        known = {urlsplit(page.path).path for page in PAGES}
        seen: set[str] = set()
        faults: list[str] = []
        for page in PAGES:
            if page.is_private:
                continue  # nobody has signed in here
            url = page.url(broker, feed)
            targets = {urljoin(url, str(link)) for link in _read(url).xpath(_LINKS)}
            for target in sorted(targets - seen):
                seen.add(target)
                if not target.startswith(f"{broker.url}/"):
                    continue  # to the site of a stranger
                answer = request(target, headers=_BROWSER)
                if answer.headers.get("location", "").startswith("/signin?next="):
                    continue  # for who has signed in
                if answer.status != 200:
                    faults.append(f"{url} links to {target}, which answers {answer.status}")
                is_page = answer.headers["content-type"].startswith("text/html")
                if is_page and urlsplit(target).path not in known:
                    faults.append(f"{url} links to {target}, which is not among PAGES")
        self.assertEqual(faults, [])
        self.assertIn(f"{broker.url}/docs", seen)


def _read(url: str) -> html.HtmlElement:
    return html.document_fromstring(request(url, headers=_BROWSER).body)
