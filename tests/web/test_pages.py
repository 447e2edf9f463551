"""The HTML pages: their frame, their slots, the escaping of texts, and their styles."""

from __future__ import annotations

import gzip
import re
import struct
from collections.abc import Coroutine
from typing import Any
from unittest import mock

from attrs import evolve, frozen
from lxml import etree, html
from twisted.python.filepath import FilePath
from twisted.trial.unittest import SynchronousTestCase

import rsscloud_broker.web
from rsscloud_broker.core.following import Following
from rsscloud_broker.http.site import Root
from rsscloud_broker.interfaces import Account, Caller, ICallers
from rsscloud_broker.model.administration import Announcement
from rsscloud_broker.plugins import bundled
from rsscloud_broker.testing import FakeCallers, front_door_parts
from rsscloud_broker.web.assets import ASSETS
from rsscloud_broker.web.doctor import DoctorOptions
from rsscloud_broker.web.front_page import FrontPageDoor, FrontPageOptions
from rsscloud_broker.web.navigation import PLACES
from rsscloud_broker.web.pages import PageRenderer
from rsscloud_broker.wire.change_list import closing, opening
from tests.front_doors.exchange import Answer
from tests.front_doors.fixture import ALL_DOORS, PUBLIC_URL, House, HouseTestCase

#: The slots of the rssCloud templates.
RSSCLOUD_SLOTS = ("message", "url", "url1", "domain", "port", "path", "notifyProcedure")


BAD = '<script>alert("x")</script>&amp;\''


@frozen
class Announcements(Following):
    """Announcements that do not change."""

    shown: list[Announcement]

    def current(self) -> list[Announcement]:
        return self.shown


