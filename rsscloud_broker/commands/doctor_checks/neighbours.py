"""Checks the servers that the operator names: targets of the relay, followed lists and feeds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Final

from rsscloud_broker.commands.doctor_checks.results import CheckContext, Result
from rsscloud_broker.config import Network
from rsscloud_broker.errors import AddressRefused
from rsscloud_broker.outbound import AddressGuard, Resolver, URLPolicy
from rsscloud_broker.outbound.guard import own_listeners
from rsscloud_broker.util.urls import identity

_NAME: Final = "neighbours"


async def neighbours(patient: CheckContext) -> AsyncIterator[Result]:
    """Whether the broker may call the targets of the relay, and what it follows.

    Nothing is sent to them.
    """
    config = patient.config
    targets = list(_urls(config.sinks.get("relay", {}), "targets"))
    follows = config.front_doors.get("follows", {})
    sources = [*_urls(follows, "sources"), *_urls(follows, "feeds")]
    if targets and not identity(config.address):
        found = (
            f"the relay passes pings on without a name, since {config.address} means another "
            "machine everywhere else; so other brokers may send them back"
        )
        advice = "set public_url to the address by which other brokers reach this one"
        yield Result("warn", _NAME, found, advice)
    resolver = Resolver(patient.reactor, config.egress.name_servers)
    resolver.startService()
    try:
        for urls, networks, key, what in (
            (targets, config.egress.callback_networks, "allow_callbacks", "pings are passed on to"),
            (sources, config.egress.topic_networks, "allow_topics", "the broker follows"),
        ):
            async for result in _check_urls(patient, resolver, urls, networks, key, what):
                yield result
    finally:
        resolver.stopService()


def _urls(table: Mapping[str, Any], key: str) -> Iterator[str]:
    """The URLs in a list of a plugin's options, up to a place for a parameter (``{url}``).

    It yields none if the plugin does not run.
    """
    if table.get("enabled", True):
        yield from (str(each["url"]).partition("{")[0] for each in table.get(key, ()))


async def _check_urls(
    patient: CheckContext,
    resolver: Resolver,
    urls: list[str],
    networks: tuple[Network, ...],
    key: str,
    what: str,
) -> AsyncIterator[Result]:
    """Whether the broker may call some URLs; ``key`` is the option that allows networks."""
    known = tuple(own_listeners(patient.config.all_listen))
    policy = URLPolicy(resolver, AddressGuard(networks, known), patient.reactor)
    for url in urls:
        try:
            await policy.check(url)
        except AddressRefused as error:
            advice = f"correct the URL, or allow its address in {key} of [egress]"
            yield Result("fail", _NAME, f"{what} {url}, which is refused: {error}", advice)
        else:
            yield Result("ok", _NAME, f"{what} {url}")
