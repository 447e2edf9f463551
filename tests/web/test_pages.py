"""Pages for people: their look, their slots, and that nothing gets out of a slot."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from lxml import html
from twisted.internet.defer import Deferred
from twisted.python.filepath import FilePath
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

import rsscloud_broker.web
from rsscloud_broker.interfaces import IFrontDoor, IPages
from rsscloud_broker.testing import front_door_parts
from rsscloud_broker.web.front_page import FrontPageDoor, FrontPageOptions
from rsscloud_broker.web.pages import Pages
from tests.front_doors.fixture import ALL_DOORS, PUBLIC_URL, House

BAD = '<script>alert("x")</script>&amp;\''


class PagesTests(SynchronousTestCase):
    def render(self, title: str, template: str, **slots: str) -> Any:
        """The parsed page."""
        rendering: Coroutine[Any, Any, bytes] = Pages().render(title, template, **slots)
        document = self.successResultOf(Deferred.fromCoroutine(rendering))
        self.assertTrue(document.startswith(b"<!DOCTYPE html>\n<html"))
        return html.document_fromstring(document.decode())

    def test_interface(self) -> None:
        self.assertTrue(verifyObject(IPages, Pages()))

    def test_frame(self) -> None:
        page = self.render("A title", "ping_form.html")
        self.assertEqual(page.get("lang"), "en")
        self.assertEqual(page.findtext(".//title"), "A title")
        self.assertEqual(page.xpath("//link/@href"), ["/style.css"])
        self.assertEqual(page.xpath("//header//a/@href"), ["/"])

    def test_slots_are_escaped(self) -> None:
        page = self.render(BAD, "ping_taken.html", message=BAD, name=BAD, url=BAD)
        self.assertEqual(page.findtext(".//title"), BAD)
        self.assertEqual(
            [found.text for found in page.xpath("//strong | //code | //h1")], [BAD] * 3
        )
        self.assertEqual(page.xpath("//script"), [])

    def test_a_template_can_be_rendered_again(self) -> None:
        for message in ("first", "second"):
            page = self.render("No ping", "ping_refused.html", message=message)
            self.assertEqual(page.xpath("string(//p[@class='lead'])"), message)

    def test_pages_load_nothing_from_elsewhere(self) -> None:
        """What the Content-Security-Policy forbids is not tried."""
        slots = dict.fromkeys([*ALL_DOORS, "url", "domain", "port", "protocols"], "x")
        slots |= {"message": "m", "name": "n", "hub": "h"}
        folder = FilePath(rsscloud_broker.web.__file__).parent()
        templates = [path.basename() for path in folder.globChildren("*.html")]
        self.assertIn("front_page.html", templates)
        for template in set(templates) - {"frame.html"}:
            page = self.render("t", template, **slots)
            self.assertEqual(page.xpath("//script | //style | //img | //iframe | //@style"), [])
            handlers = [name for name in page.xpath("//@*") if name.attrname.startswith("on")]
            self.assertEqual(handlers, [])
            for link in page.xpath("//@href | //@src | //@action"):
                self.assertTrue(link.startswith("/") and not link.startswith("//"), link)


class FrontPageTests(SynchronousTestCase):
    def page(self, path: str, doors: frozenset[str] = ALL_DOORS) -> Any:
        answer = House(self, doors=doors).get(path)
        self.assertEqual(
            (answer.status, answer.headers["content-type"]), (200, "text/html; charset=utf-8")
        )
        return html.document_fromstring(answer.text)

    def test_interface(self) -> None:
        door = FrontPageDoor(FrontPageOptions(), House(self).parts)
        self.assertTrue(verifyObject(IFrontDoor, door))

    def test_endpoints_and_links(self) -> None:
        page = self.page("/")
        text = page.text_content()
        for endpoint in ("/rsscloud/pleaseNotify", "/rsscloud/ping", "/RPC2", "/soap"):
            self.assertIn(f"POST {PUBLIC_URL}{endpoint}", text)
        self.assertIn("http-post, https-post, soap, xml-rpc", text)
        links = page.xpath("//@href")
        for link in ("/changes.xml", "/shortChanges.xml", "/pingSiteForm", "/docs", "/soap?wsdl"):
            self.assertIn(link, links)

    def test_every_link_leads_somewhere(self) -> None:
        house = House(self)
        for path in ("/", "/docs", "/pingSiteForm"):
            page: Any = html.document_fromstring(house.get(path).text)
            for _element, _attribute, link, _position in page.iterlinks():
                # A change list that has not been made yet is a 503.
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

    def test_half_a_hub_is_not_shown(self) -> None:
        parts = front_door_parts(running=frozenset({"websub"}))
        for route in FrontPageDoor(FrontPageOptions(), parts).routes()[:2]:
            page: Any = route.resource
            self.assertNotIn(b"/websub", page.data, route.path)

    def test_the_style_sheet(self) -> None:
        answer = House(self).get("/style.css")
        self.assertEqual(answer.headers["content-type"], "text/css; charset=utf-8")
        self.assertIn("--accent", answer.text)
        self.assertNotIn("url(", answer.text)
