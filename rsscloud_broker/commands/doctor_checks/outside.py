"""Checks the public URL from outside in: addresses, proxies, and certificates with their dates.

The doctor asks the running broker through its public URL how the request arrived (see
``wire.self_test``), as a publisher or a subscriber would call it.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from secrets import token_urlsafe
from typing import Final
from urllib.parse import urlsplit

from cryptography import x509

from rsscloud_broker.client.feed_requests import FeedAnswer
from rsscloud_broker.client.web import ClientError
from rsscloud_broker.commands.doctor_checks.results import CheckContext, Result
from rsscloud_broker.config import ConfigError, Network
from rsscloud_broker.http import certificates as certificate_files
from rsscloud_broker.http.listening import SYSTEMD
from rsscloud_broker.outbound.guard import own_listeners
from rsscloud_broker.policy.addresses import address_of
from rsscloud_broker.runtime import start_checks
from rsscloud_broker.runtime.self_test import read_key
from rsscloud_broker.util.urls import is_localhost
from rsscloud_broker.wire import self_test

#: Seconds for a connection to one address.
_SECONDS: Final = 5.0

#: An address for documentation (RFC 5737), which no real client has.
_FORGED: Final = "192.0.2.99"

_DOOR: Final = "set enabled = true in [front_doors.doctor] to have this checked"


async def public_url(context: CheckContext) -> None:
    """Whether a request to the public URL arrives at this broker."""
    config = context.config
    url = config.address
    if config.public_url is None:
        found = start_checks.DERIVED_URL.format(url=url)
        context.warn("public URL", found.rstrip("."))
    context.results += await context.in_thread(_find_unreachable, url)
    if not context.runs:
        return
    if "doctor" not in context.doors:
        context.warn("public URL", "the self-test of the broker is turned off", _DOOR)
        return
    try:
        key = read_key(config.data)
    except OSError as error:
        found = f"the key of the self-test cannot be read: {error}"
        advice = "run the doctor as the broker's user; an older broker has no key: restart it"
        context.warn("public URL", found, advice)
        return
    try:
        context.arrived = await _ask_how_it_arrived(context, key, {})
    except (ClientError, self_test.WrongBroker) as error:
        advice = "see whether public_url, the name, the firewall and the proxy lead to this broker"
        found = f"a request to {url} does not arrive at this broker: {error}"
        context.fail("public URL", found, advice)
        return
    context.ok("public URL", f"a request to {url} arrives at this broker")
    _find_changes_by_proxy(context, context.arrived)


async def _ask_how_it_arrived(
    context: CheckContext, key: bytes, headers: Mapping[str, str]
) -> dict[str, str]:
    """Ask the broker through its public URL how the request arrived.

    :raises ClientError, WrongBroker: there was no answer, or somebody else has answered.
    """
    nonce = token_urlsafe(16)
    query = self_test.question(key, nonce, context.clock.wall_seconds())
    base = f"{context.config.address}{self_test.PATH}"
    answer = await context.ask(f"{base}?{query}", headers)
    if answer.status != 200:
        raise self_test.WrongBroker(_why_not_ours(answer))
    return self_test.read_answer(key, nonce, answer.body)


def _why_not_ours(answer: FeedAnswer) -> str:
    """Why an answer is not that of this broker, as a clause."""
    server = answer.headers.get("server", "")
    by = f", by {server}" if server else ""
    if answer.target:
        where = answer.target.partition("?")[0].removesuffix(self_test.PATH)
        return f"it is redirected to {where}{by}; if that is right, set public_url to it"
    if answer.status in {502, 503, 504}:
        return f"the answer has status {answer.status}{by}: the proxy cannot reach the broker"
    if answer.status == 404:
        return f"the answer has status 404{by}, so another program or another broker answers"
    return f"the answer has status {answer.status}{by}"


def _find_unreachable(url: str) -> list[Result]:
    """A result for each address of the public URL that accepts no connection, if others do.

    For instance, the name may have an IPv6 address, and the proxy listens only by IPv4.
    """
    parts = urlsplit(url)
    if is_localhost(parts.hostname or ""):
        return []
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        found = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except OSError:
        return []  # the check of names has said so
    addresses = {str(each[4][0]) for each in found}
    results = []
    for address in sorted(addresses):
        try:
            socket.create_connection((address, port), _SECONDS).close()
        except OSError as error:
            text = f"{parts.hostname} has the address {address}, where port {port} does not answer"
            advice = "have the proxy listen there, or remove the address from the name"
            results.append(Result("warn", "public URL", f"{text}: {error}", advice))
    return results if len(results) < len(addresses) else []  # else the request says why


def _find_changes_by_proxy(context: CheckContext, arrived: Mapping[str, str]) -> None:
    """What a proxy has changed that it should not."""
    wanted = urlsplit(context.config.address)
    host = urlsplit(f"//{arrived['host']}")
    if host.netloc != wanted.netloc and host.hostname != wanted.hostname:
        context.warn(
            "proxy",
            f"the request to {wanted.netloc} arrives for the host {arrived['host'] or '(none)'}",
            "have the proxy pass the host on (nginx: proxy_set_header Host $host)",
        )
    expected = f"{wanted.path}{self_test.PATH}"
    if arrived["path"] not in {expected, self_test.PATH}:
        found = f"the path {expected} arrives as {arrived['path']}"
        context.warn("proxy", found, "have the proxy pass paths on as they are")
    scheme = arrived["forwarded_proto"]
    if scheme and scheme != wanted.scheme:
        context.warn(
            "proxy",
            f"the request by {wanted.scheme} is said to have come by {scheme}",
            f"set public_url to {scheme}://{wanted.netloc}, or correct X-Forwarded-Proto",
        )


async def proxy(context: CheckContext) -> None:
    """Whether the broker learns the addresses of its callers, and nobody can forge one."""
    arrived = context.arrived
    if arrived is None:  # an earlier check has said why
        return
    peer, given = arrived["peer"], arrived["forwarded_for"]
    if not given:
        _judge_without_header(context, arrived)
        return
    trusted = context.config.http.proxy_networks
    last = given.rpartition(",")[2].strip()
    if arrived["client"] == peer and not _is_within(peer, trusted) and last != peer:
        context.fail(
            "proxy",
            f"the proxy at {peer} says that the caller is {last}, but is not trusted, so the broker"
            " takes all callers for one",
            f'set trusted_proxies = ["{peer}"] in [http]',
        )
        return
    key = read_key(context.config.data)
    forged = await _ask_how_it_arrived(context, key, {"X-Forwarded-For": _FORGED})
    hops = [hop.strip() for hop in forged["forwarded_for"].split(",")]
    if forged["client"] == _FORGED and hops == [_FORGED]:
        context.fail(
            "proxy",
            "the proxy passes on whatever X-Forwarded-For a caller writes, so callers can forge"
            " their addresses",
            "have it add the caller's address"
            " (nginx: proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for)",
        )
        return
    shown = last if _is_within(last, trusted) else arrived["client"]
    found = f"the broker learns the addresses of callers from the proxy (this one: {shown})"
    context.ok("proxy", found)


def _judge_without_header(context: CheckContext, arrived: Mapping[str, str]) -> None:
    """Judge a request that came without ``X-Forwarded-For``."""
    parts = urlsplit(context.config.address)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    peer = arrived["peer"] or "a UNIX socket"
    listen = context.config.listen
    is_own_port = port in {number for _, number in own_listeners(listen)}
    # The port of a socket of systemd is not known, but without TLS no proxy is needed for it.
    may_be_own = any(each.startswith(SYSTEMD) for each in listen) or arrived["scheme"] == "https"
    if arrived["peer"] and (is_own_port or (may_be_own and parts.scheme == arrived["scheme"])):
        context.ok("proxy", f"requests come without a proxy (this one from {peer})")
        return
    context.warn(
        "proxy",
        f"the broker does not itself listen on port {port}, and the request came from {peer}"
        " without X-Forwarded-For: if that is a proxy, the broker takes all callers for one",
        "have the proxy send X-Forwarded-For, or ignore this if the port is only forwarded",
    )


def _is_within(host: str, networks: tuple[Network, ...]) -> bool:
    """Whether a host is in some networks; also if it is no address, as for a UNIX socket."""
    address = address_of(host)
    return address is None or any(address in network for network in networks)


# --- certificates -----------------------------------------------------------


async def certificates(context: CheckContext) -> None:
    """Until when the certificates are valid: that of the public URL, and those of endpoints."""
    parts = urlsplit(context.config.address)
    if parts.scheme == "https" and parts.hostname:
        where = f"the certificate of {parts.netloc}"
        try:
            found = await context.in_thread(_fetch_certificate, parts.hostname, parts.port or 443)
            _judge_dates(context, where, found)
        except (OSError, ValueError) as error:
            advice = "see whether something speaks TLS there"
            context.fail("certificate", f"{where} cannot be read: {error}", advice)
    for description in context.config.all_listen:
        if not description.startswith(certificate_files.TLS):
            continue
        try:
            options = certificate_files.tls_options(description, context.reactor)
        except ConfigError as error:
            context.fail("certificate", f"{description}: {error}")
            continue
        file = certificate_files.certificate_of(options)
        if file is not None:
            where = f"the certificate of {description}"
            _judge_dates(context, where, file)


def _fetch_certificate(host: str, port: int) -> x509.Certificate:
    """The certificate that a server shows, valid or not."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the request has checked it; here its dates matter
    with (
        socket.create_connection((host, port), _SECONDS) as connection,
        context.wrap_socket(connection, server_hostname=host) as tls,
    ):
        return x509.load_der_x509_certificate(tls.getpeercert(binary_form=True) or b"")


def _judge_dates(context: CheckContext, where: str, certificate: x509.Certificate) -> None:
    """Judge the dates of a certificate; ``where`` says whose it is."""
    ends = certificate.not_valid_after_utc
    moment = datetime.fromtimestamp(context.clock.wall_seconds(), UTC)
    days = (ends - moment).days
    until = f"until {ends:%Y-%m-%d %H:%M} UTC"
    if certificate.not_valid_before_utc > moment:
        begins = f"{certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
        advice = "see whether the clock is right, or use another certificate"
        context.fail("certificate", f"{where} is not valid before {begins}", advice)
    elif ends <= moment:
        found = f"{where} was valid {until}"
        context.fail("certificate", found, "renew it, and reload the server that uses it")
    elif days < 14:  # a certificate that ends so soon is worth a warning
        found = f"{where} is valid only {until}, {days} more days"
        context.warn("certificate", found, "see whether it is renewed automatically")
    else:
        context.ok("certificate", f"{where} is valid {until}, {days} more days")
