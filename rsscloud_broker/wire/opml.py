"""Writes a list of feeds as OPML 2.0, which feed readers import.

::

    <opml version="2.0">
      <head><title>Feeds</title></head>
      <body>
        <outline type="rss" text="A weblog" title="A weblog" xmlUrl="http://example.org/rss.xml"/>
        <outline type="include" text="More feeds" url="http://broker.example/feeds.opml?after=9"/>
      </body>
    </opml>

Source: OPML 2.0 (2007), "Subscription lists" and "Inclusion".
"""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape, quoteattr

from rsscloud_broker.wire.text import clean


def encode(title: str, feeds: Iterable[tuple[str, str]], more: str = "") -> bytes:
    """Write a list of feeds, in UTF-8.

    Characters that XML cannot carry are left out.

    :param feeds: pairs of a URL and a title, which may be empty.
    :param more: the URL of the list that goes on after this one; empty if there is none.
    """
    lines = [_outline("rss", name or url, title=name, xmlUrl=url) for url, name in feeds]
    if more:
        lines.append(_outline("include", "More feeds", url=more))
    body = "".join(f"    {line}\n" for line in lines)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<opml version="2.0">\n'
        f"  <head><title>{escape(clean(title))}</title></head>\n"
        f"  <body>\n{body}  </body>\n</opml>\n"
    ).encode()


def _outline(kind: str, text: str, **attributes: str) -> str:
    """An ``outline`` element, without the attributes that are empty."""
    named = {"type": kind, "text": text, **attributes}
    given = (f"{name}={quoteattr(clean(value))}" for name, value in named.items() if value)
    return f"<outline {' '.join(given)}/>"
