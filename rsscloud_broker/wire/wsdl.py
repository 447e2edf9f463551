"""The WSDL 1.1 of the broker's SOAP services, for clients that want one.

The document lies beside this module.  It describes the same messages that old
clients send without it, with one difference: each operation is in a namespace.
It does so in the wrapped document/literal style and not as rpc, although what
travels is the same, because only there can ``domain`` be left out and
``urlList`` be a plain list.
"""

from __future__ import annotations

from importlib.resources import files
from string import Template
from xml.sax.saxutils import escape

_TEMPLATE = Template(files(__package__).joinpath("broker.wsdl").read_text(encoding="utf-8"))


def wsdl(rsscloud_url: str, weblog_updates_url: str) -> bytes:
    """The WSDL, in UTF-8.

    :param rsscloud_url: where the operations of ``rssCloud`` answer.
    :param weblog_updates_url: where those of ``weblogUpdates`` do; it may be
        the same URL.
    """
    quotes = {'"': "&quot;"}
    document = _TEMPLATE.substitute(
        rsscloud_url=escape(rsscloud_url, quotes),
        weblog_updates_url=escape(weblog_updates_url, quotes),
    )
    return document.encode("utf-8")
