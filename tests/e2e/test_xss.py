"""What strangers write never becomes a part of a page: looked at in a real browser.

The browser ignores the policy of the pages (CSP) here, so that a payload that is not escaped runs.
That the policy forbids it as well is tested elsewhere.
"""

from __future__ import annotations

import re
from html import escape
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from tests.e2e.browser import SMALL, BrowserTestCase, Watch, overflowing
from tests.e2e.every_page import PAGES
from tests.e2e.fixture import Broker, request, until
from tests.e2e.hostile import (
    PAYLOADS,
    HostileOrigin,
    HostileReceiver,
    attack,
    in_url,
    ping,
    text,
    together,
)
from tests.xss_payloads import ACTIVE

#: What is shown besides pages, and comes from the same strangers.
_FILES: Final = ("/changes.xml", "/shortChanges.xml", "/stats.json")

#: The fields of forms that keep what was filled in.
_PING: Final = ("name", "url", "rssUrl")
_REGISTRATION: Final = ("url", "url1", "protocol", "domain", "port", "path", "notifyProcedure")

#: What a payload has changed in a page: sentences.  A page has one of each part of the frame, no
#: elements that nobody put into a template, no handlers, and links to the web only.  A text that
#: changes the direction of writing is alone in its paragraph, cell or <bdi>: it turns nothing else.
CHANGED: Final = r"""
() => {
    if (document.querySelector('parsererror')) return ['it is not well-formed'];
    const all = [...document.querySelectorAll('*')];
    if (document.contentType.endsWith('/xml')) {
        return all.filter(each => !['weblogUpdates', 'weblog'].includes(each.tagName))
            .map(each => `there is an element ${each.tagName}`);
    }
    if (document.contentType !== 'text/html') return [];
    const faults = [];
    const frame = 'html, head, head title, body, header, header nav, main, h1, footer';
    for (const part of frame.split(', ')) {
        const parts = document.querySelectorAll(part).length;
        if (parts !== 1) faults.push(`there are ${parts} elements ${part}`);
    }
    const foreign = 'base, meta[http-equiv], style, link:not([href^="/"]), script:not([src^="/"]),'
        + ' iframe, object, embed, img, video, audio, math, template, svg:not(figure svg)';
    for (const each of document.querySelectorAll(foreign)) {
        faults.push(`there is ${each.outerHTML}`);
    }
    for (const element of all) {
        for (const {name, value} of element.attributes) {
            if (/^(on|style$|srcdoc$|autofocus$|formaction$)/.test(name)) {
                faults.push(`an element has ${name}=${value}`);
            }
            if (/^(href|src|action|xlink:href)$/.test(name)) {
                const {protocol, host} = new URL(value, location);
                const fits = name === 'href' || host === location.host;
                if (!/^https?:$/.test(protocol) || !fits) faults.push(`${name} is ${value}`);
            }
        }
    }
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const {data, parentElement} = walker.currentNode;
        if (!/[\u202a-\u202e\u2066-\u2069]/.test(data)) continue;
        let own = parentElement;
        while (getComputedStyle(own).unicodeBidi !== 'isolate') own = own.parentElement;
        if (own.textContent.trim() !== data.trim()) {
            faults.push(`the direction of writing changes in ${own.outerHTML}`);
        }
    }
    return faults;
}
"""

#: What a page would be that escapes nothing.
_UNESCAPED: Final = (
    "<title>{0}</title><body>{0}<input value=\"{0}\"><input value='{0}'>"
    "<textarea>{0}</textarea><!-- {0} --><a href=\"{0}\">x</a><a href='{0}'>x</a>"
)

#: Does in such pages, each in a frame, what people do: click and go from field to field.
_USE_FRAMES: Final = """
for (const {contentDocument} of document.querySelectorAll('iframe')) {
    contentDocument?.querySelectorAll('[autofocus]').forEach(each => each.focus());
    contentDocument?.querySelectorAll('a').forEach(
        each => each.dispatchEvent(new MouseEvent('click', {bubbles: true, cancelable: true}))
    );
}
"""


#: Fills in a form without its rules, each field with the next of some values, and sends it.
_SEND: Final = """
([number, values]) => {
    const form = document.querySelectorAll('main form')[number];
    const fields = [...form.elements].filter(each => each.name && each.type !== 'hidden');
    fields.forEach((each, index) => {
        if (each.tagName === 'SELECT') each.append(new Option('', values[index], true, true));
        else each.value = values[index % values.length];
    });
    form.submit();
}
"""

#: The number of a payload that has run or loaded something.
_NUMBER: Final = re.compile(r"(?:xss\(|canary\.example/)\D*(\d+)")


class XSSTestCase(BrowserTestCase):
    """Opens pages, and collects what payloads have done in them.

    :cvar changed: the script that finds what a payload has changed in a page.
    """

    changed = CHANGED

    def setUp(self) -> None:
        super().setUp()
        self.faults: list[str] = []
        self.tab = self.page(SMALL, bypass_csp=True)

    def attacked(self, broker: Broker) -> None:
        """Look at the pages of a broker from now on."""
        self.broker = broker
        self.watch = Watch(urlsplit(broker.url).netloc)
        self.watch.attach(self.tab.context)

        def run(source: object, *numbers: Any) -> None:
            self.watch.faults.append(f"a script ran: xss({numbers})")

        self.tab.context.expose_binding("xss", run)

    def look(self, path: str) -> None:
        """Open a page, and inspect it."""
        self.tab.goto(self.broker.url + path)
        self.inspect(path)

    def inspect(self, what: str) -> None:
        """Collect what payloads have done in the page that is open."""
        found = [*self.tab.evaluate(self.changed), *self.watch.faults]
        if self.tab.evaluate("document.contentType") == "text/html":
            found += overflowing(self.tab)
        if urlsplit(self.tab.url).netloc != self.watch.host:
            found.append(f"it led to {self.tab.url}")
        self.watch.faults.clear()
        self.faults += [f"{what}: {each}" for each in found]


