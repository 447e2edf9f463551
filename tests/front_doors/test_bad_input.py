"""A table of bad input for all front doors.

Each request gets a clear error of its protocol, and nothing is stored, not even in part.  All that
can be wrong with a document or a field is in the tests of the codecs; here is one of each kind.
"""

from __future__ import annotations

import xmlrpc.client
from collections.abc import Callable
from typing import TypeAlias

from attrs import frozen

from tests.front_doors.exchange import FORM, Answer, call, envelope, form
from tests.front_doors.fixture import FEED, HOME, HouseTestCase

Check: TypeAlias = Callable[[Answer], object]

EXTERNAL = '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/hostname">]>'
LONG = "x" * 5000

URLS = ["", "javascript:alert(1)", "//host/x", LONG]

#: A document that is not closed.
BROKEN = call("rssCloud.ping", FEED)[:-5].encode()


# --- the errors of each protocol -------------------------------------------------------


def is_xmlrpc_fault(answer: Answer) -> bool:
    try:
        xmlrpc.client.loads(answer.body)
    except xmlrpc.client.Fault as fault:
        return answer.status == 200 and bool(fault.faultString)
    return False


def is_flerror(answer: Answer) -> bool:
    ((value,), _) = xmlrpc.client.loads(answer.body)
    return isinstance(value, dict) and value["flerror"] is True and bool(value["message"])


def is_false(answer: Answer) -> bool:
    return xmlrpc.client.loads(answer.body) == ((False,), None)


def is_soap_fault(answer: Answer) -> bool:
    faults = answer.xml.findall(".//faultstring")
    return answer.status == 500 and len(faults) == 1 and bool(faults[0].text)


def is_soap_flerror(answer: Answer) -> bool:
    return answer.status == 200 and answer.xml.findtext(".//flerror") == "true"


def is_rest_failure(answer: Answer) -> bool:
    root = answer.xml
    return answer.status == 200 and root.get("success") == "false" and bool(root.get("msg"))


def is_page_error(answer: Answer) -> bool:
    return 400 <= answer.status < 500 and b"<script>" not in answer.body


# --- the table ------------------------------------------------------------------------


@frozen
class Bad:
    """A request that the broker must refuse."""

    why: str
    check: Check
    method: str
    path: str
    body: bytes = b""
    content_type: str = "text/xml"


def bad_xmlrpc() -> list[Bad]:
    """Bad XML-RPC calls, at three of the paths for calls."""
    please, ping = "rssCloud.pleaseNotify", "weblogUpdates.ping"
    struct = "<struct><member><name>a</name><value>b</value></member></struct>"
    rows: list[tuple[str, Check, bytes]] = [("not closed", is_xmlrpc_fault, BROKEN)]
    calls: list[tuple[str, Check, str]] = [
        ("an external entity", is_xmlrpc_fault, f"{EXTERNAL}{call('rssCloud.ping', '&e;')}"),
        ("no method", is_xmlrpc_fault, "<methodCall><params/></methodCall>"),
        ("a ping of a struct", is_xmlrpc_fault, call("rssCloud.ping", struct)),
        ("a wrong topic", is_xmlrpc_fault, call(please, "", "80", "/n", "http-post", "x:y")),
        (
            *("an old name, nothing there", is_false),
            call("xmlStorageSystem.rssPleaseNotify", "", "80", "/n", "http-post", "x:y"),
        ),
        ("five parameters", is_xmlrpc_fault, call(ping, *"ABCDE")),
        ("a struct as name", is_xmlrpc_fault, call(ping, struct, HOME)),
        ("a long name", is_flerror, call(ping, LONG, HOME)),
        *(("a wrong URL", is_flerror, call(ping, "A", url)) for url in URLS),
    ]
    rows += [(why, check, text.encode()) for why, check, text in calls]
    return [
        Bad(why, check, "POST", path, body)
        for path in ("/RPC2", "/xmlrpc.php", "/ping/RPC2")
        for why, check, body in rows
    ]


