"""``/metrics`` and ``/health``: who may read them, and what they say."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import cast

from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text
from twisted.internet.address import UNIXAddress
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from rsscloud_broker.config import Http
from rsscloud_broker.counters import Counters
from rsscloud_broker.front_doors.monitoring import MonitoringDoor, TokenCheck
from rsscloud_broker.http.site import Root
from rsscloud_broker.interfaces import IHealth, PartState
from rsscloud_broker.testing import make_front_door_tests
from tests.front_doors.exchange import Answer
from tests.front_doors.fixture import PUBLIC_URL, House

TOKEN = "a-token-of-the-operator"
PATHS = ("/metrics", "/health/live", "/health/ready")
HERE = "127.0.0.1"
STRANGER = "203.0.113.9"
OPENMETRICS = "application/openmetrics-text;version=1.0.0"


@implementer(IHealth)
class Health:
    def __init__(self) -> None:
        self.live = [PartState("event_loop", True, "It turns.")]
        self.others: list[PartState] = []
        self.hangs = False

    def alive(self) -> Sequence[PartState]:
        return self.live

    async def ready(self) -> Sequence[PartState]:
        if self.hangs:
            never: Deferred[None] = Deferred()
            await never
        return [*self.live, *self.others]


class DoorTests(
    make_front_door_tests(  # type: ignore[misc] # made at run time
        lambda _case: MonitoringDoor(Counters().registry, Health(), "")
    )
):
    """The door keeps the contract of front doors."""


class MonitoringTestCase(SynchronousTestCase):
    def open(
        self,
        token: str = "",
        http: Http | None = None,
        token_checks: Sequence[TokenCheck] = (),
        own_endpoint: bool = False,
    ) -> None:
        self.health = Health()
        self.counters = Counters()
        registry, health = self.counters.registry, self.health
        self.door = MonitoringDoor(
            registry, health, token, token_checks=token_checks, own_endpoint=own_endpoint
        )
        self.house = House(self, http=http, root=Root([self.door], PUBLIC_URL))

    def get(self, path: str, peer: str = HERE, headers: Mapping[str, str] | None = None) -> Answer:
        named = {"Host": "localhost:5337", **(headers or {})}
        return self.house.ask("GET", path, headers=named, peer=peer)

    def statuses(self, peer: str = HERE, **headers: str) -> set[int]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return {self.get(path, peer, named).status for path in PATHS}


class AccessTests(MonitoringTestCase):
    def test_addresses_and_proxies(self) -> None:
        direct, proxy = Http(), Http(trusted_proxies=(HERE, "::1"))
        elsewhere = Http(trusted_proxies=("10.1.2.3", HERE))
        local, strange = (HERE, "127.9.9.9", "::1", "::ffff:127.0.0.1"), (STRANGER, "2001:db8::1")
        via, said = "X_Forwarded_For", f"for={STRANGER}"
        told = (HERE, f"{HERE}:4711", "[::1]", "[::1]:4711", f"[::1]:4711, {HERE}:80")
        for why, http, peers, name, values, status in (
            ("programs on this machine", direct, local, "Accept", ("*/*",), 200),
            ("nobody else", direct, (*strange, "10.0.0.1"), "Authorization", ("", "Bearer "), 401),
            ("a proxy tells who asks", proxy, (HERE,), via, told, 200),
            ("strangers", proxy, (HERE,), via, (STRANGER, f"{HERE}, {STRANGER}"), 401),
            ("strangers, said before", proxy, (HERE,), via, (f"{STRANGER}, {HERE}",), 401),
            ("strangers' ports", proxy, (HERE,), via, (f"{STRANGER}:4711", "[2001:db8::1]:4"), 401),
            ("it does not tell", proxy, (HERE,), via, ("", "unknown", "unix:"), 401),
            ("all of them", proxy, (HERE,), via, (f"{STRANGER},", f"unknown, {HERE}"), 401),
            ("no address", proxy, (HERE,), via, (f"{HERE}, x",), 401),
            ("in another header", proxy, (HERE,), "Forwarded", (said,), 401),
            # A proxy that runs elsewhere, so its loopback address is not of this machine.
            ("on its machine", elsewhere, ("10.1.2.3",), via, (HERE,), 401),
            ("through another", elsewhere, (HERE,), via, (f"{HERE}, 10.1.2.3",), 401),
            # A proxy on this machine that nobody named: the client may be anybody.
            ("an unknown proxy", direct, (HERE,), via, (HERE, STRANGER), 401),
            ("by Forwarded", direct, (HERE,), "Forwarded", (said,), 401),
            ("by X-Real-IP", direct, (HERE,), "X_Real_IP", (STRANGER,), 401),
            ("by Via", direct, (HERE,), "Via", ("1.1 proxy",), 401),
        ):
            self.open(http=http)
            for peer in peers:
                for value in values:
                    self.assertEqual(self.statuses(peer, **{name: value}), {status}, (why, value))

    def test_the_answer_to_a_stranger(self) -> None:
        self.open(TOKEN)
        answer = self.get("/metrics", STRANGER)
        self.assertIn(b"[metrics]", answer.body)
        self.assertNotIn(b"rsscloud_pings", answer.body)
        self.assertEqual(answer.headers["www-authenticate"], 'Bearer realm="metrics"')

    def test_the_token(self) -> None:
        self.open(TOKEN)
        for good in (f"Bearer {TOKEN}", f"bearer  {TOKEN} "):
            self.assertEqual(self.statuses(STRANGER, Authorization=good), {200}, good)
        wrong = (f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Bearer x{TOKEN}", f"Basic {TOKEN}")
        for bad in ("", "Bearer", *wrong, TOKEN, "Bearer \xff"):
            self.assertEqual(self.statuses(STRANGER, Authorization=bad), {401}, bad)
        self.assertEqual(self.statuses(HERE), {200})

    def test_another_token_after_a_reload(self) -> None:
        self.open(TOKEN)
        self.door.change_token("another-token-of-16")
        self.assertEqual(self.statuses(STRANGER, Authorization=f"Bearer {TOKEN}"), {401})
        other = "Bearer another-token-of-16"
        self.assertEqual(self.statuses(STRANGER, Authorization=other), {200})

    def test_tokens_that_others_know(self) -> None:
        async def check(token: str) -> bool:
            return token == "of-an-account"

        self.open("", token_checks=[check])
        self.assertEqual(self.statuses(STRANGER), {401})
        self.assertEqual(self.statuses(STRANGER, Authorization="Bearer of-an-account"), {200})
        self.assertEqual(self.statuses(STRANGER, Authorization="Bearer of-nobody"), {401})

    def test_other_names_of_this_machine(self) -> None:
        """A page of a stranger has a browser on this machine ask (DNS rebinding)."""
        self.open(http=Http(trusted_proxies=("127.0.0.2",)))
        for host in ("evil.example", "evil.example:5337", "localhost.evil.example", "", "10.0.0.1"):
            self.assertEqual(self.statuses(HERE, Host=host), {401}, host)
            said = self.statuses("127.0.0.2", Host=host, X_Forwarded_For=HERE)
            self.assertEqual(said, {401}, host)
        for host in ("localhost", "LOCALHOST:80", "broker.localhost", f"{HERE}:5337", "[::1]:5337"):
            self.assertEqual(self.statuses(HERE, Host=host), {200}, host)

    def test_a_proxy_that_says_nothing_at_all(self) -> None:
        """nginx by default: the address, the Host and the headers are those of a local program."""
        self.open()
        limits = self.house.limits
        for public_url in ("https://broker.example", "http://192.168.0.5:5337"):
            limits.public_url = public_url
            self.assertEqual(self.statuses(HERE), {401}, public_url)
        for public_url in ("", "http://localhost:5337", "http://127.0.0.1:80", "http://[::1]:80"):
            limits.public_url = public_url
            self.assertEqual(self.statuses(HERE), {200}, public_url)

    def test_a_trusted_proxy_says_for_whom_it_asks(self) -> None:
        """So what comes without a word of others is from a program on this machine."""
        self.open(http=Http(trusted_proxies=(HERE,)))
        self.house.limits.public_url = "https://broker.example"
        self.assertEqual(self.statuses(HERE), {200})
        self.assertEqual(self.statuses(HERE, X_Forwarded_For=STRANGER), {401})
        self.assertEqual(self.statuses("::1"), {401})

    def test_the_operator_knows_better(self) -> None:
        self.open()
        limits = self.house.limits
        for public_url in ("", "https://broker.example"):
            limits.public_url = public_url
            limits.change(Http(local_programs="always"))
            self.assertEqual(self.statuses(HERE), {200}, public_url)
            self.assertEqual(self.statuses(STRANGER), {401}, public_url)
            self.assertEqual(self.statuses(HERE, X_Forwarded_For=STRANGER), {401}, public_url)
            limits.change(Http(local_programs="never", trusted_proxies=(HERE,)))
            self.assertEqual(self.statuses(HERE), {401}, public_url)

    def test_a_unix_socket(self) -> None:
        self.open()
        peer, host = UNIXAddress("/run/broker.sock"), {"Host": "localhost"}
        for headers, status in (
            ({}, 401),  # a proxy that adds no header, for somebody anywhere
            ({"X-Forwarded-For": STRANGER}, 401),
            ({"X-Forwarded-For": "unix:"}, 401),
            ({"X-Forwarded-For": HERE}, 200),
        ):
            answer = self.house.ask("GET", "/metrics", headers=host | headers, peer=peer)
            self.assertEqual(answer.status, status, headers)

    def test_endpoints_of_its_own(self) -> None:
        self.open(own_endpoint=True)
        self.assertEqual(self.statuses(STRANGER), {200})
        self.open(TOKEN, own_endpoint=True)
        self.assertEqual(self.statuses(STRANGER), {401})
        self.assertEqual(self.statuses(HERE), {200})
        self.assertEqual(self.statuses(STRANGER, Authorization=f"Bearer {TOKEN}"), {200})

    def test_only_get_and_nothing_is_cached(self) -> None:
        self.open()
        headers = {"Host": "localhost"}
        for path in PATHS:
            for peer in (HERE, STRANGER):
                self.assertEqual(self.get(path, peer).headers["cache-control"], "no-store")
            self.assertEqual(self.house.ask("POST", path, peer=HERE).status, 405)
            self.assertEqual(self.house.ask("HEAD", path, headers=headers, peer=HERE).status, 200)


class MetricsTests(MonitoringTestCase):
    def test_formats(self) -> None:
        self.open()
        self.counters.pings.inc(3)
        others = ("", "*/*", "text/html", "application/openmetrics-text;version=x", ";=,")
        for accept, kind, parse in (
            *((accept, "text/plain", parse_text) for accept in others),
            (f"{OPENMETRICS},text/plain;q=0.5", "application/openmetrics-text", parse_openmetrics),
        ):
            answer = self.get("/metrics", headers={"Accept": accept})
            self.assertEqual(answer.headers.get_content_type(), kind, accept)
            self.assertEqual(answer.headers["vary"], "Accept")
            families = {family.name: family for family in parse(answer.body.decode())}
            self.assertEqual(families["rsscloud_pings"].samples[0].value, 3.0)

    def test_single_metrics(self) -> None:
        self.open()
        answer = self.get("/metrics?name[]=rsscloud_pings_total&name[]=rsscloud_name_lookups")
        names = {family.name for family in parse_text(answer.body.decode())}
        self.assertEqual(names, {"rsscloud_pings", "rsscloud_name_lookups"})

    def test_connections_and_answers_are_counted(self) -> None:
        self.open()
        self.get("/health/live")
        self.assertEqual(self.house.answers(200), 1)
        before = self.house.counters.registry.get_sample_value("rsscloud_http_connections")
        self.house.connect()
        after = self.house.counters.registry.get_sample_value("rsscloud_http_connections")
        self.assertEqual(after, cast(float, before) + 1)


class HealthTests(MonitoringTestCase):
    def test_all_is_well(self) -> None:
        self.open()
        self.health.others = [PartState("disk", True, "It has room.")]
        for path, parts in (("/health/live", 1), ("/health/ready", 2)):
            answer = self.get(path)
            self.assertEqual(answer.status, 200)
            self.assertEqual(answer.headers.get_content_type(), "application/json")
            found = json.loads(answer.body)
            self.assertEqual((found["status"], len(found["parts"])), ("ok", parts))

    def test_one_part_does_not_work(self) -> None:
        self.open()
        disk = PartState("disk", False, "It is full.")
        self.health.others = [disk, PartState("bus", True, "It is empty.")]
        self.assertEqual(self.get("/health/live").status, 200)
        answer = self.get("/health/ready")
        self.assertEqual(answer.status, 503)
        found = json.loads(answer.body)
        self.assertEqual(found["status"], "failed")
        self.assertEqual(found["parts"]["disk"], {"status": "failed", "text": "It is full."})
        self.assertEqual(found["parts"]["bus"]["status"], "ok")

    def test_the_process_is_alive_while_a_part_hangs(self) -> None:
        self.open()
        self.health.hangs = True
        headers = {"Host": "localhost"}
        hanging = self.house.begin("GET", "/health/ready", headers=headers, peer=HERE)
        self.assertEqual(self.get("/health/live").status, 200)
        self.assertEqual(self.get("/metrics").status, 200)
        self.assertEqual(hanging.transport.value(), b"")

    def test_a_process_that_does_not_work(self) -> None:
        self.open()
        self.health.live = [PartState("event_loop", False, "It is stuck.")]
        self.assertEqual(self.get("/health/live").status, 503)
