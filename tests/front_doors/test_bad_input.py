"""A table of bad input for all front doors.

Each request gets a clear error of its protocol; nothing is stored, not even in part;
and a change list of all accepted pings is well-formed.
"""

from __future__ import annotations

import xmlrpc.client
from collections.abc import Callable
from typing import TypeAlias

from attrs import frozen
from lxml import etree
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.wire import change_list
from tests.front_doors.exchange import FORM, Answer, call, envelope, form
from tests.front_doors.fixture import FEED, HOME, NOON, House

Check: TypeAlias = Callable[[Answer], object]

BOMB = (
    '<?xml version="1.0"?><!DOCTYPE b [<!ENTITY a "aaaaaaaaaa">'
    + "".join(
        f'<!ENTITY {x} "{f"&{y};" * 10}">' for x, y in zip("bcdefghi", "abcdefgh", strict=True)
    )
    + "]>"
)
EXTERNAL = '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/hostname">]>'
LONG = "x" * 5000

#: Names of weblogs, and the names that must be stored for them; None if they are refused.
NAMES = {
    "a\x00b\x01c": "abc",
    "tab\tand\nline": "tab and line",
    "esc\x1b[31m": "esc[31m",
    "del\x7f\x9fete": "delete",
    "\ufffe\uffff": None,
    "\u2028": None,
    "<b>&\"'": "<b>&\"'",
    LONG: None,
    "": None,
}

URLS = ["", "javascript:alert(1)", "/relative", "feed.xml", "//host/x", "http:", "ftp://h/", LONG]


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


def bad_documents() -> list[tuple[str, bytes]]:
    """Bodies that are neither XML-RPC nor SOAP calls."""
    good = call("rssCloud.ping", FEED)
    return [
        ("empty", b""),
        ("white space", b" \r\n\t"),
        ("binary", bytes(range(256))),
        ("NULs", b"\0" * 100),
        ("JSON", b'{"method": "ping"}'),
        ("a form", b"url=http%3A%2F%2Fa.example%2F"),
        ("a beginning", b"<"),
        ("not closed", good[:-5].encode()),
        ("two roots", f"{good}{good}".encode()),
        ("wrong nesting", b"<methodCall><params></methodCall></params>"),
        ("another document", b"<rss version='2.0'/>"),
        ("an undefined entity", call("rssCloud.ping", "&nbsp;").encode()),
        ("a surrogate", call("weblogUpdates.ping", "&#xD800;", HOME).encode()),
        ("a control character", call("weblogUpdates.ping", "&#1;", HOME).encode()),
        ("not the encoding it says", b"<?xml version='1.0'?><methodCall>\xff</methodCall>"),
        ("an unknown encoding", b"<?xml version='1.0' encoding='klingon'?><methodCall/>"),
        ("a DOCTYPE", b"<!DOCTYPE methodCall>" + good.encode()),
        ("an entity bomb", f"{BOMB}{call('rssCloud.ping', '&i;')}".encode()),
        ("an external entity", f"{EXTERNAL}{call('rssCloud.ping', '&e;')}".encode()),
        ("a deep nest", b"<methodCall>" + b"<a>" * 5000 + b"</a>" * 5000 + b"</methodCall>"),
        ("many attributes", b"<a " + b" ".join(b"a%d=''" % n for n in range(5000)) + b"/>"),
        ("UTF-16 cut in two", good.encode("utf-16")[:-1]),
    ]


