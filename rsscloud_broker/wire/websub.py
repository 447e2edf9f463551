"""Reads and writes the messages of WebSub: requests to the hub, and the hub's calls to callbacks.

A subscriber or a publisher sends the hub a form::

    hub.mode=subscribe&hub.topic=http://example.org/rss.xml
        &hub.callback=http://reader.example/websub/8f31&hub.secret=sesame

The hub verifies the intent at the callback, which confirms it by repeating the challenge::

    GET /websub/8f31?hub.mode=subscribe&hub.topic=http%3A%2F%2Fexample.org%2Frss.xml
        &hub.challenge=x91&hub.lease_seconds=864000

From then on the hub sends the callback the content of the topic::

    POST /websub/8f31
    Link: <http://broker.example/websub>; rel="hub", <http://example.org/rss.xml>; rel="self"
    X-Hub-Signature: sha256=5f1c...

Sources: WebSub (W3C Recommendation, 2018); PubSubHubbub 0.3 and 0.4, for
``hub.verify``, ``hub.verify_token`` and ``sha1``.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final
from urllib.parse import quote, urldefrag, urlencode, urlsplit

from attrs import field, frozen

from rsscloud_broker.wire import links
from rsscloud_broker.wire.text import clean
from rsscloud_broker.wire.web_address import MAX_URL

# The names of the options of a WebSub subscription.

#: The secret that signs notifications; without it they are not signed.
SECRET: Final = "secret"  # noqa: S105 # the name of an option
#: The method of the signature, one of ``METHODS``, if it is not the default.
METHOD: Final = "method"
#: The URL of the hub that the subscriber used.
HUB: Final = "hub"
#: The token of a PubSubHubbub 0.3 subscriber, which the hub repeats when it verifies the intent.
VERIFY_TOKEN: Final = "verify_token"  # noqa: S105 # the name of an option

#: The header with the signature of a notification (section 7.1 of WebSub), in lower case.
SIGNATURE: Final = "x-hub-signature"

#: The methods of signatures, the default first (section 7.1 of WebSub).
METHODS: Final = ("sha256", "sha384", "sha512", "sha1")

#: A secret must have fewer bytes than this (section 5.1 of WebSub).
SECRET_BYTES: Final = 200

#: A longer lease, in seconds, is taken for this one, however many digits it has.
_ENDLESS = 10**12

_MODES = ("subscribe", "unsubscribe", "publish")


class BadRequest(ValueError):
    """A field of a request is missing or invalid.  The text is for the sender."""


@frozen
class HubRequest:
    """A request to a hub, from a subscriber or a publisher.

    :ivar mode: ``subscribe``, ``unsubscribe`` or ``publish``.
    :ivar secret: the secret that signs notifications; empty for none.
    :ivar lease_seconds: the lease that the subscriber asks for; None if the hub may choose.
    :ivar verify: ``sync`` and ``async``, the one that the client prefers first; only clients of
        PubSubHubbub 0.3 send them.
    :ivar urls: the topics that the publisher says have changed.
    """

    mode: str
    callback: str = ""
    topic: str = ""
    secret: str = field(default="", repr=False)
    lease_seconds: int | None = None
    verify: tuple[str, ...] = ()
    verify_token: str = field(default="", repr=False)
    urls: tuple[str, ...] = ()

    @property
    def options(self) -> dict[str, str]:
        """The options to store with the subscription, without the hub's URL."""
        options = {SECRET: self.secret, VERIFY_TOKEN: self.verify_token}
        if self.verify:  # only clients of PubSubHubbub 0.3 send it, and they know sha1 only
            options[METHOD] = "sha1"
        return {name: value for name, value in options.items() if value}


@frozen
class HubCall:
    """A hub's GET to a callback: a verification of intent or a denial (sections 5.2 and 5.3).

    :ivar mode: ``subscribe``, ``unsubscribe`` or ``denied``.
    :ivar lease_seconds: the lease of a subscription; 0 if the hub gives none.
    :ivar reason: the reason of a denial.
    """

    mode: str
    topic: str
    challenge: str = ""
    lease_seconds: int = 0
    reason: str = ""


# --- requests to the hub ----------------------------------------------------


