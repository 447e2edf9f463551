"""Random requests of hypothesis go through the whole site."""

from __future__ import annotations

import xmlrpc.client

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import examples
from tests.front_doors.exchange import FORM, call, form, request_bytes
from tests.front_doors.fixture import FEED, HOME, HouseTestCase

PATHS = [
    "/", "/RPC2", "/soap", "/weblogUpdates", "/ping", "/ping/", "/xmlrpc.php", "/pingSiteForm",
    "/rsscloud/ping", "/rsscloud/pleaseNotify", "/pleaseNotify", "/rss/ping", "/docs",
    "/c", "/fb/a/pingSubmit", "/changes.xml", "/2026/01/01/01.xml", "/nothing",
]  # fmt: skip
KINDS = ["text/xml", FORM, "multipart/form-data; boundary=b", "application/json", ""]

fields = st.dictionaries(
    st.sampled_from(
        ["url", "url1", "name", "port", "path", "protocol", "domain", "u", "p", "bloglink",
         "rssUrl"]
    ),
    st.text(max_size=40) | st.sampled_from(["http-post", "soap", "80", "/", FEED, HOME]),
).map(lambda chosen: form(**chosen))  # fmt: skip
texts = st.text(st.characters(codec="utf-8"), max_size=30)
elements = st.recursive(
    texts.map(xmlrpc.client.escape) | st.sampled_from(["A", HOME, FEED, "80"]),
    lambda inner: st.tuples(
        st.sampled_from(
            ["int", "string", "array", "data", "value", "struct", "member", "name", "base64",
             "boolean", "double", "nil", "param", "params", "dateTime.iso8601", "url",
             "weblogname", "weblogurl", "urlList"]
        ),
        st.lists(inner, max_size=3),
    ).map(lambda pair: f"<{pair[0]}>{''.join(pair[1])}</{pair[0]}>"),
    max_leaves=12,
)  # fmt: skip
xmlrpc_calls = st.tuples(
    st.sampled_from(
        ["rssCloud.ping", "rssCloud.pleaseNotify", "weblogUpdates.ping", "system.multicall",
         "weblogUpdates.extendedPing", "xmlStorageSystem.requestNotification", "system.methodHelp"]
    ),
    st.lists(elements, max_size=7),
).map(lambda pair: call(pair[0], *pair[1]).encode())  # fmt: skip
soap_calls = st.tuples(
    st.sampled_from(["ping", "extendedPing", "pleaseNotify", "nothing"]),
    st.lists(elements, max_size=5),
    texts.map(xmlrpc.client.escape),
).map(
    lambda parts: (
        '<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/"><e:Body>'
        f'<o:{parts[0]} xmlns:o="x{parts[2]}">{"".join(parts[1])}</o:{parts[0]}>'
        "</e:Body></e:Envelope>"
    ).encode()
)
bodies = st.binary(max_size=200) | fields | xmlrpc_calls | soap_calls


class FuzzTests(HouseTestCase):
    """No request is answered by a 500 that is not a SOAP fault, nor logged as a bug."""

    def assert_answered(self, request: bytes) -> None:
        exchange = self.house.connect()
        exchange.send(request)
        if not exchange.open and exchange.transport.value().startswith(b"HTTP/1.1 400"):
            return
        answer = exchange.answer()
        exchange.transport.loseConnection()
        self.assertTrue(
            answer.status < 500
            or (answer.status == 500 and b"SOAP-ENV:Client" in answer.body)
            or (answer.status == 503 and b"has not been made yet" in answer.body),
            (request, answer),
        )
        self.assertEqual(self.flushLoggedErrors(), [])

    @settings(max_examples=examples(200), deadline=None, suppress_health_check=list(HealthCheck))
    @given(path=st.sampled_from(PATHS), kind=st.sampled_from(KINDS), body=bodies)
    def test_bodies(self, path: str, kind: str, body: bytes) -> None:
        self.assert_answered(request_bytes("POST", path, body, {"Content-Type": kind}))

    @settings(max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck))
    @given(path=st.sampled_from(PATHS), query=st.binary(max_size=50) | fields)
    def test_queries(self, path: str, query: bytes) -> None:
        clean = query.translate(None, b" \r\n\0")
        self.assert_answered(b"GET %s?%s HTTP/1.1\r\nHost: b\r\n\r\n" % (path.encode(), clean))

    @settings(max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        name=st.sampled_from(["Accept", "Content-Type", "SOAPAction", "X-Forwarded-For"]),
        value=st.text(st.characters(max_codepoint=255, exclude_characters="\r\n\0"), max_size=50),
    )
    def test_headers(self, name: str, value: str) -> None:
        self.assert_answered(request_bytes("POST", "/soap", b"<x/>", {name: value}))
