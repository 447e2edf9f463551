"""Checks the network around the broker: the clock, names, the rules for outgoing requests, and the
servers that the operator names.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address, ip_network
from time import perf_counter
from typing import Any, Final

from rsscloud_broker.client.web import ClientError
from rsscloud_broker.commands.doctor_checks.results import CheckContext, Level
from rsscloud_broker.config import Network
from rsscloud_broker.errors import AddressRefused, Unavailable
from rsscloud_broker.outbound import AddressGuard, Resolver, URLPolicy
from rsscloud_broker.outbound.guard import own_listeners
from rsscloud_broker.outbound.resolver import NO_ANSWER
from rsscloud_broker.util.urls import identity, is_address, is_localhost
from rsscloud_broker.wire.http_dates import http_date

#: Differences of clocks in seconds: from here on the doctor warns, and from here on it fails.
WARN_APART, FAIL_APART = 5.0, 300.0

#: Public addresses, to look for a route to them.  Nothing is sent.
_PUBLIC: Final = (("IPv4", "1.1.1.1"), ("IPv6", "2606:4700:4700::1111"))

#: Networks that no stranger's URL should lead to, and what is there.
_DELICATE: Final = (
    (ip_network("169.254.0.0/16"), "link-local addresses, where clouds keep credentials"),
    (ip_network("fe80::/10"), "link-local addresses"),
    (ip_network("127.0.0.0/8"), "this machine itself"),
    (ip_network("::1/128"), "this machine itself"),
)

#: Allowed networks with shorter prefixes are wide, by the version of IP.
_WIDE: Final = {4: 16, 6: 48}

#: A name that always exists (RFC 6761, section 6.5), for brokers without a name of their own.
_ANY_NAME: Final = "example.com"


async def clock(context: CheckContext) -> None:
    """Whether the clock of this machine agrees with that of another one."""
    url = context.time_url
    if not url:
        advice = "name a server on another machine with --time-url, such as https://example.com/"
        context.ok("clock", "it was not compared with another clock", advice)
        return
    began = perf_counter()
    try:
        answer = await context.ask(url, {})
    except ClientError as error:
        context.warn("clock", f"nobody tells the time: {error}", "name another --time-url")
        return
    date = http_date(answer.headers.get("date", ""))
    if date is None:
        found = f"{url} tells no time: its answer has no Date header"
        context.warn("clock", found, "name another --time-url")
        return
    # The header has whole seconds, and was written while the request was on its way.
    apart = answer.at - (perf_counter() - began) / 2 - (date + 0.5)
    found = f"the clock of this machine differs by {apart:+.1f} seconds from that of {url}"
    level: Level = "warn" if abs(apart) < FAIL_APART else "fail"
    level = "ok" if abs(apart) < WARN_APART else level
    advice = "" if level == "ok" else "keep the clock right by NTP (timedatectl set-ntp true)"
    context.add(level, "clock", found, advice)


async def names(context: CheckContext) -> None:
    """Whether host names can be looked up, and every configured name server answers."""
    has_name = not is_address(context.host) and not is_localhost(context.host)
    name = context.host if has_name else _ANY_NAME
    servers = context.config.egress.name_servers
    for server in servers:
        problem, _ = await _look_up(context, name, [server])
        if problem in {"", *_ABOUT_THE_NAME}:
            context.ok("names", f"the name server {server} answers")
        else:
            found = f"the name server {server} does not work: {problem}"
            advice = "correct name_servers in [egress], or see whether a firewall is in between"
            context.fail("names", found, advice)
    problem, addresses = await _look_up(context, name, servers)
    if not problem:
        context.ok("names", f"{name} has the address {', '.join(addresses)}")
    elif problem in _ABOUT_THE_NAME and has_name:
        found = f"the broker's own name {name} does not work: {problem}"
        context.fail("names", found, "have the name resolve to the broker, or correct public_url")
    else:
        found = f"names of feeds and callbacks cannot be looked up ({name}: {problem})"
        advice = "see /etc/resolv.conf, or name name_servers in [egress]"
        # A laptop may be offline.
        context.add("warn" if context.is_local else "fail", "names", found, advice)


#: Problems of a name which show that the name server has answered.
_ABOUT_THE_NAME: Final = ("there is no such name", "it has no address")


async def _look_up(
    context: CheckContext, name: str, servers: Sequence[str]
) -> tuple[str, Sequence[str]]:
    """Why a name has no address, or empty; and its addresses, or none."""
    resolver = Resolver(context.reactor, servers)
    resolver.startService()
    try:
        return "", await resolver(name)
    except OSError as error:
        return str(error) or NO_ANSWER, ()
    except Unavailable as error:
        return str(error), ()
    finally:
        resolver.stopService()


def egress(context: CheckContext) -> None:
    """Whether the broker can call the public internet, and nothing that it should not call."""
    routes = [kind for kind, address in _PUBLIC if _has_route(address)]
    if routes:
        context.ok("egress", f"there is a route to the public internet by {' and '.join(routes)}")
    else:
        found = "this machine has no route to the public internet: feeds and callbacks there fail"
        context.warn("egress", found, "give it one, unless all of them are on your network")
    config = context.config.egress
    for key, networks in (
        ("allow_topics", config.topic_networks),
        ("allow_callbacks", config.callback_networks),
    ):
        # Strangers cannot reach a broker that is for this machine only.
        faults = [] if context.is_local else list(_too_open(networks))
        for fault in faults:
            advice = f"allow single addresses in {key} of [egress], or leave this one out"
            context.warn("egress", f"{key} allows {fault}", advice)
        if not faults and networks:
            shown = ", ".join(map(str, networks))
            context.ok("egress", f"{key} allows {shown} beside public addresses")
    _check_own_listeners(context)


def _too_open(networks: Sequence[Network]) -> Iterator[str]:
    """Clauses about allowed networks that let strangers reach too much."""
    for network in networks:
        for delicate, what in _DELICATE:
            if network.version == delicate.version and network.overlaps(delicate):
                yield f"{network}, and with it {what}, to every stranger"
                break
        else:
            if network.prefixlen < _WIDE[network.version]:
                yield f"{network}, which is {network.num_addresses:,} addresses, to every stranger"


def _check_own_listeners(context: CheckContext) -> None:
    """Whether the broker refuses to call itself."""
    config = context.config
    known = tuple(own_listeners(config.all_listen))
    guard = AddressGuard(config.egress.callback_networks, known)
    for address, port in known:
        target = address if is_address(address) and int(ip_address(address)) else "127.0.0.1"
        try:
            guard.check(target, port)
        except AddressRefused:
            continue
        found = f"a callback at {target} port {port}, which is this broker itself, would be called"
        context.fail("egress", found, "leave that address out of allow_callbacks")
    unknown = [each for each in config.all_listen if not each.startswith("unix:")]
    if len(unknown) > len(known) and config.egress.callback_networks:
        found = (
            "the port of an endpoint in 'listen' is not known in advance, so a callback to it in an"
            " allowed network is not refused"
        )
        context.warn("egress", found, "leave the broker's address out of allow_callbacks")


def _has_route(address: str) -> bool:
    """Whether this machine has a route to an address.  Nothing is sent."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 443))
    except OSError:
        return False
    return True