class PagesTests(SynchronousTestCase):
    def render(self, title: str, template: str, **slots: str) -> Any:
        """The parsed page."""
        return self.parsed(PageRenderer(lambda: {"/"}).render(title, template, **slots))

    def parsed(self, rendering: Coroutine[Any, Any, bytes]) -> Any:
        """The parsed page that a coroutine renders."""
        document = self.successResultOf(rendering)
        self.assertTrue(document.startswith(b"<!DOCTYPE html>\n<html"))
        return html.document_fromstring(document.decode())

    def test_frame(self) -> None:
        page = self.render("A title", "error.html", heading="h", message="m")
        self.assertEqual(page.get("lang"), "en")
        self.assertEqual(page.findtext(".//title"), "A title")
        self.assertEqual(page.xpath("//link[@rel='stylesheet']/@href"), ["/style.css"])
        self.assertEqual(page.xpath("//link[@rel='icon']/@href"), ["/favicon.ico", "/favicon.svg"])
        self.assertEqual(page.xpath("//header//a/@href"), ["/"])
        self.assertEqual(page.xpath("//meta[@name='color-scheme']/@content"), ["light dark"])
        (skip,) = page.xpath("//body/a[1]")
        self.assertEqual(page.xpath(f"//main[@id='{skip.get('href')[1:]}']/h1/text()"), ["h"])

    def test_announcements(self) -> None:
        current = [Announcement(text, 1.0, None, "alice") for text in ("We move.", BAD)]
        pages = PageRenderer(announcements=Announcements(current))
        page = self.parsed(pages.render("t", "error.html", heading="h", message="m"))
        (aside,) = page.xpath("//aside[@aria-label='Announcements']")
        self.assertEqual(aside.xpath("p[@class='notice']/text()"), ["We move.", BAD])
        for nothing in (None, Announcements([])):
            pages = PageRenderer(announcements=nothing)
            page = html.document_fromstring(pages.error(404, "m").decode())
            self.assertEqual(page.xpath("//aside"), [])

    def test_navigation(self) -> None:
        """It has the pages that are served, and marks the one that is open."""
        pages = PageRenderer(lambda: {"/", "/pingSiteForm", "/docs", "/log", "/no_page"})
        for here, current in (("/docs", ["/docs"]), ("", []), ("/elsewhere", [])):
            page = self.parsed(pages.render("t", "error.html", heading="h", message="m", here=here))
            links = page.xpath("//header/nav//a/@href")
            self.assertEqual(links, ["/pingSiteForm", "/log", "/docs"])
            menus = page.xpath("//header/nav/ul/li/details/summary/text()")
            self.assertEqual(menus, ["Publish", "Watch"])
            self.assertEqual(page.xpath("//a[@aria-current='page']/@href"), current)
        page = self.parsed(pages.render("t", "error.html", heading="h", message="m", here="/log"))
        self.assertEqual(page.xpath("//summary[@class='here']/text()"), ["Watch"])
        nothing = self.parsed(PageRenderer().render("t", "error.html", heading="h", message="m"))
        self.assertEqual(nothing.xpath("//nav"), [])
        self.assertEqual(nothing.xpath("//header//a | //footer//a"), [])
        self.assertEqual(nothing.xpath("string(//header)").strip(), "rsscloud-broker")

    def test_links_lead_to_pages(self) -> None:
        """Whichever front doors run, and however they are set, no link leads to nothing."""
        for doors, options in (
            (ALL_DOORS, {}),
            (ALL_DOORS - {"front_page"}, {}),
            (ALL_DOORS, {"doctor": DoctorOptions(examine_feeds=False)}),
            (frozenset({"event_log"}), {}),
        ):
            house = House(self, doors=doors, options=options)
            paths = {*PLACES, "/"}
            served = {path for path in paths if house.get(path).status == 200}
            for path in served:
                page = house.get(path).html
                linked = set(page.xpath("//header//a/@href | //footer//a/@href"))
                self.assertEqual(linked, served, path)
                for file in page.xpath("//link/@href | //script/@src"):
                    self.assertEqual(house.get(file).status, 200, file)

    def test_slots_are_escaped(self) -> None:
        page = self.render(BAD, "ping_accepted.html", message=BAD, name=BAD, url=BAD)
        self.assertEqual(page.findtext(".//title"), BAD)
        shown = page.xpath("//h1 | //strong/bdi | //p[@class='lead']/span")
        self.assertEqual([found.text for found in shown], [BAD] * 3)
        page = self.render("t", "ping_form.html", message=BAD, name=BAD, url=BAD, rssUrl=BAD)
        self.assertEqual(page.xpath("//input/@value"), [BAD] * 3)
        self.assertEqual(page.xpath("//main//script"), [])

    def test_links_to_the_web_only(self) -> None:
        good = ("http://a.example/?<>", "HTTPS://a.example/")
        bad = ("javascript:alert(1)", " http://a.example/", "data:text/html,http://a.example/")
        for url in (*good, *bad, "//a.example/", ""):
            page = self.render("t", "ping_accepted.html", message="m", name="n", url=url)
            links = page.xpath("//p[@class='lead']//a")
            self.assertEqual([link.get("href") for link in links], [url] if url in good else [])
            for link in links:
                self.assertEqual(link.get("rel"), "nofollow ugc noopener")

    def test_options(self) -> None:
        slots = dict.fromkeys(RSSCLOUD_SLOTS, "")
        for chosen in ("soap", "xml-rpc"):
            slots |= {"protocols": "soap xml-rpc", "protocol": chosen}
            page = self.render("t", "rsscloud.html", **slots)
            self.assertEqual(page.xpath("//select//option/@value"), ["soap", "xml-rpc"])
            self.assertEqual(page.xpath("//select//option[@selected]/@value"), [chosen])

    def test_an_error(self) -> None:
        pages = PageRenderer(lambda: {"/", "/docs"})
        page: Any = html.document_fromstring(pages.error(404, BAD).decode())
        self.assertEqual(page.xpath("string(//h1)"), "There is nothing at this address")
        self.assertEqual(page.xpath("string(//p[@class='lead'])"), BAD)
        self.assertEqual(page.xpath("//main//a/@href"), ["/", "/docs"])
        other: Any = html.document_fromstring(PageRenderer().error(418, "m").decode())
        self.assertEqual(other.xpath("string(//h1)"), "The request did not work")
        self.assertEqual(other.xpath("//a[@href!='#content']"), [])  # there are no such pages

    def test_pages_load_nothing_from_elsewhere(self) -> None:
        """The pages load nothing that the Content-Security-Policy forbids."""
        folder = FilePath(rsscloud_broker.web.__file__).parent()
        templates = {path.basename(): path for path in folder.globChildren("*.html")}
        self.assertIn("front_page.html", templates)
        text = "".join(path.getContent().decode() for path in templates.values())
        named = re.findall(r'<t:slot name="(\w+)"|\b(?:when|to|of|chosen)="(\w+)"', text)
        slots = {name: "x" for pair in named for name in pair if name}
        links = ("topic_link", "log_link", "action", "river_url", "write_url")
        slots |= dict.fromkeys(links, "/x?y=z")
        del slots["title"], slots["content"], slots["navigation"]
        for template in templates.keys() - {"frame.html"}:
            page = self.render("t", template, **slots)
            self.assertEqual(page.xpath("//style | //img | //iframe | //@style"), [])
            self.assertEqual(page.xpath("//script[not(@src)] | //script/text()"), [])
            handlers = [name for name in page.xpath("//@*") if name.attrname.startswith("on")]
            self.assertEqual(handlers, [])
            for link in page.xpath("//@href | //@src | //@action"):
                if link.startswith("#"):
                    self.assertEqual(len(page.xpath("//*[@id=$it]", it=link[1:])), 1, link)
                    continue
                self.assertTrue(link.startswith("/") and not link.startswith("//"), link)