def parse_request(fields: Iterable[tuple[str, str]]) -> HubRequest:
    """Read a form that was sent to a hub; unknown fields are ignored.

    :param fields: pairs of a name, in lower case, and a value, in the order of the form; a value
        that was not UTF-8 has lone surrogates.
    :raises BadRequest: a field is missing or invalid.
    """
    values = _values_by_name(fields)
    mode = _single_value(values, "hub.mode")
    if not mode:
        raise BadRequest(f"hub.mode is missing: send one of {_among(_MODES)}.")
    if mode not in _MODES:
        raise BadRequest(f"hub.mode is {clean(mode)[:50]!r}: it must be one of {_among(_MODES)}.")
    if mode == "publish":
        named = [(name, url) for name in ("hub.url", "hub.topic") for url in values.get(name, ())]
        if not named:
            raise BadRequest("Nothing is published: send hub.url, the URL of what changed.")
        urls = dict.fromkeys(_check_length(name, _check_storable(name, url)) for name, url in named)
        return HubRequest(mode, urls=tuple(urls))
    return HubRequest(
        mode,
        callback=_callback(_required(values, "hub.callback", "callback")),
        topic=_required(values, "hub.topic", "topic"),
        secret=_secret(_single_value(values, "hub.secret")),
        # The hub ignores the lease of an unsubscription (section 5.1).
        lease_seconds=_lease(_single_value(values, "hub.lease_seconds"))
        if mode == "subscribe"
        else None,
        verify=_verify(values.get("hub.verify", ())),
        verify_token=_check_length("hub.verify_token", _single_value(values, "hub.verify_token")),
    )


