"""Documents of strangers that libraries take very long for, or that take very much memory.

Each is as large as the place where it comes from allows, or as large as it takes to hurt.  They
are made when they are asked for, since together they have some hundred megabytes.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from typing import Final

#: How many bytes a feed has here: as many as a fetched topic may have.
MEGABYTE: Final = 1024 * 1024

Maker = Callable[[], bytes]


def _rss(inside: str, attributes: str = "") -> bytes:
    return (
        f'<rss version="2.0"{attributes}><channel><title>T</title>{inside}</channel></rss>'.encode()
    )


def _atom(inside: str, attributes: str = "") -> bytes:
    return (
        f'<feed xmlns="http://www.w3.org/2005/Atom"{attributes}><title>T</title>{inside}</feed>'
    ).encode()


def _item(html: str) -> bytes:
    """A feed with one item, whose text is some HTML."""
    return _rss(f"<item><title>x</title><description><![CDATA[{html}]]></description></item>")


def _items(inside: str, number: int) -> bytes:
    return _rss(f"<item>{inside}</item>" * number)


#: HTML that parsers of HTML take long for.
HTML: Final[Mapping[str, Callable[[], str]]] = {
    "formatting in each paragraph": lambda: (
        "<p>" + "".join(f"<b a{n}>" for n in range(3000)) + "<p>x" * 6000
    ),
    "unclosed div": lambda: "<div>" * 10_000,
    "unclosed b": lambda: "<b>" * 16_000,
    "links in links": lambda: '<a href="/">' * 4000,
    "font in p": lambda: "<font><p>" * 5000,
    "tables in tables": lambda: "<table><tr><td>" * 3000,
    "rows outside": lambda: "<table>" + "x<tr>" * 9000,
    "ends of nothing": lambda: "<div>" * 4000 + "</x>" * 7000,
    "formatting ends of nothing": lambda: "<b>" * 5000 + "</i></p>" * 5000,
    "lists": lambda: "<ul><li>" * 6000,
    "selects": lambda: "<select><option>" * 3000,
    "svg": lambda: "<svg><g>" * 5000 + "<foreignObject><math>" * 300,
    "math": lambda: "<math><mi><mglyph>" * 2700,
    "templates": lambda: "<template>" * 5000,
    "attributes": lambda: "<a " + " ".join(f"a{n}=1" for n in range(6000)) + ">x</a>",
    "one attribute": lambda: f"<a href='{'x' * 49_000}'>x</a>",
    "less than": lambda: "<" * 50_000,
    "ampersands": lambda: "&" * 50_000,
    "entities": lambda: "&Auml;&CounterClockwiseContourIntegral;" * 1200,
    "numbers of characters": lambda: "&#x10FFFF;" * 5000,
    "comments": lambda: "<!--" * 12_000,
    "comment ends": lambda: "<!--" + "-->--!>" * 7000,
    "scripts": lambda: "<script><!--<script>" * 2500,
    "textareas": lambda: "<textarea>" * 5000,
    "quotes": lambda: "<a b='" * 8000,
    "spaces": lambda: "x" + " " * 49_000 + "x",
    "marks": lambda: "a" + "\N{COMBINING ACUTE ACCENT}" * 49_000,
    "nobr": lambda: "<nobr>" * 3000 + "<p>" * 6000,
    "framesets": lambda: "<frameset>" * 5000,
    "headings": lambda: "<h1><h2>" * 6000,
}


def _deep_json(opening: str, closing: str) -> bytes:
    depth = 200_000
    start = '{"version": "https://jsonfeed.org/version/1.1", "items": '
    return (start + opening * depth + closing * depth + "}").encode()


#: Feeds, and what comes where a feed should be.
FEEDS: Final[Mapping[str, Maker]] = {
    "author of dots": lambda: _items(f"<author>{'a.' * 20_000}</author>", 1),
    "authors of dots": lambda: _items(f"<author>{'a.' * 2000}@</author>", 1000),
    "name of dots": lambda: _atom(
        f"<entry><id>1</id><author><name>{'a.' * 90_000}@</name></author></entry>"
    ),
    "managing editor": lambda: _rss(f"<managingEditor>{'a-' * 90_000}</managingEditor><item/>"),
    "undeclared prefixes": lambda: _rss("".join(f"<ns{n}:x/>" for n in range(40_000))),
    "declared prefixes": lambda: _rss(
        "<item/>", "".join(f' xmlns:n{n}="u{n}"' for n in range(9000))
    ),
    "prefixes of items": lambda: _rss(
        "".join(f'<item xmlns:n{n}="u{n}"><n{n}:x/></item>' for n in range(9000))
    ),
    "attributes": lambda: _rss(
        "<item><guid " + " ".join(f"a{n}='1'" for n in range(15_000)) + ">1</guid></item>"
    ),
    "attributes of many": lambda: _items(
        "<guid " + " ".join(f"a{n}='1'" for n in range(49)) + ">1</guid>", 4000
    ),
    "base": lambda: _atom(
        "<entry><id>1</id><link href='x'/></entry>" * 400,
        f' xml:base="http://a.example/{"x/" * MEGABYTE}"',
    ),
    "bases": lambda: _atom(
        f'<entry xml:base="{"x/" * 2000}"><id>1</id><link href="{"../" * 1000}"/></entry>' * 400
    ),
    "bases in bases": lambda: _atom(
        '<entry xml:base="x/">' * 150 + "<id>1</id>" + "</entry>" * 150
    ),
    "dots of a path": lambda: _items(f"<link>http://a.example/{'../' * 90_000}</link>", 10),
    "empty elements": lambda: _rss("<x/>" * 480_000),
    "too many elements": lambda: _rss("<x/>" * 1_200_000),
    "empty items": lambda: _rss("<item/>" * 400_000),
    "items in items": lambda: b"<item>" * 700_000,
    "deep": lambda: b"<rss>" + b"<a>" * 1_500_000,
    "deep and closed": lambda: _rss("<a>" * 190 + "</a>" * 190) * 1,
    "sub-items": lambda: _rss(
        "<item>" * 100_000 + "</item>" * 100_000, ' xmlns:rssCloud="http://rsscloud.org/"'
    ),
    "broad sub-items": lambda: _items("<item><description>&lt;b>x</description></item>" * 200, 250),
    "children of an item": lambda: _items("<category>x</category>" * 400_000, 1),
    "enclosures": lambda: _items('<enclosure url="http://a.example/" length="1"/>' * 90_000, 1),
    "dates": lambda: _items(f"<pubDate>{'1' * 400_000}</pubDate>", 10),
    "spaces in a date": lambda: _items(f"<pubDate>Mon, {' ' * 400_000}2026</pubDate>", 10),
    "years": lambda: _items("<pubDate>99999999-99-99T99:99:99+99:99</pubDate>", 40_000),
    "guid": lambda: _items(f"<guid>{'x' * 4_000_000}</guid>", 1),
    "title of tags": lambda: _items("<title>" + "&lt;b a>" * 500_000 + "</title>", 1),
    "escaped five times": lambda: _items(
        "<title>" + "&amp;amp;amp;amp;lt;" * 250_000 + "</title>", 1
    ),
    "less than": lambda: _rss("&lt;" * 1_200_000),
    "one character": lambda: b"<" * (5 * MEGABYTE),
    "nothing but spaces": lambda: b" " * (5 * MEGABYTE),
    "spaces before": lambda: b" \n" * (2 * MEGABYTE) + _rss("<item/>"),
    "comments": lambda: b"<!-- x -->" * 500_000 + _rss("<item/>"),
    "no end of a comment": lambda: b"<rss><!-- " + b"<item>- -" * 500_000,
    "instructions": lambda: b"<rss>" + b"<?x y?>" * 700_000 + b"</rss>",
    "sections": lambda: _rss("<![CDATA[x]]>" * 390_000),
    "no end of a section": lambda: b"<rss><channel>" + b"<![CDATA[" * 500_000,
    "ampersands": lambda: b"<rss><channel>" + b"& " * 2_000_000,
    "references": lambda: _rss("&#65;" * 1_000_000),
    "doctype": lambda: b"<!DOCTYPE rss [" + b"<!ELEMENT a (b|c|d)*>" * 200_000 + b"]><rss/>",
    "doctype without end": lambda: b"<!DOCTYPE " + b"x" * (5 * MEGABYTE),
    "bomb of entities": lambda: (
        b'<!DOCTYPE rss [<!ENTITY a "aaaaaaaaaa">'
        + b"".join(b'<!ENTITY a%d "%s">' % (n, b"&a%d;" % (n - 1) * 10) for n in range(1, 20))
        + b"]><rss><channel><title>&a19;</title></channel></rss>"
    ),
    "declared as idna": lambda: b'<?xml version="1.0" encoding="idna"?>' + _items("x" * 300_000, 1),
    "declared as punycode": lambda: (
        b'<?xml version="1.0" encoding="punycode"?>' + _items("x-" * 300_000, 1)
    ),
    "declared as unicode_escape": lambda: (
        b'<?xml version="1.0" encoding="unicode_escape"?>' + _items("\\x41" * 300_000, 1)
    ),
    "declared as hz": lambda: b'<?xml version="1.0" encoding="hz"?>' + _items("~{" * 300_000, 1),
    "utf-16": lambda: _items("<title>x</title>" * 90_000, 1).decode().encode("utf-16"),
    "cut utf-16": lambda: _items("<title>x</title>" * 90_000, 1).decode().encode("utf-16")[:-1],
    "gzip in a feed": lambda: gzip.compress(b"\0" * (50 * MEGABYTE)),
    "an empty json": lambda: b"{" * (4 * MEGABYTE),
    "deep json": lambda: _deep_json("[", "]"),
    "deep objects of json": lambda: _deep_json('{"a":', "}"),
    "numbers of json": lambda: (
        b'{"version": "https://jsonfeed.org/version/1.1", "items": [{"id": '
        + b"9" * 4_000_000
        + b"}]}"
    ),
    "numbers with exponents": lambda: (
        b'{"version": "https://jsonfeed.org/version/1.1", "items": ['
        + b'{"id": 1e999999999},' * 150_000
        + b"{}]}"
    ),
    "items of json": lambda: (
        b'{"version": "https://jsonfeed.org/version/1.1", "items": [' + b"{}," * 1_300_000 + b"{}]}"
    ),
    "texts of json": lambda: (
        b'{"version": "https://jsonfeed.org/version/1.1", "items": ['
        + (b'{"content_html": "' + b"<div>" * 1900 + b'"},') * 499
        + b"{}]}"
    ),
    "dates of json": lambda: (
        b'{"version": "https://jsonfeed.org/version/1.1", "items": ['
        + (b'{"date_published": "' + b"1" * 9000 + b'"},') * 499
        + b"{}]}"
    ),
    **{f"html: {name}": lambda make=make: _item(make()) for name, make in HTML.items()},  # type: ignore[misc]
    **{
        f"500 times html: {name}": lambda make=make: (  # type: ignore[misc]
            _items(f"<description><![CDATA[{make()[:9000]}]]></description>", 500)
        )
        for name, make in HTML.items()
        if name in {"unclosed b", "links in links", "formatting in each paragraph", "svg"}
    },
}

#: Lists of feeds.
LISTS: Final[Mapping[str, Maker]] = {
    "outlines": lambda: b"<opml><body>" + b'<outline xmlUrl="x"/>' * 200_000 + b"</body></opml>",
    "deep outlines": lambda: b"<opml><body>" + b"<outline>" * 400_000,
    "attributes of an outline": lambda: (
        b"<opml><outline " + b" ".join(b"a%d='1'" % n for n in range(300_000)) + b"/></opml>"
    ),
    "a url of an outline": lambda: (
        b"<opml><outline xmlUrl='http://a/" + b"[" * 4_000_000 + b"'/></opml>"
    ),
    "spaces of an outline": lambda: (
        b"<opml><outline text='" + b" \t" * 2_000_000 + b"' xmlUrl='http://a/'/></opml>"
    ),
    "a list in utf-16": lambda: (
        "<opml>" + "<outline xmlUrl='http://a/'/>" * 19_000 + "</opml>"
    ).encode("utf-16"),
}

#: Pages on which a feed is looked for.
PAGES: Final[Mapping[str, Maker]] = {
    **{name: lambda make=make: make().encode() * 10 for name, make in HTML.items()},  # type: ignore[misc]
    "links": lambda: b'<link rel=alternate type="application/rss+xml" href="x">' * 90_000,
    "bases": lambda: (
        b'<base href="' + b"x/" * MEGABYTE + b'">' + b"<link rel=alternate href=y>" * 9
    ),
    "a base that is none": lambda: b'<base href="http://[">' + b"<link rel=alternate href=y>" * 9,
}
