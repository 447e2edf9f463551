"""Makes the pictures of the manual and of ten pages, with a real broker and a real browser::

    make pictures

It starts a broker as ``make run`` does, signs in by the link that the broker prints, writes, and
follows its own feed.  A picture of a page that this version does not have is left as it is.  The
pictures of the manual are in ``docs/pictures``; those of ten pages, at two widths and in both
colour modes, in ``_screenshots``, which git ignores.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal

from playwright.sync_api import Page, ViewportSize

from tests.e2e.browser import DESK, HEIGHT, PHONE, SCREENSHOTS, shared_browser
from tests.e2e.every_page import PAGES, busy_broker
from tests.e2e.fixture import Broker, post_form, until
from tests.e2e.servers import HttpPostReceiver, Origin

#: Where the pictures are.
PICTURES: Final = Path(__file__).parents[2] / "docs" / "pictures"

#: CSS pixels of the window.
WINDOW: Final[ViewportSize] = {"width": 960, "height": 640}

#: The ten pages, and the colours that the person prefers.
TEN: Final = (
    *("front", "pingSiteForm", "websub", "changes", "known_topic"),
    *("host", "log", "stats", "author", "signin"),
)
SCHEMES: Final[tuple[Literal["light", "dark"], ...]] = ("light", "dark")

#: What the page of the design shows: the page that has a component, and a CSS selector for it.
COMPONENTS: Final = {
    "header": ("front", "header"),
    "lead": ("websub", "main > .lead"),
    "doors": ("front", ".doors"),
    "form": ("pingSiteForm", "main form"),
    "notice": ("ping_refused", ".notice"),
    "copy": ("websub", ".copies"),
    "facts": ("stats", ".facts"),
    "ways": ("events", ".ways"),
    "filters": ("events", ".filters"),
    "todo": ("known_topic", ".todo"),
    "timeline": ("known_topic", ".timeline li"),
    "badge": ("known_topic", ".timeline .badge"),
    "plot": ("known_topic", ".plot"),
}

#: What readers see, whatever port the broker has here.
PUBLIC_URL: Final = "http://localhost:5337"

#: Seconds by which the clock of the broker is ahead of the real one, at each of its starts: so the
#: test feed has some items.
STARTS: Final = (0, 900, 1800)

MESSAGES: Final = (
    "Hello. This is the first message of my own feed.",
    "The tide is at 6:12 tomorrow. Bring boots, and something hot to drink.",
)
NEWS: Final = "This one arrives in the other tab within a second."


def signed_in(broker: Broker, page: Page) -> None:
    """Open the link that the broker has printed; a script on its page signs the browser in."""
    printed = re.compile(r"http://localhost:\d+(/signin/once\?key=\S+)")
    # Of the earlier starts the link may be missing: the broker was stopped before it printed it.
    started = broker.log.rindex("starting up")
    until(lambda: printed.search(broker.log, started), "the broker to print its link")
    page.goto(broker.url + printed.findall(broker.log)[-1], wait_until="commit")
    page.wait_for_url(re.compile(r"/(write)?$"))


def has(broker: Broker, page: Page, path: str) -> bool:
    """Go to a page, and return whether there is one."""
    answer = page.goto(broker.url + path)
    return answer is not None and answer.status == 200


def take(page: Page, name: str) -> None:
    """Make a picture of what is in the window."""
    PICTURES.mkdir(exist_ok=True)
    page.screenshot(path=PICTURES / f"{name}.png", animations="disabled", caret="hide")
    sys.stdout.write(f"{PICTURES / name}.png\n")


def write(broker: Broker, page: Page, text: str) -> None:
    """Publish a message."""
    page.goto(f"{broker.url}/write")
    page.fill("textarea[name=text]", text)
    with page.expect_navigation(url="**/write?done=posted*"):
        page.click("#message button[value=post]")


def write_and_read(broker: Broker, page: Page) -> None:
    """Pictures of the authoring tool and of the river, if this version has them."""
    if not has(broker, page, "/write"):
        return
    for text in MESSAGES:
        write(broker, page, text)
    page.fill("textarea[name=text]", NEWS)
    take(page, "write")
    river = page.context.new_page()
    if not has(broker, river, "/river/feeds"):
        return
    river.fill("input[name=url]", f"{PUBLIC_URL}/people/myself/rss.xml")
    river.click("button:text('Follow')")
    river.goto(f"{broker.url}/river")
    river.wait_for_selector(f"main :text('{MESSAGES[0]}')")
    page.click("#message button[value=post]")
    if river.is_visible("#river-show"):
        river.click("#river-show")
    river.wait_for_selector(f"main :text('{NEWS}')")
    take(river, "river")


def be_busy(broker: Broker) -> None:
    """Have something to show in the log."""
    origin, receiver = Origin(), HttpPostReceiver()
    for server in (origin, receiver):
        server.start()
    feed = origin.feed()
    broker.subscribe(receiver, feed)
    origin.change(feed)
    broker.ping(feed)
    site = {"name": "Scripting News", "url": "http://scripting.example/"}
    post_form(f"{broker.url}/pingSiteForm", site)


def of_ten_pages() -> None:
    """Pictures of ten pages that anybody may see, as small and large screens show them."""
    busy = busy_broker()
    SCREENSHOTS.mkdir(exist_ok=True)
    for shown in (each for each in PAGES if each.name in TEN):
        for width in (PHONE, DESK):
            for scheme in SCHEMES:
                context = shared_browser().new_context(
                    viewport={"width": width, "height": HEIGHT}, color_scheme=scheme
                )
                page = context.new_page()
                page.goto(shown.url(busy.broker, busy.feed))
                path = SCREENSHOTS / f"{shown.name}-{width}-{scheme}.png"
                page.screenshot(path=path, full_page=True, animations="disabled", caret="hide")
                context.close()
    sys.stdout.write(f"{SCREENSHOTS}\n")


def of_the_design() -> None:
    """Pictures of the components, in both colour modes, for the page of the manual about them."""
    busy = busy_broker()
    paths = {each.name: each.url(busy.broker, busy.feed) for each in PAGES}
    for scheme in SCHEMES:
        page = shared_browser().new_page(viewport=WINDOW, color_scheme=scheme)
        for name, (shown, selector) in COMPONENTS.items():
            page.goto(paths[shown])
            path = PICTURES / "design" / f"{name}-{scheme}.png"
            page.locator(selector).first.screenshot(path=path, animations="disabled")
            sys.stdout.write(f"{path}\n")
        page.close()


def main() -> None:
    """Make all pictures."""
    of_ten_pages()
    of_the_design()
    with TemporaryDirectory() as directory:
        options = ("--local", "--public-url", PUBLIC_URL)
        broker = Broker(Path(directory), "[apps.test_feed]\n", options)
        try:
            for ahead in STARTS:
                if broker.running:
                    broker.stop()
                broker.start(ahead)
            context = shared_browser().new_context(viewport=WINDOW, color_scheme="light")
            page = context.new_page()
            page.goto(f"{broker.url}/")
            take(page, "start-page")
            signed_in(broker, page)
            write_and_read(broker, page)
            be_busy(broker)
            for name, path in (("test-feed", "/test"), ("log", "/log")):
                if has(broker, page, path):
                    take(page, name)
        finally:
            broker.end()


if __name__ == "__main__":
    main()