def _values_by_name(fields: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """The values of each name; empty values count as absent."""
    values: dict[str, list[str]] = {}
    for name, value in fields:
        if value:
            values.setdefault(name, []).append(value)
    return values


def _single_value(values: Mapping[str, Sequence[str]], name: str) -> str:
    """The only value of a field, empty if it is absent; BadRequest if there are several."""
    found = values.get(name, [""])
    if len(found) > 1:
        raise BadRequest(f"{name} came {len(found)} times: send it once.")
    return _check_storable(name, found[0])


def _required(values: Mapping[str, Sequence[str]], name: str, what: str) -> str:
    """The URL in a field; BadRequest if it is missing, too long, or there are several."""
    url = _single_value(values, name)
    if not url:
        raise BadRequest(f"{name} is missing: send the URL of the {what}.")
    return _check_length(name, url)


def _check_storable(name: str, value: str) -> str:
    """Return a value; BadRequest if it cannot be stored and sent back unchanged."""
    if "\0" in value:
        raise BadRequest(f"{name} has a NUL in it: leave that out.")
    try:
        value.encode()
    except UnicodeEncodeError:
        complaint = f"{name} is not UTF-8: write it in UTF-8, then percent-encode that."
        raise BadRequest(complaint) from None
    return value


def _callback(url: str) -> str:
    """Return the URL of a callback; BadRequest if nobody can call it."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme.lower() in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        usable = False
    if not usable:
        raise BadRequest(
            "hub.callback is not an absolute URL: it must begin with http:// or https:// "
            "and name a host."
        )
    if "#" in url:
        raise BadRequest("hub.callback has a fragment, which cannot be called: leave out the #.")
    return url


def _secret(secret: str) -> str:
    """The secret; BadRequest if it is too long."""
    if len(secret.encode()) >= SECRET_BYTES:
        raise BadRequest(
            f"hub.secret has {len(secret.encode())} bytes: it must have fewer than {SECRET_BYTES}."
        )
    return secret


def _lease(text: str) -> int | None:
    """The seconds of the lease; None if none is asked for, BadRequest if it is no number."""
    if not text:
        return None
    seconds = _seconds(text)
    if seconds is None:
        raise BadRequest("hub.lease_seconds is no number of seconds: send decimal digits alone.")
    return seconds


def _seconds(text: str) -> int | None:
    """A number of seconds; None if the text is not one."""
    if not (text.isascii() and text.isdigit()):
        return None
    return int(text) if len(text) <= len(str(_ENDLESS)) else _ENDLESS


def _verify(values: Iterable[str]) -> tuple[str, ...]:
    """The modes of verification that a client of PubSubHubbub 0.3 names, in its order."""
    # The field may be repeated; some clients put several words into one.
    words = [word.strip().lower() for value in values for word in value.split(",")]
    return tuple(dict.fromkeys(word for word in words if word in {"sync", "async"}))


def _check_length(name: str, value: str) -> str:
    """Return the value of a field; BadRequest if it is too long."""
    if len(value) > MAX_URL:
        raise BadRequest(f"{name} has {len(value)} characters: it must have {MAX_URL} or fewer.")
    return value


def _among(words: Sequence[str]) -> str:
    """Words as a list in a sentence."""
    return f"{', '.join(words[:-1])} and {words[-1]}"


# --- the hub's calls to a callback ------------------------------------------


def verification_url(
    callback: str,
    mode: str,
    topic: str,
    challenge: str,
    lease_seconds: int | None = None,
    verify_token: str = "",
) -> str:
    """The URL by which the hub verifies an intent at a callback: section 5.3 of WebSub.

    :param mode: ``subscribe`` or ``unsubscribe``.
    :param lease_seconds: the lease that the hub grants; None to unsubscribe.
    """
    query = {"hub.mode": mode, "hub.topic": topic, "hub.challenge": challenge}
    if lease_seconds is not None:
        query["hub.lease_seconds"] = str(lease_seconds)
    if verify_token:
        query["hub.verify_token"] = verify_token
    return with_query(callback, query)


def denial_url(callback: str, topic: str, reason: str) -> str:
    """The URL by which the hub tells a callback of a denial: section 5.2 of WebSub."""
    return with_query(
        callback, {"hub.mode": "denied", "hub.topic": topic, "hub.reason": clean(reason)}
    )


def with_query(url: str, query: Mapping[str, str]) -> str:
    """A URL with more parameters after its own, and without its fragment."""
    url = urldefrag(url).url if "#" in url else url
    joint = "" if url.endswith(("?", "&")) else "&" if "?" in url else "?"
    return f"{url}{joint}{urlencode(query, quote_via=quote)}"


def parse_call(fields: Iterable[tuple[str, str]]) -> HubCall:
    """Read a hub's GET to a callback, whose URL ``verification_url`` or ``denial_url`` has made.

    :param fields: the parameters of the query; of several with one name, the first counts.
    :raises BadRequest: a parameter is missing or invalid.
    """
    values = dict(reversed(list(fields)))  # the first of several
    call = HubCall(
        values.get("hub.mode", ""),
        values.get("hub.topic", ""),
        values.get("hub.challenge", ""),
        _seconds(values.get("hub.lease_seconds", "")) or 0,
        clean(values.get("hub.reason", "")),
    )
    if call.mode not in {"subscribe", "unsubscribe", "denied"} or not call.topic:
        raise BadRequest("hub.mode and hub.topic must come here, as a hub sends them.")
    if call.mode != "denied" and not call.challenge:
        raise BadRequest("hub.challenge is missing.")
    return call


# --- headers of notifications -----------------------------------------------


def sign(body: bytes, secret: str, method: str = METHODS[0]) -> str:
    """The value of ``X-Hub-Signature``: section 7.1 of WebSub.

    :param method: one of ``METHODS``.
    """
    return f"{method}={hmac.new(secret.encode(), body, method).hexdigest()}"


def is_signed(signature: str, body: bytes, secret: str) -> bool:
    """Whether a signature is that of a body, made with a secret."""
    method, _, digest = signature.strip().partition("=")
    if method.lower() not in METHODS:
        return False
    expected = sign(body, secret, method.lower()).partition("=")[2]
    return hmac.compare_digest(digest.strip().lower().encode(), expected.encode())


@lru_cache(maxsize=100)  # all subscribers of a topic get the same header
def link_header(hub: str, topic: str, given: str = "") -> str:
    """The value of the one Link header of a notification: section 7 of WebSub.

    :param hub: the URL of the hub; empty if it is not known.
    :param given: the value of the publisher's own Link header, for pushed content.  Its links come
        first and replace those of the same relation.  It is left out if it cannot be parsed.  Its
        tabs become spaces, which mean the same (RFC 9110, section 5.5).
    """
    given = clean(given)
    try:
        known = {relation for link in links.parse(given) for relation in link.relations}
    except links.MalformedLink:
        given, known = "", set()
    wanted = [(url, rel) for url, rel in ((hub, "hub"), (topic, "self")) if url]
    ours = links.encode((url, rel) for url, rel in wanted if rel not in known)
    return ", ".join(filter(None, (given.strip(" ,"), ours)))