class FrontPageTests(SynchronousTestCase):
    def page(self, path: str, doors: frozenset[str] = ALL_DOORS) -> Any:
        return House(self, doors=doors).get(path).page()

    def test_endpoints_and_links(self) -> None:
        page = self.page("/")
        text = page.text_content()
        for endpoint in ("/rsscloud/pleaseNotify", "/rsscloud/ping", "/RPC2", "/soap"):
            self.assertIn(f"POST {PUBLIC_URL}{endpoint}", text)
        self.assertIn("http-post, https-post, soap, xml-rpc", text)
        self.assertEqual(page.findtext(".//h1"), "Tell feed readers the moment your site changes.")
        links = page.xpath("//@href")
        for link in ("/changes.xml", "/shortChanges.xml", "/pingSiteForm", "/docs", "/soap?wsdl"):
            self.assertIn(link, links)

    def test_every_link_leads_somewhere(self) -> None:
        paths = ("/", "/docs", "/pingSiteForm", "/rssCloud")
        for doors, served in ((ALL_DOORS, paths), (frozenset({"front_page"}), paths[:2])):
            house = House(self, doors=doors)
            for path in served:
                for _element, attribute, link, _position in house.get(path).html.iterlinks():
                    if attribute == "action" or link.startswith("#"):
                        continue  # a form is sent to this path by POST; # stays on the page
                    # A change list that has not been written yet is answered with 503.
                    self.assertIn(house.get(link).status, {200, 503}, link)

    def test_only_what_runs_is_shown(self) -> None:
        marks = {
            "rsscloud": "/rsscloud/ping",
            "ping_sink": "/pingSiteForm",
            "change_lists": "/changes.xml",
            "websub": "/websub",
        }
        for path in ("/", "/docs"):
            for running in (*({name} for name in marks), set(marks), set()):
                page = self.page(path, frozenset({"front_page", *running}))
                shown = page.xpath("string(//main)") + " ".join(page.xpath("//main//@href"))
                found = {name for name, mark in marks.items() if mark in shown}
                self.assertEqual(found, running, path)

    def test_nothing_is_below_the_help(self) -> None:
        for path in ("/docs/nonexistent", "/docs/a/b.html"):
            self.assertEqual(House(self).get(path).status, 404)
        self.assertEqual(House(self).get("/docs/").status, 200)

    def test_a_version_is_sent_once(self) -> None:
        house = House(self)
        for path in ("/", "/docs"):
            tag = house.get(path).headers["etag"]
            again = house.ask("GET", path, headers={"If-None-Match": tag})
            self.assertEqual((again.status, again.body), (304, b""))
            self.assertEqual(house.ask("HEAD", path).headers["etag"], tag)

    def test_the_cloud_of_a_broker_with_tls(self) -> None:
        url, running = "https://broker.example:8443", frozenset({"rsscloud"})
        parts = front_door_parts(running=running, public_url=url, pages=PageRenderer())
        door = FrontPageDoor(FrontPageOptions(), parts)
        page = House(self, root=Root([door], PUBLIC_URL)).get("/docs").html
        self.assertIn(
            '<cloud domain="broker.example" port="8443" path="/rsscloud/pleaseNotify" '
            'registerProcedure="" protocol="https-post" />',
            page.xpath("//pre/text()"),
        )

    def test_half_a_hub_is_not_shown(self) -> None:
        parts = front_door_parts(running=frozenset({"websub"}), pages=PageRenderer())
        door = FrontPageDoor(FrontPageOptions(), parts)
        house = House(self, root=Root([door], PUBLIC_URL))
        for path in ("/", "/docs"):
            self.assertNotIn("/websub", house.get(path).text, path)


