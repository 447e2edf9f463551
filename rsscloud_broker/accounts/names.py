"""Which names an account may have.

A name will be a part of paths and host names, so it is a DNS label in lower case, and no word that
is, or is likely to become, a path of the broker or the name of a server.
"""

from __future__ import annotations

import re
from typing import Final

from rsscloud_broker.errors import InvalidAccount

_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])", re.ASCII)

#: Names that no account may have: paths of the broker, words that such paths usually have, names
#: of servers, and words that would make others believe that an account speaks for the broker.
RESERVED: Final = frozenset(
    """
    abuse account accounts admin administrator all anonymous api app apps archive assets atom
    auth autoconfig backup blog blogs broadcasthost broker callback change changes changes-xml
    cloud config contact css dashboard data default dns docs doctor edit events everybody
    everyone favicon fb feed feeds files ftp guest health help home host hostmaster hub imap index
    info is isatap js json list lists local localdomain localhost log login logout logs mail
    mailer-daemon me metrics new news nobody noc notify null opml owner ping pingform pings
    pingsiteform please-notify pleasenotify pleasenotifyform pop postmaster privacy public
    pubsubhubbub register reset resourcesync river robots root rpc rpc2 rss rsscloud search
    security server settings sign-in sign-out sign-up signin signout signup site sitemap smtp
    soap ssl static statistics stats status style subscribe subscription subscriptions support
    sysadmin system terms test token tokens topic topics undefined unsubscribe user username
    users view viewlog weblogupdates webmaster websub well-known wpad write www xml xmlrpc
    """.split()  # noqa: SIM905 # as a list it would take a line for each word
)


def is_name(text: str) -> bool:
    """Whether a text has the form of a name."""
    return _NAME.fullmatch(text) is not None


def check_name(name: str) -> None:
    """Check the name of a new account.

    :raises InvalidAccount: the name is malformed or reserved.
    """
    if not is_name(name):
        raise InvalidAccount(
            f"{name!r} cannot be a name: a name has 2 to 32 of the letters a to z, digits and "
            "hyphens, and neither begins nor ends with a hyphen"
        )
    if name in RESERVED:
        raise InvalidAccount(f"{name!r} is reserved for the broker itself; choose another name")
