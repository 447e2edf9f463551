"""rssCloud: what a registration says, and the sentences that clients match.

The same registration arrives as a form, as XML-RPC parameters or as a SOAP
call; all three end in :func:`registration`.  Sources: "SOAP meets RSS", the
implementor's guide to rssCloud, and what today's servers answer.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from ipaddress import AddressValueError, IPv6Address
from typing import Any
from xml.sax.saxutils import quoteattr

from attrs import frozen

from rsscloud_broker.model import Callback, Intent
from rsscloud_broker.wire.text import clean, text_of
from rsscloud_broker.wire.web_address import MAX_URL

#: 25 hours: registrations are renewed every 24.
LEASE_SECONDS = 90_000

#: The parameters of a registration by XML-RPC and SOAP, in their order.
REGISTRATION_FIELDS = ("notifyProcedure", "port", "path", "protocol", "urlList", "domain")

#: How many topics one registration may name.
MAX_TOPICS = 250

REGISTERED = (
    "Thanks for the registration. It worked. When the resource updates we'll notify you. "
    "Don't forget to re-register after 24 hours, your subscription will expire in 25. "
    "Keep on truckin!"
)
PINGED = "Thanks for the ping."
NO_TOPICS = "No resources specified."

_HOST = re.compile(r"[^\s/?#@\[\]:]{1,255}")
_PROCEDURE = re.compile(r"(?=.{1,255}\Z)([\w./:-]*[./:])?[A-Za-z_][\w-]*", re.ASCII)
_SECURE_PORT = 443

#: What would end a comment.
_NO_COMMENT = re.compile(r"-(?=-|$)")


class BadRegistration(Exception):
    """A registration or ping that says too little or something impossible.

    Its text is what the client is told.

    :ivar reason: what went wrong, for people, where the text is a sentence that clients
        compare letter by letter; else empty.
    """

    def __init__(self, sentence: str, reason: str = "") -> None:
        super().__init__(sentence)
        self.reason = reason


class NotAllowed(BadRegistration):
    """The operator of the broker does not allow it for that topic."""


class Limited(BadRegistration):
    """A registration or ping that is one too many for now.

    :ivar retry_after: seconds after which it may be tried again.
    """

    def __init__(self, sentence: str, retry_after: int) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after


@frozen
class Registration:
    """What a subscriber asked for: several topics, one callback.

    :ivar source: the address that the request came from.
    """

    topics: tuple[str, ...]
    callback: Callback
    challenge: bool
    source: str

    def intents(self) -> list[Intent]:
        """The same, topic by topic."""
        return [
            Intent(topic, self.callback, LEASE_SECONDS, self.challenge, self.source)
            for topic in self.topics
        ]


def missing(names: Iterable[str]) -> str:
    """The sentence that names missing parameters."""
    return f"The following parameters were missing from the request body: {', '.join(names)}."


def unsupported_protocol(protocol: str) -> str:
    """The sentence for a protocol that no notifier carries."""
    return f"Can't accept the subscription because the protocol, <i>{protocol}</i>, is unsupported."


def unreadable(what: str, url: str, rule: str = "") -> str:
    """The sentence for a topic that could not be read.

    :param what: ``subscription`` or ``ping``.
    :param rule: why the broker does not read such a URL, if that is the reason.
    """
    sentence = (
        f"The {what} was cancelled because there was an error reading the resource at URL {url}."
    )
    return _with_rule(sentence, rule)


def callback_failed(rule: str = "") -> str:
    """The sentence for a callback that did not confirm.

    :param rule: why the broker does not call such a URL, if that is the reason.
    """
    sentence = "The subscription was cancelled because the call failed when we tested the handler."
    return _with_rule(sentence, rule)


def _with_rule(sentence: str, rule: str) -> str:
    """A sentence that clients match, and what is said beside it."""
    return f"{sentence} ({rule})" if rule else sentence


def too_soon(seconds: int) -> str:
    """The sentence for a ping within the pause that the operator set."""
    return f"A ping for this resource was received less than {seconds} seconds ago."


def limited(what: str, reason: str, seconds: int) -> str:
    """The sentence for what is one too many.

    :param what: ``subscription`` or ``ping``.
    :param reason: which limit was reached, as a clause.
    :param seconds: when it may be tried again.
    """
    return f"The {what} was not accepted because {reason}. Try again in {seconds} seconds."


def registration(
    fields: Mapping[str, str],
    topics: Iterable[str],
    caller: str,
    protocols: Collection[str],
) -> Registration:
    """Make a registration of its fields.

    :param fields: ``notifyProcedure``, ``port``, ``path``, ``protocol``,
        ``domain`` as they came; absent ones may be left out.
    :param caller: the address the request came from.
    :param protocols: those that are offered here.
    :raises BadRegistration: with the sentence for the client.
    """
    values = {name: clean(value) for name, value in fields.items()}
    absent = [name for name in ("port", "path", "protocol") if not values.get(name)]
    if absent:
        raise BadRegistration(missing(absent))
    protocol = values["protocol"]
    if protocol not in protocols:
        raise BadRegistration(unsupported_protocol(protocol))
    wanted = distinct(topics)
    if not wanted:
        raise BadRegistration(NO_TOPICS)
    procedure = _procedure(protocol, values.get("notifyProcedure", ""))
    domain = values.get("domain", "")
    url = _callback_url(protocol, domain or caller, values["port"], values["path"])
    return Registration(wanted, Callback(url, protocol, procedure), bool(domain), caller)


def distinct(topics: Iterable[str]) -> tuple[str, ...]:
    """The topics that a client named, each once and none empty.

    :raises BadRegistration: they are too many, or one is too long.
    """
    found = tuple(dict.fromkeys(filter(None, map(clean, topics))))
    if len(found) > MAX_TOPICS:
        raise BadRegistration(f"One request may name at most {MAX_TOPICS} resources; send several.")
    if any(len(url) > MAX_URL for url in found):
        raise BadRegistration(f"The URL of a resource may have at most {MAX_URL} characters.")
    return found


def _procedure(protocol: str, name: str) -> str:
    """The procedure that is called at the callback; empty where there is none."""
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
    port = int(port_text) if re.fullmatch("[0-9]{1,5}", port_text) else 0
    if not 1 <= port <= 65535:
        raise BadRegistration(f"The port must be a number from 1 to 65535, not {port_text[:80]!r}.")
    scheme, separator, host = domain.rpartition("://")
    if separator and scheme.lower() not in {"http", "https"}:
        raise BadRegistration(
            f"The domain must be called by http or https, not by {scheme[:80]!r}."
        )
    secure = scheme.lower() == "https" or protocol == "https-post" or port == _SECURE_PORT
    joint = "" if path.startswith("/") else "/"
    url = f"{'https' if secure else 'http'}://{_host(host)}:{port}{joint}{path}"
    if len(url) > MAX_URL:
        raise BadRegistration(f"The URL of a callback may have at most {MAX_URL} characters.")
    return url


def _host(text: str) -> str:
    """A host as it stands in a URL."""
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

    ``(notifyProcedure, port, path, protocol, urlList[, domain])``; the port is an
    int or a string, the list an array or one string.

    :param procedure: its name, for the message.
    :returns: the fields and the topics, for :func:`registration`.
    :raises BadRegistration: too few, too many, or of a wrong type.
    """
    check_count(procedure, parameters, 5, 6)
    return fields_from_values(dict(zip(REGISTRATION_FIELDS, parameters, strict=False)))