async def neighbours(context: CheckContext) -> None:
    """Whether the broker may call the targets of the relay, and what it follows.

    Nothing is sent to them.
    """
    config = context.config
    targets = list(_urls(config.sinks.get("relay", {}), "targets"))
    follows = config.front_doors.get("follows", {})
    sources = [*_urls(follows, "sources"), *_urls(follows, "feeds")]
    if targets and not identity(config.address):
        found = (
            f"the relay passes pings on without a name, since {config.address} means another "
            "machine everywhere else; so other brokers may send them back"
        )
        advice = "set public_url to the address by which other brokers reach this one"
        context.warn("neighbours", found, advice)
    resolver = Resolver(context.reactor, config.egress.name_servers)
    resolver.startService()
    try:
        for urls, networks, key, what in (
            (targets, config.egress.callback_networks, "allow_callbacks", "pings are passed on to"),
            (sources, config.egress.topic_networks, "allow_topics", "the broker follows"),
        ):
            await _check_urls(context, resolver, urls, networks, key, what)
    finally:
        resolver.stopService()


def _urls(table: Mapping[str, Any], key: str) -> Iterator[str]:
    """The URLs in a list of a plugin's options, up to a place for a parameter (``{url}``).

    It yields none if the plugin does not run.
    """
    if table.get("enabled", True):
        yield from (str(each["url"]).partition("{")[0] for each in table.get(key, ()))


async def _check_urls(
    context: CheckContext,
    resolver: Resolver,
    urls: list[str],
    networks: tuple[Network, ...],
    key: str,
    what: str,
) -> None:
    """Whether the broker may call some URLs; ``key`` is the option that allows networks."""
    known = tuple(own_listeners(context.config.all_listen))
    policy = URLPolicy(resolver, AddressGuard(networks, known), context.reactor)
    for url in urls:
        try:
            await policy.check(url)
        except AddressRefused as error:
            advice = f"correct the URL, or allow its address in {key} of [egress]"
            context.fail("neighbours", f"{what} {url}, which is refused: {error}", advice)
        else:
            context.ok("neighbours", f"{what} {url}")