class ViewerTests(SynchronousTestCase):
    """Every page says who has signed in, and no cache keeps it."""

    def pages(self, callers: ICallers | None) -> dict[str, Answer]:
        doors = ALL_DOORS | {"public_lists", "stats"}
        pages = PageRenderer(lambda: root.pages | {"/signin"})
        parts = evolve(House(self, doors=doors).parts, callers=callers, pages=pages)
        makers = [getattr(bundled, name) for name in sorted(doors)]
        root = Root([maker.make(maker.options(), parts) for maker in makers], PUBLIC_URL)
        house = House(self, root=root)
        paths = (
            *("/", "/docs", "/log", "/topic", "/topic?url=x", "/changes", "/stats", "/doctor"),
            *("/pingSiteForm", "/rssCloud", "/websub"),
        )
        return {path: house.ask("GET", path) for path in paths}

    def test_who_has_signed_in(self) -> None:
        caller = Caller(Account(1, "dave", False, 1.0), frozenset(), "token")
        for path, answer in self.pages(FakeCallers(caller)).items():
            page = answer.html
            self.assertEqual(page.xpath("string(//header/div/details/summary)"), "dave", path)
            self.assertEqual(page.xpath("//nav//a[@href='/signin']"), [], path)
            self.assertEqual(answer.headers["cache-control"], "no-store", path)

    def test_strangers(self) -> None:
        for path, answer in self.pages(None).items():
            page = answer.html
            self.assertEqual(page.xpath("//header//a[@href='/account']"), [], path)
            self.assertEqual(len(page.xpath("//nav//a[@href='/signin']")), 1, path)