class StoredTests(XSSTestCase):
    """What strangers have sent, shown to others later."""

    def test_every_page(self) -> None:
        self.attacked(self.running_broker())
        origin, receiver = self.served(HostileOrigin()), self.served(HostileReceiver())
        for payloads in together(10):  # so many pings are on the front page
            for payload in payloads:
                ping(self.broker, payload)
            self.look("/")
        attack(self.broker, origin, receiver)
        self.assertIn("xss(", self.tab.inner_text(".pings"))
        self.broker.stop()
        self.broker.start(ahead=120)  # the statistics have whole minutes only
        for path in (page.path for page in PAGES):
            for feed in origin.urls if "{feed}" in path else [""]:
                self.look(path.format(feed=quote(feed, safe="")))
        for path in _FILES:
            self.look(path)
        self.assertEqual(self.faults, [])
        self.assertIn("xss(", request(f"{self.broker.url}/changes.xml").text)
        self.assertIn("stranger.example", request(f"{self.broker.url}/stats?period=hour").text)


class ReflectedTests(XSSTestCase):
    """What a stranger has put into a link or a form, shown to everybody who follows it."""

    def setUp(self) -> None:
        super().setUp()
        self.attacked(self.shared_broker())

    def test_queries(self) -> None:
        for payloads in together(7):
            one, *_ = payloads
            name = " ".join(map(text, payloads))[:1024]
            self.look(f"/pingSiteForm?{urlencode({'name': name, 'url': in_url(one)})}")
            self.look(f"/search?{urlencode({'q': name})}")
            self.look(f"/host?{urlencode({'name': name})}")
            self.look(f"/rssCloud?{urlencode(dict(zip(_REGISTRATION, payloads, strict=False)))}")
        for payloads in together(3):
            self.look(f"/pingSiteForm?{urlencode(dict(zip(_PING, payloads, strict=False)))}")
        self.assertEqual(self.faults, [])

    def test_paths(self) -> None:
        for payloads in together(10):
            self.look(f"/{quote(b' '.join(payloads), safe='')}")
        self.assertEqual(self.faults, [])

    def test_forms(self) -> None:
        """The fields of every form, filled with what the browser would not have let through."""
        for path in ("/pingSiteForm", "/rssCloud", "/websub"):
            self.tab.goto(self.broker.url + path)
            for number in range(self.tab.locator("main form").count()):
                for payloads in together(7):
                    self.tab.goto(self.broker.url + path)
                    with self.tab.expect_navigation():
                        self.tab.evaluate(_SEND, [number, [*map(text, payloads)]])
                    self.inspect(f"form {number} of {path}")
        self.assertEqual(self.faults, [])


class PayloadsTests(XSSTestCase):
    """The payloads themselves, and whether the tests would notice them."""

    def test_in_pages_that_escape_nothing(self) -> None:
        """Every active payload runs, loads or leads away there, and that is noticed."""
        self.attacked(self.shared_broker())
        pages = [_UNESCAPED.replace("{0}", text(payload)) for payload in PAYLOADS]
        frames = "".join(f'<iframe srcdoc="{escape(page)}"></iframe>' for page in pages)
        url = f"{self.broker.url}/unescaped"
        self.tab.route(url, lambda route: route.fulfill(body=frames, content_type="text/html"))
        self.tab.goto(url)
        self.tab.evaluate(_USE_FRAMES)

        def unnoticed() -> list[bytes]:
            self.tab.evaluate("0")  # lets Playwright say what has happened
            noticed = set(map(int, _NUMBER.findall(" ".join(self.watch.faults))))
            return [PAYLOADS[each] for each in range(len(ACTIVE)) if each not in noticed]

        until(lambda: not unnoticed(), "every payload to be noticed")

    def test_a_page_that_changes(self) -> None:
        """What payloads make of a page is noticed without a script that runs."""
        self.attacked(self.shared_broker())
        for payload, fault in (
            ("</main><main>", "there are 2 elements main"),
            ("<p style='color: red'>", "an element has style=color: red"),
            ("<p onclick='x()'>", "an element has onclick=x()"),
            ("<a href='javascript:x()'>x</a>", "href is javascript:x()"),
            ("<form action='//canary.example/'></form>", "action is //canary.example/"),
            ("<base href='/'>", 'there is <base href="/">'),
            (
                "<p>\u202etxt<b>x</b></p>",
                "the direction of writing changes in <p>\u202etxt<b>x</b></p>",
            ),
            ("<p style='width: 900px'>", "cut off: P "),
        ):
            self.tab.goto(self.broker.url)
            self.tab.evaluate("html => document.querySelector('h1').outerHTML += html", payload)
            found = [*self.tab.evaluate(CHANGED), *overflowing(self.tab)]
            self.assertIn(fault, found)
