"""Judges the clouds and hubs that a feed names, and says what their subscribers would get.

A feed names a cloud for rssCloud and a hub for WebSub.  Each may be the broker that examines the
feed, and then the broker knows whether the name is right; or it is somebody else's, and then it is
asked whether it answers.  Nothing here does input or output; ``feed_doctor`` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal
from urllib.parse import urlsplit

from attrs import frozen

from rsscloud_broker.client.feed_findings import Judgement
from rsscloud_broker.client.feed_requests import PERMANENT, FeedAnswer, Fetches
from rsscloud_broker.interfaces import Finding
from rsscloud_broker.util.urls import normal_form
from rsscloud_broker.wire import rsscloud, websub, xmlrpc
from rsscloud_broker.wire.links import HUB_PATHS
from rsscloud_broker.wire.text import in_bytes

#: The paths of a broker of this kind that take registrations, by the protocol of the registration;
#: the first of each is the one to advertise.
_CLOUD_PATHS: Final = {
    "http-post": rsscloud.REST_PATHS,
    "https-post": rsscloud.REST_PATHS,
    "xml-rpc": ("/RPC2", *xmlrpc.CALL_PATHS),
    "soap": (*rsscloud.SOAP_PATHS, *xmlrpc.CALL_PATHS),
}

#: The Content-Type of content whose server gave none, as the WebSub notifier sends it.
_UNLABELLED: Final = "application/octet-stream"


@frozen
class OwnBroker:
    """The broker for which feeds are examined.

    :ivar url: its URL, without a slash at the end.
    :ivar protocols: the protocols of rssCloud by which it notifies.
    :ivar has_hub: whether it is a WebSub hub.
    """

    url: str
    protocols: frozenset[str]
    has_hub: bool


@frozen
class Service:
    """A cloud or a hub that a feed names.

    :ivar url: where it takes registrations or subscriptions.
    :ivar protocol: the protocol of registrations at a cloud; empty for a hub.
    """

    kind: Literal["cloud", "hub"]
    url: str
    protocol: str = ""


def services_of(judgement: Judgement) -> list[Service]:
    """The clouds and hubs that a feed names, at most six."""
    clouds = judgement.facts.clouds if judgement.facts else ()
    found = [
        *(Service("cloud", cloud.url, cloud.protocol) for cloud in clouds),
        *(Service("hub", hub) for hub in judgement.hubs),
    ]
    # Feeds have one or two; strangers write as many as they like.
    return found[:6]


def own_finding(service: Service, broker: OwnBroker) -> Finding | None:
    """Whether a service is the broker itself, and whether the feed names it rightly.

    :returns: None if it is a service of somebody else.
    """
    there, own = urlsplit(normal_form(service.url)), urlsplit(normal_form(broker.url))
    if (there.scheme, there.netloc) != (own.scheme, own.netloc):
        return None
    paths = HUB_PATHS if service.kind == "hub" else _CLOUD_PATHS[service.protocol]
    right = f"{broker.url}{paths[0]}"
    path = there.path.removeprefix(own.path.rstrip("/"))
    if path.rstrip("/").lower() not in {known.rstrip("/").lower() for known in paths}:
        text = (
            f"The {service.kind} {service.url} is not where this broker takes"
            f" {_request_kind(service)}; write {right}."
        )
        return Finding("wrong", service.kind, text)
    if service.kind == "hub" and not broker.has_hub:
        text = f"The hub {service.url} is this broker, whose operator has turned the hub off."
        return Finding("wrong", "hub", text)
    if service.kind == "cloud" and not broker.protocols:
        text = f"The cloud {service.url} is this broker, whose operator has turned rssCloud off."
        return Finding("wrong", "cloud", text)
    text = f"The {service.kind} {service.url} is this broker, which takes {_request_kind(service)}."
    return Finding("good", service.kind, text)


def answer_finding(service: Service, answer: FeedAnswer) -> Finding:
    """What the answer to a plain GET says of a cloud or a hub of somebody else.

    Most of them answer a GET with 400 or 405, since they expect a POST.
    """
    at = f"The {service.kind} {service.url} answers with status {answer.status}"
    if answer.status in {404, 410}:
        text = f"{at}: there is no {service.kind} at this address. Correct the address in the feed."
        return Finding("wrong", service.kind, text)
    if answer.status >= 500:
        text = f"{at}, so it fails at present. Readers cannot subscribe until it works again."
        return Finding("wrong", service.kind, text)
    if answer.target:
        text = (
            f"{at}, a redirect to {answer.target}. Readers subscribe by POST, which many do not"
            " send again after a redirect. Write the new address into the feed."
        )
        return Finding("wrong", service.kind, text)
    return Finding("good", service.kind, f"{at}, so it can be reached.")


def detour_finding(service: Service, broker: OwnBroker) -> Finding:
    """The finding about a cloud or a hub that is the broker, by another address than its own."""
    text = (
        f"The {service.kind} {service.url} leads to this broker, but not by its public address"
        f" {broker.url}. Write that, since the other one may change."
    )
    return Finding("missing", service.kind, text)


def silence_finding(service: Service, reason: str) -> Finding:
    """The finding about a cloud or a hub that did not answer.

    :param reason: the error, which begins with the URL.
    """
    text = f"The {service.kind} cannot be reached: {reason}. Readers cannot subscribe there."
    return Finding("wrong", service.kind, text)


def stranger_findings(
    services: Sequence[Service], findings: Sequence[Finding | None], broker: OwnBroker
) -> Iterator[Finding]:
    """What to do if the feed names services, and none of them is the broker.

    :param findings: for each service what `own_finding` has returned.
    """
    if not services or any(findings):
        return
    text = (
        "None of the clouds and hubs of the feed is this broker. That is right if you ping them; if"
        f" you ping this broker, name {broker.url}{rsscloud.REST_PATHS[0]} as the cloud"
        + (f", and {broker.url}{HUB_PATHS[0]} as the hub." if broker.has_hub else ".")
    )
    yield Finding("missing", "this broker", text)


def subscriber_findings(
    fetches: Fetches, judgement: Judgement, broker: OwnBroker | None
) -> Iterator[Finding]:
    """What each kind of subscriber gets when the feed has changed.

    :param broker: the broker that notifies; None for the clouds and hubs that the feed names.
    """
    if judgement.facts is None:
        return
    topic, last = _topic_of(fetches), fetches.last
    # Those by which subscribers are notified, or register.
    protocols = broker.protocols if broker else {one.protocol for one in judgement.facts.clouds}
    if protocols:
        text = (
            f"Subscribers by rssCloud ({', '.join(sorted(protocols))}) get only the address"
            f" {topic}, and fetch the feed themselves."
        )
        yield Finding("good", "rssCloud subscribers", text)
    hub = f"{broker.url}{HUB_PATHS[0]}" if broker and broker.has_hub else ""
    if broker is None and judgement.hubs:
        hub = judgement.hubs[0]
    if hub:
        kind = last.headers.get("content-type", "") or _UNLABELLED
        text = (
            f"Subscribers by WebSub get a POST with all {in_bytes(last.body)} of the feed, with"
            f" Content-Type: {kind} and Link: {websub.link_header(hub, topic, '')}"
        )
        yield Finding("good", "WebSub subscribers", text)


def _topic_of(fetches: Fetches) -> str:
    """The URL by which a broker knows the feed: the target of its first permanent redirects."""
    url = fetches.redirects[0].url if fetches.redirects else fetches.last.url
    for answer in fetches.redirects:
        if answer.status not in PERMANENT:
            break
        url = answer.target
    return url


def _request_kind(service: Service) -> str:
    if service.kind == "hub":
        return "WebSub subscriptions"
    return f"registrations by {service.protocol}"