class RecentPingsTests(HouseTestCase):
    """The front page shows the most recent pings."""

    def ping(self, name: str, url: str = "http://site.example/") -> None:
        answer = self.house.get("/pingSiteForm", name=name, url=url)
        self.assertEqual(answer.status, 200)

    def items(self) -> Any:
        return self.house.get("/").html.xpath("//ul[@class='pings']/li")

    def test_none_yet(self) -> None:
        self.assertIn("There was no ping yet.", self.house.get("/").text)

    def test_name_link_and_age(self) -> None:
        self.ping("A", "https://a.example/?a=1&b=2")
        ages = []
        for seconds in (0, 60, 3600, 86_400, 86_400):
            self.house.clock.advance(seconds)
            (item,) = self.items()
            ages.append(item.xpath("string(time)"))
        later = ["1 minute ago", "1 hour ago", "1 day ago", "2 days ago"]
        self.assertEqual(ages, ["just now", *later])
        self.assertEqual(item.xpath("time/@datetime"), ["2026-09-29T12:00:00Z"])
        self.assertEqual(item.xpath("a/@href"), ["https://a.example/?a=1&b=2"])
        self.assertEqual(item.xpath("string(a)"), "A")

    def test_ten_at_most(self) -> None:
        for number in range(12):
            self.ping(f"Site {number}")
        names = [item.xpath("string(a)") for item in self.items()]
        self.assertEqual(names, [f"Site {number}" for number in range(11, 1, -1)])

    def test_hostile_names(self) -> None:
        self.ping(BAD)
        self.ping("W" * 1000, f"http://site.example/{'a' * 200}")
        long, bad = self.items()
        self.assertEqual(bad.xpath("string(a/bdi)"), '<script>alert("x")</script>&\'')
        self.assertEqual(long.xpath("string(a/bdi)"), f"{'W' * 79}…")
        self.assertEqual(long.xpath("a/@href"), [f"http://site.example/{'a' * 200}"])
        self.assertLess(len(long.text_content()), 200)

    def test_many_views_make_one_query(self) -> None:
        self.ping("A")
        asked = mock.Mock(wraps=self.house.store.pings)
        self.patch(self.house.store, "pings", asked)
        for _ in range(20):
            self.assertEqual(len(self.items()), 1)
        self.assertEqual(asked.call_count, 1)
        self.house.clock.advance(1)
        self.items()
        self.assertEqual(asked.call_count, 2)

    def test_without_a_store(self) -> None:
        """If the store is unavailable, the rest of the page is still there."""
        self.house.break_store()
        answer = self.house.get("/")
        self.assertEqual(answer.status, 200)
        self.assertIn("Addresses for sites", answer.text)
        # What only programmers need is folded.
        self.assertLess(answer.text.index('<details class="folded">'), answer.text.index("/RPC2"))
        self.assertNotIn("Newest changes", answer.text)

    def test_what_it_did_today(self) -> None:
        """Since midnight; not more often than once in a while, however often it is opened."""
        numbers = {"pings": 3, "fetches.changed": 1, "fetches.unchanged": 7}
        numbers |= {"deliveries.http-post.delivered": 1200, "deliveries.websub.delivered": 5}
        numbers["deliveries.websub.failed"] = 9
        put = self.house.store.add_statistics
        yesterday, today = self.house.clock.wall_seconds() - 86_400, self.house.clock.wall_seconds()
        for at in (yesterday, today - 60):
            self.successResultOf(put(at, numbers, {}))
        page = self.house.get("/").html
        said = page.xpath("string(//p[@class='today']/b)")
        self.assertEqual(said, "3 pings, 1 change, 1,205 notifications")
        self.successResultOf(put(today - 60, numbers, {}))
        self.house.clock.advance(5)
        self.assertIn("3 pings", self.house.get("/").text)
        self.house.clock.advance(20)
        self.assertNotIn("3 pings", self.house.get("/").text)

    def test_not_wanted(self) -> None:
        options = FrontPageOptions(recent_pings=False)
        self.house = House(self, options={"front_page": options})
        self.ping("A")
        self.assertNotIn("Newest changes", self.house.get("/").text)

    def test_announcements_appear_and_go(self) -> None:
        """Also without a list of pings, and while the list stays the same."""
        for recent_pings in (True, False):
            shown: list[Announcement] = []
            parts = front_door_parts(pages=PageRenderer(announcements=Announcements(shown)))
            door = FrontPageDoor(FrontPageOptions(recent_pings), parts)
            house = House(self, root=Root([door], PUBLIC_URL))
            clock: Any = parts.clock
            for announcements, number in (([], 0), (["We move."], 1), ([], 0)):
                shown[:] = [Announcement(text, 1.0, None, "alice") for text in announcements]
                clock.advance(1)
                self.assertEqual(house.get("/").text.count("We move."), number)