def bad_soap() -> list[Bad]:
    """Bad SOAP calls, at the path of each service."""
    good = {"port": "80", "path": "/n", "protocol": "http-post", "urlList": FEED}
    ping = envelope("ping", {"url": FEED})
    rows: list[tuple[str, Check, bytes]] = [
        ("not closed", is_soap_fault, BROKEN),
        ("a DOCTYPE", is_soap_fault, EXTERNAL.encode() + ping.partition(b"?>")[2]),
        ("a wrong int", is_soap_fault, ping.replace(b"xsd:string", b"xsd:int")),
        ("a wrong port", is_soap_fault, envelope("pleaseNotify", {**good, "port": "x"})),
        ("no topic", is_soap_fault, envelope("pleaseNotify", {**good, "urlList": ["x:y"]})),
        (
            *("nested topics", is_soap_fault),
            envelope("pleaseNotify", good).replace(FEED.encode(), b"<a><b>c</b></a>"),
        ),
        (
            *("a list as name", is_soap_fault),
            envelope("ping", {"weblogname": ["A"], "weblogurl": HOME}),
        ),
        ("no name", is_soap_flerror, envelope("ping", {"weblogurl": HOME})),
        *(
            ("wrong", is_soap_flerror, envelope("ping", {"weblogname": "A", "weblogurl": url}))
            for url in URLS
        ),
    ]
    return [
        Bad(why, check, "POST", path, body)
        for path in ("/soap", "/weblogUpdates", "/xmlStorageSystem")
        for why, check, body in rows
        if check is is_soap_fault or path != "/xmlStorageSystem"  # another ping
    ]


def bad_rest() -> list[Bad]:
    """Bad requests to the REST interface of rssCloud."""
    good = {"port": "80", "path": "/n", "protocol": "http-post", "url1": FEED}
    wrong = [
        {"port": LONG},
        {"path": "\x00"},
        {"protocol": "<script>"},
        *({"url1": url} for url in ("", LONG, "javascript:alert(1)", "\ud800")),
        {"domain": LONG},
        {"protocol": "soap", "notifyProcedure": "a/b<"},
    ]
    rows = [
        Bad(f"{fields}", is_rest_failure, "POST", path, form(**{**good, **fields}), FORM)
        for path in ("/rsscloud/pleaseNotify", "/pleaseNotify")
        for fields in wrong
    ]
    rows += [
        Bad(url[:20], is_rest_failure, "POST", path, form(url=url), FORM)
        for path in ("/rsscloud/ping", "/ping")
        for url in [*URLS, "\x00\x01", "\ud800"]
    ]
    rows += [
        Bad(why, is_rest_failure, "POST", path, body, kind)
        for path in ("/rsscloud/pleaseNotify", "/rsscloud/ping")
        for why, body, kind in (
            ("binary", bytes(range(256)), FORM),
            ("a document", BROKEN, "text/xml"),
            ("JSON", b'{"url": "http://a.example/"}', "application/json"),
        )
    ]
    return rows


def bad_pages() -> list[Bad]:
    """Bad requests to the pages that accept pings."""
    rows = []
    for url in URLS:
        fields = form(name="<script>", url=url)
        for path in ("/pingSiteForm", "/ping", "/"):
            rows.append(Bad(url[:20], is_page_error, "GET", f"{path}?{fields.decode()}"))
            rows.append(Bad(url[:20], is_page_error, "POST", path, fields, FORM))
        rows.append(Bad(url[:20], is_page_error, "GET", f"/rss/ping?{form(u=url).decode()}"))
    rows += [
        Bad(why, is_page_error, "POST", "/pingSiteForm", body, kind)
        for why, body, kind in (
            ("binary", bytes(range(256)), FORM),
            *((name[:9], form(name=name, url=HOME), FORM) for name in ("", LONG, "\x00")),
            ("no boundary", b"--", "multipart/form-data"),
        )
    ]
    return rows


class BadInputTests(HouseTestCase):
    def assert_refused(self, rows: list[Bad]) -> None:
        before = self.house.stored()
        for row in rows:
            headers = {"Content-Type": row.content_type, "Connection": "close"}
            answer = self.house.ask(row.method, row.path, row.body, headers)
            self.assertTrue(row.check(answer), f"{row}\n{answer}")
        self.assertEqual(self.house.stored(), before)
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_every_row(self) -> None:
        for rows in (bad_xmlrpc(), bad_soap(), bad_rest(), bad_pages()):
            self.assert_refused(rows)

    def test_headers_that_are_no_text(self) -> None:
        values = ("\xff\xfe", "", ";;=", "text/xml; charset*0*=x; charset=\xe4", "a" * 9000)
        bodies = {
            "/soap": envelope("ping", {"url": FEED}),
            "/RPC2": call("rssCloud.hello").encode(),
            "/rsscloud/ping": b"url=" + FEED.encode(),
        }
        for name in ("Accept", "Content-Type", "SOAPAction", "X-Forwarded-For", "Host", "Expect"):
            for value in values:
                for path, body in bodies.items():
                    answer = self.house.ask("POST", path, body, {name: value})
                    self.assertIn(answer.status, {200, 406}, (name, value, path))
        self.assertEqual(self.flushLoggedErrors(), [])