def fields_from_values(values: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
    """Read named values of a pleaseNotify call, as SOAP gives them.

    :returns: the fields and the topics, for :func:`registration`.
    :raises BadRegistration: one has a type that makes no sense.
    """
    fields = {
        name: _scalar(name, values.get(name))
        for name in ("notifyProcedure", "port", "path", "protocol", "domain")
    }
    return fields, _topics(values.get("urlList"))


def check_count(procedure: str, parameters: Sequence[Any], least: int, most: int) -> None:
    """Accept a number of parameters by returning.

    :raises BadRegistration: with the sentence that today's servers use.
    """
    if least <= len(parameters) <= most:
        return
    problem = "there aren't enough" if len(parameters) < least else "there are too many"
    raise BadRegistration(f'Can\'t call "{procedure}" because {problem} parameters.')


def _scalar(name: str, value: Any) -> str:
    if value is None or value is False:
        return ""  # some clients say so that they have no procedure
    text = text_of(value)
    if text is None:
        raise BadRegistration(f"The parameter {name} must be a string.")
    return text


def _topics(value: Any) -> list[str]:
    if isinstance(value, dict):  # SOAP clients without arrays name each one
        value = list(value.values())
    values = value if isinstance(value, list) else [value] if value else []
    topics = [text for text in map(text_of, values) if text is not None]
    if len(topics) < len(values):
        raise BadRegistration("The parameter urlList must be a list of strings.")
    return topics


def topics_of_form(form: Iterable[tuple[str, str]]) -> list[str]:
    """The topics of a REST registration or ping: every key that begins with
    ``url``, in the order of their numbers.

    :param form: keys, in lower case, and values; a key may come several times.
    """
    named = [(key, value) for key, value in form if key.startswith("url")]
    return [value for key, value in sorted(named, key=lambda pair: _number(pair[0]))]


def _number(key: str) -> int:
    digits = key.removeprefix("url")
    return int(digits) if re.fullmatch("[0-9]{1,9}", digits) else 0


def result_document(root: str, *, success: bool, msg: str, reason: str = "") -> bytes:
    """The answer of the REST interface.

    :param root: ``notifyResult`` or ``result``.
    :param reason: why it is no success, for people: a comment, which clients do not see.
    """
    comment = f"<!-- {_NO_COMMENT.sub('- ', reason)} -->\n" if reason else ""
    attributes = f'success="{str(success).lower()}" msg={quoteattr(msg)}'
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<{root} {attributes}/>\n{comment}'.encode()
