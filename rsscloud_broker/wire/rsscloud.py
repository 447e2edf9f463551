"""Reads rssCloud registrations and pings, and writes the sentences with which they are answered.

A registration arrives as a form, as XML-RPC parameters or as a SOAP call; all three end in
:func:`intents_of`.  Clients compare some of the sentences, so those must not change.  Sources:
"SOAP meets RSS", the implementor's guide to rssCloud, and the answers of today's servers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from ipaddress import AddressValueError, IPv6Address
from typing import Any
from xml.sax.saxutils import quoteattr

from rsscloud_broker.model import Callback, Intent
from rsscloud_broker.model.hosts import host_of
from rsscloud_broker.wire.text import clean, text_of
from rsscloud_broker.wire.web_address import MAX_URL

#: The parameters of a registration by XML-RPC and SOAP, in their order.
REGISTRATION_FIELDS = ("notifyProcedure", "port", "path", "protocol", "urlList", "domain")

#: The paths of registrations by REST, and further ones of calls by SOAP; the first of each is the
#: one to advertise.
REST_PATHS = ("/rsscloud/pleaseNotify", "/pleaseNotify")
SOAP_PATHS = ("/soap", "/rssCloud", "/xmlStorageSystem")

#: The largest number of topics that one request may name.
MAX_TOPICS = 100

#: The largest number of topics at one host that one registration may name, since each is fetched.
MAX_OF_HOST = 25

REGISTERED = (
    "Thanks for the registration. It worked. When the resource updates we'll notify you. "
    "Don't forget to re-register after 24 hours, your subscription will expire in 25. "
    "Keep on truckin!"
)
PINGED = "Thanks for the ping."
NO_TOPICS = "No resources specified."

_HOST = re.compile(r"[^\s/?#@\[\]:]{1,255}")
_PROCEDURE = re.compile(r"(?=.{1,255}\Z)([\w./:-]*[./:])?[A-Za-z_][\w-]*", re.ASCII)

#: Hyphens that may not be in an XML comment.
_NO_COMMENT = re.compile(r"-(?=-|$)")


class BadRegistration(Exception):
    """A registration or ping is refused.

    The text is the sentence for the client.

    :ivar reason: what went wrong, for people, if the text is a sentence that clients compare;
        else empty.
    """

    def __init__(self, sentence: str, reason: str = "") -> None:
        super().__init__(sentence)
        self.reason = reason


class NotAllowed(BadRegistration):
    """The operator of the broker does not allow registrations or pings for that topic."""


class Limited(BadRegistration):
    """A registration or ping is refused because a limit on requests was reached.

    :ivar retry_after: seconds after which the client may try again.
    """

    def __init__(self, sentence: str, retry_after: int) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after


def missing(names: Iterable[str]) -> str:
    """The sentence for missing parameters."""
    return f"The following parameters were missing from the request body: {', '.join(names)}."


def unsupported_protocol(protocol: str) -> str:
    """The sentence for a protocol that the broker has no notifier for."""
    return f"Can't accept the subscription because the protocol, <i>{protocol}</i>, is unsupported."


def unreadable(what: str, url: str, rule: str = "") -> str:
    """The sentence for a topic that could not be read.

    :param what: ``subscription`` or ``ping``.
    :param rule: the rule by which the broker does not fetch such a URL, if that is the reason.
    """
    sentence = (
        f"The {what} was cancelled because there was an error reading the resource at URL {url}."
    )
    return f"{sentence} ({rule})" if rule else sentence


def callback_failed(rule: str = "") -> str:
    """The sentence for a callback that did not confirm.

    :param rule: the rule by which the broker does not call such a URL, if that is the reason.
    """
    sentence = "The subscription was cancelled because the call failed when we tested the handler."
    return f"{sentence} ({rule})" if rule else sentence


def too_soon(seconds: int) -> str:
    """The sentence for a ping within the pause that the operator set."""
    return f"A ping for this resource was received less than {seconds} seconds ago."


def limited(what: str, reason: str, seconds: int) -> str:
    """The sentence for a request that a limit refused.

    :param what: ``subscription`` or ``ping``.
    :param reason: which limit was reached, as a clause.
    :param seconds: after how many seconds the client may try again.
    """
    return f"The {what} was not accepted because {reason}. Try again in {seconds} seconds."


def intents_of(
    fields: Mapping[str, str], topics: Iterable[str], caller: str, protocols: Collection[str]
) -> list[Intent]:
    """Make the intents of a registration, one for each topic, from its fields.

    :param fields: ``notifyProcedure``, ``port``, ``path``, ``protocol`` and ``domain`` as the
        client sent them; absent ones may be left out.
    :param caller: the address that the request came from; the callback is there if the
        registration has no domain.
    :param protocols: the protocols of notifications that the broker offers.
    :raises BadRegistration: a field is missing or invalid; the text is for the client.
    """
    values = {name: clean(value) for name, value in fields.items()}
    absent = [name for name in ("port", "path", "protocol") if not values.get(name)]
    if absent:
        raise BadRegistration(missing(absent))
    protocol = values["protocol"]
    if protocol not in protocols:
        raise BadRegistration(unsupported_protocol(protocol))
    distinct_topics = distinct(topics)
    if not distinct_topics:
        raise BadRegistration(NO_TOPICS)
    if max(Counter(map(host_of, distinct_topics)).values()) > MAX_OF_HOST:
        raise BadRegistration(
            f"One request may name at most {MAX_OF_HOST} resources of one host; send several."
        )
    procedure = _check_procedure(protocol, values.get("notifyProcedure", ""))
    domain = values.get("domain", "")
    url = _callback_url(protocol, domain or caller, values["port"], values["path"])
    # Servers of XML-RPC and SOAP seldom answer a GET.  If they name the address that they call
    # from, the callback is their own, as it is without a domain.
    host = domain.rpartition("://")[2]
    challenge = bool(domain) and not (
        procedure and caller and _host_in_url(host) == _host_in_url(caller)
    )
    callback = Callback(url, protocol, procedure)
    # A registration lasts 25 hours, as subscribers renew it every 24.
    return [Intent(topic, callback, 90_000, challenge, caller) for topic in distinct_topics]


def distinct(topics: Iterable[str]) -> tuple[str, ...]:
    """The topics that a client named, each once and without empty ones.

    :raises BadRegistration: there are too many topics, or the URL of one is too long.
    """
    found = tuple(dict.fromkeys(filter(None, map(clean, topics))))
    if len(found) > MAX_TOPICS:
        raise BadRegistration(f"One request may name at most {MAX_TOPICS} resources; send several.")
    if any(len(url) > MAX_URL for url in found):
        raise BadRegistration(f"The URL of a resource may have at most {MAX_URL} characters.")
    return found


def _check_procedure(protocol: str, name: str) -> str:
    """The procedure to call at the callback; empty for protocols without procedures."""
    if protocol not in {"xml-rpc", "soap"}:
        return ""
    if not name:
        raise BadRegistration(missing(["notifyProcedure"]))
    if not _PROCEDURE.fullmatch(name):
        raise BadRegistration(
            "The notifyProcedure must be a name of letters, digits and _ . - / :, "
            f"whose last part begins with a letter, not {name[:80]!r}."
        )
    return name


def _callback_url(protocol: str, domain: str, port_text: str, path: str) -> str:
    """The URL of a callback from its parts; BadRegistration if they make none."""
    port = int(port_text) if re.fullmatch("[0-9]{1,5}", port_text) else 0
    if not 1 <= port <= 65535:
        raise BadRegistration(f"The port must be a number from 1 to 65535, not {port_text[:80]!r}.")
    scheme, separator, host = domain.rpartition("://")
    if separator and scheme.lower() not in {"http", "https"}:
        raise BadRegistration(
            f"The domain must be called by http or https, not by {scheme[:80]!r}."
        )
    secure = scheme.lower() == "https" or protocol == "https-post" or port == 443
    joint = "" if path.startswith("/") else "/"
    url = f"{'https' if secure else 'http'}://{_host_in_url(host)}:{port}{joint}{path}"
    if len(url) > MAX_URL:
        raise BadRegistration(f"The URL of a callback may have at most {MAX_URL} characters.")
    return url


def _host_in_url(text: str) -> str:
    """A host as a URL has it: an IPv6 address in brackets; BadRegistration if it is none."""
    host = text.rstrip("/").strip("[]")
    try:
        address = IPv6Address(host)
    except AddressValueError:
        pass
    else:
        return str(address.ipv4_mapped or f"[{address}]")
    if not _HOST.fullmatch(host):
        raise BadRegistration(
            f"The domain must be a host name or an address and nothing more, not {text[:80]!r}."
        )
    return host


def fields_from_parameters(
    procedure: str, parameters: Sequence[Any]
) -> tuple[dict[str, str], list[str]]:
    """Read the parameters of a pleaseNotify call by XML-RPC.

    They are ``(notifyProcedure, port, path, protocol, urlList[, domain])``; the port is an int or
    a string, the list an array or one string.

    :returns: the fields and the topics, for :func:`intents_of`.
    :raises BadRegistration: there are too few or too many parameters, or one has a wrong type.
    """
    check_count(procedure, parameters, 5, 6)
    return fields_from_values(dict(zip(REGISTRATION_FIELDS, parameters, strict=False)))


def fields_from_values(values: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
    """Read the parameters of a pleaseNotify call by name, as in SOAP.

    :returns: the fields and the topics, for :func:`intents_of`.
    :raises BadRegistration: a parameter has a wrong type.
    """
    fields = {
        name: _parameter_text(name, values.get(name))
        for name in ("notifyProcedure", "port", "path", "protocol", "domain")
    }
    return fields, _topics_in_list(values.get("urlList"))


def check_count(procedure: str, parameters: Sequence[Any], least: int, most: int) -> None:
    """Check the number of parameters of a call.

    :raises BadRegistration: there are too few or too many; the text is that of today's servers.
    """
    if least <= len(parameters) <= most:
        return
    problem = "there aren't enough" if len(parameters) < least else "there are too many"
    raise BadRegistration(f'Can\'t call "{procedure}" because {problem} parameters.')


def _parameter_text(name: str, value: Any) -> str:
    """A parameter as text, empty if it is absent; BadRegistration if it is no text or number."""
    if value is None or value is False:
        return ""  # some clients send false for "no procedure"
    text = text_of(value)
    if text is None:
        raise BadRegistration(f"The parameter {name} must be a string.")
    return text


def _topics_in_list(value: Any) -> list[str]:
    """The topics in ``urlList``; BadRegistration if it has something else than texts."""
    if isinstance(value, dict):  # SOAP clients without arrays give each topic a name
        value = list(value.values())
    values = value if isinstance(value, list) else [value] if value else []
    topics = [text for text in map(text_of, values) if text is not None]
    if len(topics) < len(values):
        raise BadRegistration("The parameter urlList must be a list of strings.")
    return topics


def topics_of_form(form: Iterable[tuple[str, str]]) -> list[str]:
    """The topics of a REST registration or ping.

    They are the values of the keys that begin with ``url``, in the order of the keys' numbers.

    :param form: pairs of a key, in lower case, and a value; a key may come several times.
    """
    named = [(key, value) for key, value in form if key.startswith("url")]
    return [value for key, value in sorted(named, key=lambda pair: _key_number(pair[0]))]


def _key_number(key: str) -> int:
    """The number in a key such as ``url2``; 0 if it has none."""
    digits = key.removeprefix("url")
    return int(digits) if re.fullmatch("[0-9]{1,9}", digits) else 0


def result_document(
    root: str, *, success: bool, msg: str, reason: str = "", url: str = ""
) -> bytes:
    """The XML answer of the REST interface.

    :param root: the name of the root element, ``notifyResult`` or ``result``.
    :param success: whether the request succeeded.
    :param msg: the sentence for the client.
    :param reason: why the request failed, for people; it becomes a comment, which programs ignore.
    :param url: the URL of what was saved; empty if nothing was.
    """
    comment = f"<!-- {_NO_COMMENT.sub('- ', reason)} -->\n" if reason else ""
    attributes = f'success="{str(success).lower()}" msg={quoteattr(msg)}'
    if url:
        attributes += f" url={quoteattr(url)}"
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<{root} {attributes}/>\n{comment}'.encode()