class AssetsTests(SynchronousTestCase):
    def test_each_is_served(self) -> None:
        house = House(self)
        table = {
            "/style.css": "text/css",
            "/changes.css": "text/css",
            "/page.js": "text/javascript",
            "/log.js": "text/javascript",
            "/sign_in_link.js": "text/javascript",
            "/favicon.svg": "image/svg+xml",
            "/favicon.ico": "image/x-icon",
        }
        self.assertEqual({f"/{name}" for name in ASSETS}, set(table))
        for path, kind in table.items():
            answer = house.get(path)
            self.assertEqual((answer.status, answer.headers.get_content_type()), (200, kind))
            self.assertRegex(answer.headers["cache-control"], r"^public, max-age=(3600|86400)$")
            tag = {"If-None-Match": answer.headers["etag"]}
            again = house.ask("GET", path, headers=tag)
            self.assertEqual((again.status, again.body), (304, b""))
            other = house.ask("GET", path, headers={"If-None-Match": '"other"'})
            self.assertEqual((other.status, other.body), (200, answer.body))

    def test_compressed(self) -> None:
        """Style sheets travel compressed; either form has an ETag of its own."""
        house = House(self)
        plain = house.get("/style.css")
        asked = {"Accept-Encoding": "gzip"}
        packed = house.ask("GET", "/style.css", headers=asked)
        self.assertEqual(gzip.decompress(packed.body), plain.body)
        self.assertEqual(packed.headers["content-encoding"], "gzip")
        for answer in (plain, packed):
            self.assertEqual(answer.headers["vary"], "Accept-Encoding")
            self.assertEqual(answer.headers["content-length"], str(len(answer.body)))
        asked["If-None-Match"] = packed.headers["etag"]
        self.assertEqual(house.ask("GET", "/style.css", headers=asked).status, 304)
        asked["If-None-Match"] = plain.headers["etag"]
        self.assertEqual(house.ask("GET", "/style.css", headers=asked).status, 200)

    def test_icons(self) -> None:
        house = House(self)
        self.assertEqual(house.get("/favicon.svg").xml.tag, "{http://www.w3.org/2000/svg}svg")
        icon = house.get("/favicon.ico").body
        count, width, height = struct.unpack("<4xHBB", icon[:8])
        size, offset = struct.unpack("<8xII", icon[6:22])
        self.assertEqual((icon[:4], count, width, height), (b"\0\0\1\0", 1, 32, 32))
        self.assertTrue(icon[offset : offset + size].startswith(b"\x89PNG"))
        self.assertEqual(len(icon), offset + size)

    def test_style_sheets_load_nothing(self) -> None:
        for name in ("style.css", "changes.css"):
            sheet = House(self).get(f"/{name}").text
            self.assertNotIn("url(", sheet)
            self.assertNotIn("@import", sheet)

    def test_the_style_sheet_of_change_lists(self) -> None:
        """It is at the path that change lists name, and has rules for their elements."""
        lines = opening(0.0, 1) + closing(0)
        found: Any = etree.fromstring(lines).xpath("/processing-instruction()")
        (instruction,) = found
        sheet = House(self).get(instruction.get("href"))
        self.assertEqual((sheet.status, instruction.get("type")), (200, "text/css"))
        for element in ("weblogUpdates::before", "weblog::before", "attr(url)"):
            self.assertIn(element, sheet.text)

    def test_contrast(self) -> None:
        """Texts have enough contrast in light and dark mode (WCAG 2.2, 1.4.3 and 1.4.11)."""
        light, dark = _colours(House(self).get("/style.css").text)
        for colours in (light, dark):
            for text in ("text", "quiet", "accent", "warning"):
                for ground in ("ground", "tint"):
                    contrast = _contrast(colours[text], colours[ground])
                    self.assertGreaterEqual(contrast, 4.5, (text, ground))


def _colours(sheet: str) -> list[dict[str, str]]:
    """The colours of a style sheet by name: those of light mode, then those of dark mode."""
    return [
        dict(re.findall(r"--([a-z]+): (#[0-9a-f]{6});", block))
        for block in re.findall(r":root \{(.*?)\}", sheet, re.DOTALL)
    ]


def _contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours (WCAG 2.2)."""
    darker, lighter = sorted(map(_luminance, (one, other)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    shares = [value / 255 for value in bytes.fromhex(colour[1:])]
    red, green, blue = (
        share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
