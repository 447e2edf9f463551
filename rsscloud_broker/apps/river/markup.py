"""Turns the HTML of items into elements of a page, so that it cannot break out of its place.

The HTML was cleaned before it was stored.  It is parsed here once more and built anew from the few
elements and attributes that a page of the broker has a place for: each element begins and ends
where the page wants it to.  Headings become smaller than those of the page, definition lists become
paragraphs, list items get a list, tables scroll by themselves, and a link without a text gets one,
so that people who cannot see the page can use it.
"""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import urlsplit

from lxml import etree, html
from twisted.web.template import Tag, tags

from rsscloud_broker.web.pages import linked
from rsscloud_broker.wire.text import legal

#: Elements that stay as they are, without attributes.
_PLAIN: Final = frozenset(
    {
        *("abbr", "b", "bdi", "blockquote", "br", "caption", "cite", "code", "del", "dfn", "div"),
        *("em", "figcaption", "figure", "h4", "hr", "i", "ins", "kbd", "li", "mark", "ol", "p"),
        "pre",
        *("q", "rp", "rt", "ruby", "s", "samp", "small", "span", "strong", "sub", "sup", "table"),
        *("tbody", "td", "tfoot", "th", "thead", "tr", "u", "ul", "var"),
    }
)

#: Elements that become others.
_OTHERS: Final = {
    **dict.fromkeys(("h1", "h2", "h3", "h4", "h5", "h6"), "h4"),
    **dict.fromkeys(("dl", "dt", "dd", "section", "article", "aside", "center"), "div"),
    **dict.fromkeys(("tt", "acronym"), "span"),
    "strike": "s",
}

#: Elements whose texts nobody wrote for readers.
_SILENT: Final = frozenset({"script", "style", "template", "noscript", "head", "title", "textarea"})

#: Attributes that are whole numbers, by their elements.
_NUMBERS: Final = {
    "img": ("width", "height"),
    "ol": ("start",),
    **dict.fromkeys(("td", "th"), ("colspan", "rowspan")),
}
_NUMBER: Final = re.compile("[0-9]{1,4}")

_LISTS: Final = frozenset({"ul", "ol"})


def elements(text: str) -> list[Any]:
    """The HTML of a text as contents of an element of a page.

    :param text: HTML, which need not be well-formed.
    """
    root = _parse(text)
    return [] if root is None else _convert_inside(root, "div", 0, in_link=False)


def plain(text: str, most: int) -> str:
    """The text of some HTML, without its elements.

    :param most: how many characters of it are wanted.  There may be fewer if it has very many tags.
    """
    root = _parse(text[: 20 * most])
    return "" if root is None else " ".join("".join(_visible_texts(root)).split())


def _parse(text: str) -> Any:
    """A ``div`` with the elements of some HTML in it; None if there is nothing in it."""
    text = legal(text)
    if not text.strip():
        return None
    parser = html.HTMLParser(remove_comments=True, remove_pis=True, no_network=True)
    try:
        return html.fragment_fromstring(text, create_parent="div", parser=parser)
    except (etree.ParserError, ValueError):
        return None  # there is nothing in it, such as a comment alone


def _visible_texts(element: Any) -> list[str]:
    """The texts in an element that people read."""
    found = [element.text or ""]
    for child in element:
        if isinstance(child.tag, str) and child.tag not in _SILENT:
            found += _visible_texts(child)
        found.append(child.tail or "")
    return found


def _convert_inside(element: Any, parent: str, depth: int, *, in_link: bool) -> list[Any]:
    """What is in an element.

    :param parent: the name of the element that it becomes.
    :param in_link: whether that is in a link already; links have no links in them.
    """
    found: list[Any] = [element.text or ""]
    for child in element:
        if isinstance(child.tag, str) and child.tag not in _SILENT:
            # Elements deeper than this are left out; only their texts stay.
            if depth < 30:
                found.append(_convert(child, parent, depth + 1, in_link))
            else:
                found += _visible_texts(child)
        found.append(child.tail or "")
    return [each for each in found if each not in ("", None)]


def _convert(element: Any, parent: str, depth: int, in_link: bool) -> Any:
    name = _OTHERS.get(element.tag, element.tag)
    if name == "img":
        made = _convert_image(element)
        return tags.li(made) if parent in _LISTS and made else made
    if name == "a" and not in_link:
        return _convert_link(element, depth)
    if name == "li" and parent not in _LISTS:
        name = "div"
    inside = _convert_inside(element, name if name in _PLAIN else parent, depth, in_link=in_link)
    if name not in _PLAIN:
        return tags.transparent(*inside)
    made = Tag(name, children=inside)(**_kept_attributes(element))
    if parent in _LISTS and name != "li":
        return tags.li(made)
    if name == "table":
        return tags.div(
            made, class_="table", role="region", tabindex="0", **{"aria-label": "Table"}
        )
    return made


def _convert_link(element: Any, depth: int) -> Any:
    """A link to where a stranger wants it to lead; only its text if that is no page."""
    inside = _convert_inside(element, "a", depth, in_link=True)
    url = legal(element.get("href") or "").strip()
    has_name = "".join(_visible_texts(element)).strip() or any(
        (image.get("alt") or "").strip() for image in element.iter("img")
    )
    if not has_name and is_web(url):
        # People see the picture in a link; only those who hear the page need a name for it then.
        inside.append(tags.span(f"Link to {shown_host(url)}", class_="away" if inside else ""))
    return linked(url, *inside)


def _convert_image(element: Any) -> Tag | str:
    """A picture, which the browser loads when it comes near to the screen."""
    url = legal(element.get("src") or "").strip()
    if not is_web(url):
        return ""
    return picture(url, legal(element.get("alt") or ""))(**_number_attributes(element))


def picture(url: str, description: str) -> Tag:
    """An ``img`` element.  Its host learns the address of the reader, and not the page."""
    return tags.img(
        src=url, alt=description, loading="lazy", decoding="async", referrerpolicy="no-referrer"
    )


def is_web(url: str) -> bool:
    """Whether a URL is http or https."""
    return url.lower().startswith(("http://", "https://"))


def shown_host(url: str) -> str:
    """The host of a URL, for people."""
    try:
        return urlsplit(url).hostname or "a page"
    except ValueError:
        return "a page"


def _kept_attributes(element: Any) -> dict[str, str]:
    kept = {}
    if (direction := (element.get("dir") or "").lower()) in {"ltr", "rtl", "auto"}:
        kept["dir"] = direction
    if element.tag == "abbr" and (title := legal(element.get("title") or "")):
        kept["title"] = title
    return kept | _number_attributes(element)


def _number_attributes(element: Any) -> dict[str, str]:
    """Sizes of pictures, cells and the like."""
    found = {name: element.get(name) or "" for name in _NUMBERS.get(element.tag, ())}
    return {name: value for name, value in found.items() if _NUMBER.fullmatch(value)}
