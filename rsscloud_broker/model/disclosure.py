"""Says how much strangers see of callbacks' URLs and of clients' addresses.

Everything that shows them to people without an account goes through ``Disclosure``: pages, event
streams and JSON.  The configuration chooses the mode, ``[pages] callbacks``:

========  =============================  ==================
Mode      Callbacks                      Addresses
========  =============================  ==================
``url``   the URL, without its query     whole
``host``  the host                       the network
``none``  nothing                        nothing
========  =============================  ==================

The query of a callback is never shown, since it may hold a secret of the subscriber; nor are a
user name, a password and a fragment.
"""

from __future__ import annotations

import re
from ipaddress import ip_address, ip_network
from typing import Final, Literal, TypeAlias

from attrs import evolve

from rsscloud_broker.model import host_of
from rsscloud_broker.model.frozen import frozen
from rsscloud_broker.model.log_entry import LogEntry, LogFilter

#: How much is shown.
Mode: TypeAlias = Literal["url", "host", "none"]

#: What stands for a host that is not shown.
HIDDEN: Final = "a subscriber"

_PARTS = re.compile(
    r"(?P<scheme>[a-z]+://)(?:[^/?#@]*@)?(?P<rest>[^?#]*)(?P<query>[?#].*)?", re.IGNORECASE
)

#: The rest of a URL in a text, without the punctuation after it.  A query may have quotes in it.
_REST: Final = r"\S*[^\s\"'<>):;,.]"

#: A URL in a text.
_URL: Final = f"(?i:https?://){_REST}"

#: What follows a URL that has ended: punctuation, and then a space or the end of the text.
_END: Final = r"(?=[\"'<>):;,.]*(?:\s|$))"


@frozen
class Disclosure:
    """What strangers see.

    :ivar mode: see the docstring of this module.
    """

    mode: Mode = "host"

    def callback(self, url: str) -> str:
        """What is shown of a callback's URL; empty for nothing."""
        if self.mode == "none":
            return ""
        parts = _PARTS.match(url)
        if self.mode == "host" or parts is None:
            return host_of(url)
        return f"{parts['scheme']}{parts['rest']}{'?…' if parts['query'] else ''}"

    def address(self, address: str) -> str:
        """What is shown of a client's address; empty for nothing.

        The network of an IPv4 address has 24 bits, that of an IPv6 address 48.
        """
        if self.mode == "url":
            return address
        if self.mode == "none":
            return ""
        try:
            parsed = ip_address(address.partition("%")[0])
        except ValueError:
            return ""
        parsed = getattr(parsed, "ipv4_mapped", None) or parsed
        return str(ip_network(f"{parsed}/{24 if parsed.version == 4 else 48}", strict=False))

    def entry(self, entry: LogEntry) -> LogEntry:
        """An entry of the event log with only those parts that strangers may see.

        Accounts are never shown to them, and of what an administrator did nothing but when: it may
        concern a topic that only private followers have.  Reasons are written by the broker, and
        may repeat a URL or a host; what is not shown elsewhere is not shown there.
        """
        if entry.kind == "administration":
            return evolve(entry, topic="", host="", account="", reason="")
        reason = entry.reason
        hides_host = self.mode == "none" and entry.is_about_a_subscriber
        if entry.is_about_a_subscriber:
            reason = self._hide_in_reason(reason, entry.topic, entry.callback)
        if hides_host and entry.host:
            reason = re.sub(re.escape(entry.host), HIDDEN, reason, flags=re.IGNORECASE)
        return evolve(
            entry,
            host="" if hides_host else entry.host,
            callback=self.callback(entry.callback) if entry.callback else "",
            source=self.address(entry.source) if entry.source else "",
            account="",
            reason=reason,
        )

    def permitted(self, wanted: LogFilter) -> LogFilter:
        """The filter with which strangers may search the event log.

        It finds no entry by a part that they may not see: otherwise the number of the entries
        that it finds would say what is hidden.
        """
        return evolve(wanted, host_of_topic=True) if self.mode == "none" else wanted

    def _hide_in_reason(self, reason: str, topic: str, callback: str) -> str:
        """A reason in which each URL has only the parts that are shown; topics are public.

        :param topic, callback: the URLs of the entry; either may be empty.
        """
        # The topic is found only as a whole URL: a callback may begin with the same characters.
        known = [f"{re.escape(topic)}{_END}"] if topic else []
        # Also a callback that has spaces or a strange scheme is found.
        known += [f"{re.escape(callback)}(?:{_REST})?"] if callback else []
        return re.sub(
            "|".join((*known, _URL)),
            lambda found: topic if found[0] == topic else self.callback(found[0]) or HIDDEN,
            reason,
        )