def bad_xmlrpc() -> list[Bad]:
    """Bad XML-RPC calls, at three of the paths for calls."""
    rows: list[tuple[str, Check, bytes]] = [
        (why, is_xmlrpc_fault, body) for why, body in bad_documents()
    ]
    struct = "<struct><member><name>a</name><value>b</value></member></struct>"
    listed = f"<array><data><value>{FEED}</value></data></array>"
    calls: list[tuple[str, Check, str]] = [
        ("no method", is_xmlrpc_fault, "<methodCall><params/></methodCall>"),
        ("an unknown method", is_xmlrpc_fault, call("no.thing", "a")),
        ("a long method", is_xmlrpc_fault, call(LONG, "a")),
        ("an unknown type", is_xmlrpc_fault, call("rssCloud.ping", "<uri>x</uri>")),
        ("a wrong int", is_xmlrpc_fault, call("rssCloud.ping", "<int>1e9</int>")),
        ("a huge int", is_xmlrpc_fault, call("rssCloud.ping", f"<int>{'9' * 5000}</int>")),
        ("a wrong boolean", is_xmlrpc_fault, call("rssCloud.ping", "<boolean>2</boolean>")),
        ("wrong base64", is_xmlrpc_fault, call("rssCloud.ping", "<base64>!</base64>")),
        ("a wrong date", is_xmlrpc_fault, call("rssCloud.ping", "<dateTime.iso8601/>")),
        ("a ping of a struct", is_xmlrpc_fault, call("rssCloud.ping", struct)),
        ("a ping of nothing", is_xmlrpc_fault, call("rssCloud.ping")),
        ("a ping of two", is_xmlrpc_fault, call("rssCloud.ping", FEED, FEED)),
        ("too few", is_xmlrpc_fault, call("rssCloud.pleaseNotify", "", "80", "/n", "http-post")),
        (
            "too many",
            is_xmlrpc_fault,
            call("rssCloud.pleaseNotify", "", "80", "/n", "http-post", listed, "", ""),
        ),
        (
            "a wrong port",
            is_xmlrpc_fault,
            call("rssCloud.pleaseNotify", "", "<int>99999</int>", "/n", "http-post", listed),
        ),
        (
            "a list as path",
            is_xmlrpc_fault,
            call("rssCloud.pleaseNotify", "", "80", listed, "http-post", listed),
        ),
        (
            "a topic that is none",
            is_xmlrpc_fault,
            call("rssCloud.pleaseNotify", "", "80", "/n", "http-post", "javascript:alert(1)"),
        ),
        (
            "an old name, nothing there",
            is_false,
            call("xmlStorageSystem.rssPleaseNotify", "", "80", "/n", "http-post", "x:y"),
        ),
        ("one parameter", is_xmlrpc_fault, call("weblogUpdates.ping", "A")),
        ("five parameters", is_xmlrpc_fault, call("weblogUpdates.ping", *"ABCDE")),
        ("a struct as name", is_xmlrpc_fault, call("weblogUpdates.ping", struct, HOME)),
        ("an int as URL", is_flerror, call("weblogUpdates.ping", "A", "<int>1</int>")),
        ("an empty name", is_flerror, call("weblogUpdates.ping", "", HOME)),
        ("a long name", is_flerror, call("weblogUpdates.ping", LONG, HOME)),
        ("long tags", is_flerror, call("weblogUpdates.ping", "A", HOME, "", LONG)),
        ("a wrong feed", is_flerror, call("weblogUpdates.extendedPing", "A", HOME, "feed.xml")),
        *(("a wrong URL", is_flerror, call("weblogUpdates.ping", "A", url)) for url in URLS),
    ]
    rows += [(why, check, text.encode()) for why, check, text in calls]
    return [
        Bad(why, check, "POST", path, body)
        for path in ("/RPC2", "/xmlrpc.php", "/ping/RPC2")
        for why, check, body in rows
    ]


def bad_soap() -> list[Bad]:
    """Bad SOAP calls, at the path of each service."""
    rows: list[tuple[str, Check, bytes]] = [
        (why, is_soap_fault, body)
        for why, body in bad_documents()
        if b"methodCall>" not in body or b"<!" in body
    ]
    registration = {"port": "80", "path": "/n", "protocol": "http-post", "urlList": FEED}
    ping = envelope("ping", {"url": FEED})
    rows += [
        ("no operation", is_soap_fault, ping.replace(b"ping>", b"SOAP-ENV:Fault>")),
        ("an empty body", is_soap_fault, b"".join(ping.partition(b"Body>")[:2]) + b"</x>"),
        ("no SOAP 1.1", is_soap_fault, ping.replace(b"soap/envelope/", b"soap/other/")),
        ("an unknown operation", is_soap_fault, envelope("nothing", {"url": FEED})),
        ("a wrong int", is_soap_fault, ping.replace(b"xsd:string", b"xsd:int")),
        ("a wrong reference", is_soap_fault, ping.replace(b"xsi:type=", b"href=")),
        ("a DOCTYPE", is_soap_fault, BOMB.encode() + ping.partition(b"?>")[2]),
        ("a wrong port", is_soap_fault, envelope("pleaseNotify", {**registration, "port": "x"})),
        (
            "a topic that is none",
            is_soap_fault,
            envelope("pleaseNotify", {**registration, "urlList": ["javascript:alert(1)"]}),
        ),
        (
            "nested topics",
            is_soap_fault,
            envelope("pleaseNotify", registration).replace(FEED.encode(), b"<a><b>c</b></a>"),
        ),
        ("no parameters", is_soap_fault, envelope("pleaseNotify", {})),
        (
            "a list as name",
            is_soap_fault,
            envelope("ping", {"weblogname": ["A"], "weblogurl": HOME}),
        ),
        ("no name", is_soap_flerror, envelope("ping", {"weblogurl": HOME})),
        ("a long name", is_soap_flerror, envelope("ping", {"weblogname": LONG, "weblogurl": HOME})),
        *(
            (
                "a wrong URL",
                is_soap_flerror,
                envelope("ping", {"weblogname": "A", "weblogurl": url}),
            )
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
    registration = {"port": "80", "path": "/n", "protocol": "http-post", "url1": FEED}
    wrong = [
        {"port": "x"},
        {"port": LONG},
        {"path": "\x00"},
        {"protocol": "<script>"},
        {"url1": ""},
        {"url1": LONG},
        {"url1": "javascript:alert(1)"},
        {"url1": "\ud800"},
        {"domain": "a b"},
        {"domain": LONG},
        {"protocol": "xml-rpc"},
        {"protocol": "soap", "notifyProcedure": "a/b<"},
    ]
    rows = [
        Bad(f"{fields}", is_rest_failure, "POST", path, form(**{**registration, **fields}), FORM)
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
        for why, body in bad_documents()
        for kind in (FORM, "text/xml", "application/json")
        if not (kind == FORM and why == "a form")
    ]
    return rows


def bad_pages() -> list[Bad]:
    """Bad requests to the pages that accept pings."""
    rows = []
    for path, name_of_url in (("/pingSiteForm", "url"), ("/ping", "url"), ("/", "url")):
        for url in URLS:
            fields = form(**{"name": "<script>", name_of_url: url})
            rows.append(Bad(url[:20], is_page_error, "GET", f"{path}?{fields.decode()}"))
            rows.append(Bad(url[:20], is_page_error, "POST", path, fields, FORM))
    rows += [
        Bad(url[:20], is_page_error, "GET", f"/rss/ping?{form(u=url).decode()}") for url in URLS
    ]
    for name in ("", LONG, "\x00", "\ufffe"):
        fields = form(name=name, url=HOME)
        rows.append(Bad(f"name {name[:9]!r}", is_page_error, "POST", "/pingSiteForm", fields, FORM))
    for why, body in bad_documents():
        if why != "a form":
            rows.append(Bad(why, is_page_error, "POST", "/pingSiteForm", body, FORM))
    rows.append(
        Bad("no boundary", is_page_error, "POST", "/pingSiteForm", b"--", "multipart/form-data")
    )
    return rows


class BadInputTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.house = House(self)

    def assert_refused(self, rows: list[Bad]) -> None:
        before = self.house.stored()
        for row in rows:
            headers = {"Content-Type": row.content_type, "Connection": "close"}
            answer = self.house.ask(row.method, row.path, row.body, headers)
            self.assertTrue(row.check(answer), f"{row}\n{answer}")
        self.assertEqual(self.house.stored(), before)
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_xml_rpc(self) -> None:
        self.assert_refused(bad_xmlrpc())

    def test_soap(self) -> None:
        self.assert_refused(bad_soap())

    def test_rest(self) -> None:
        self.assert_refused(bad_rest())

    def test_pages(self) -> None:
        self.assert_refused(bad_pages())

    def test_bodies_over_the_limit(self) -> None:
        before = self.house.stored()
        body = b"x" * (1024 * 1024 + 1)
        for path in ("/RPC2", "/soap", "/rsscloud/ping", "/pingSiteForm", "/nothing"):
            self.assertEqual(self.house.ask("POST", path, body).status, 413)
            exchange = self.house.connect()
            exchange.send(
                f"POST {path} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
                + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
            )
            self.assertEqual(exchange.answer().status, 413)
        self.assertEqual(self.house.stored(), before)

    def test_headers_that_are_no_text(self) -> None:
        for name in ("Accept", "Content-Type", "SOAPAction", "X-Forwarded-For", "Host", "Expect"):
            for value in (
                "\xff\xfe",
                "",
                ";;=",
                "text/xml; charset*0*=x; charset=\xe4",
                "a" * 9000,
            ):
                for path, body in (
                    ("/soap", envelope("ping", {"url": FEED})),
                    ("/RPC2", call("rssCloud.hello").encode()),
                    ("/rsscloud/ping", b"url=" + FEED.encode()),
                ):
                    answer = self.house.ask("POST", path, body, {name: value})
                    self.assertIn(answer.status, {200, 406}, (name, value, path))
        self.assertEqual(self.flushLoggedErrors(), [])


class NamesTests(SynchronousTestCase):
    """Names of weblogs are stored clean, and change lists of them are well-formed."""

    def assert_well_formed(self, house: House) -> list[str]:
        """Make a change list of the stored pings and return its names."""
        pings = house.pings()
        document = b"".join(
            [
                change_list.opening(NOON, len(pings)),
                change_list.weblogs(pings, NOON, "minutes"),
                change_list.closing(len(pings)),
            ]
        )
        root = etree.fromstring(document)
        return [str(weblog.get("name")) for weblog in root]

    def test_by_form(self) -> None:
        for name, stored in NAMES.items():
            house = House(self)
            answer = house.ask(
                "POST", "/pingSiteForm", form(name=name, url=HOME), {"Content-Type": FORM}
            )
            self.assertEqual(answer.status, 400 if stored is None else 200, name)
            self.assertEqual(self.assert_well_formed(house), [stored] if stored else [])

    def test_lone_surrogates(self) -> None:
        """Bytes of lone surrogates are not UTF-8, so they are read as windows-1252."""
        house = House(self)
        answer = house.ask(
            "POST", "/pingSiteForm", form(name="a\ud800b", url=HOME), {"Content-Type": FORM}
        )
        self.assertEqual(answer.status, 200)
        (name,) = self.assert_well_formed(house)
        self.assertEqual(name, "aí\xa0€b")

    def test_old_encodings(self) -> None:
        """Documents are read in their own encoding."""
        table = [
            ("iso-8859-1", "Café ü"),
            ("windows-1251", "Привет"),
            ("koi8-r", "Привет"),
            ("utf-16", "日本"),
            ("shift_jis", "日本"),
        ]
        for encoding, name in table:
            document = call("weblogUpdates.ping", name, HOME)
            declared = f"<?xml version='1.0' encoding='{encoding}'?>{document}".encode(encoding)
            labelled = document.encode(encoding)
            soap = envelope("ping", {"weblogname": name, "weblogurl": HOME}).decode()
            soap = soap.replace('"1.0"', f'"1.0" encoding="{encoding}"')
            for path, body, kind in (
                ("/RPC2", declared, "text/xml"),
                ("/RPC2", labelled, f"text/xml; charset={encoding}"),
                ("/weblogUpdates", soap.encode(encoding), "text/xml"),
            ):
                house = House(self)
                answer = house.ask("POST", path, body, {"Content-Type": kind})
                self.assertIn("Thanks for the ping", answer.text)
                self.assertEqual(self.assert_well_formed(house), [name])
