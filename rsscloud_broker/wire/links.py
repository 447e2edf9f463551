"""Parses and writes Link headers (RFC 8288), in which a topic names its hub and itself.

Several links may be in one header, or in several headers; both mean the same::

    Link: <http://hub.example/websub>; rel="hub", <http://site.example/feed>; rel="self"

The paths of the broker's hub are here too, since each file of the broker's that is a topic names
the hub in such a header.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote, urlsplit

from attrs import frozen

#: The paths of the broker's hub, below its public URL; the first is the one to advertise.
HUB_PATHS: Final = ("/websub", "/hub", "/pubsubhubbub", "/websub/", "/hub/", "/pubsubhubbub/")

_TOKEN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105 # of RFC 9110, no secret
_BLANKS: Final = r"[ \t]*"
_GAP: Final = re.compile(r"[ \t,]*")
_TARGET: Final = re.compile(r"<([^<>]*)>")
_PARAMETER: Final = re.compile(
    rf'{_BLANKS};{_BLANKS}(?:({_TOKEN}){_BLANKS}(?:={_BLANKS}("(?:[^"\\]|\\.)*"|[^\s";,<>]+))?)?'
)
_END: Final = re.compile(rf"{_BLANKS}(?:,|\Z)")
_VISIBLE: Final = re.compile(r"[\t\x20-\x7e]*")
# The characters that stay as they are in a URL in a header: they end neither brackets nor line.
_IN_HEADERS: Final = "%!#$&'()*+,/:;=?@[]~^`{|}"


class MalformedLink(Exception):
    """A Link header cannot be parsed.  The text says where, and how to write one."""


@frozen
class WebLink:
    """One link.

    :ivar target: the URL as written, perhaps relative.
    :ivar relations: the relation types, in lower case.
    """

    target: str
    relations: tuple[str, ...]


def parse(value: str) -> list[WebLink]:
    """Parse the value of a Link header, or the values of several, joined by commas.

    A link with an ``anchor`` is about another resource than the one with the header, and is left
    out (section 3.2); so is a link without a relation.

    :raises MalformedLink: the value breaks the syntax of Link headers.
    """
    if not _VISIBLE.fullmatch(value):
        raise MalformedLink("a Link header must be of visible ASCII characters")
    links: list[WebLink] = []
    position = _skip_gap(value, 0)
    while position < len(value):
        target = _TARGET.match(value, position)
        if target is None:
            raise _malformed(value, position, "a link begins with its URL in angle brackets")
        parameters: dict[str, str] = {}
        position = target.end()
        while found := _PARAMETER.match(value, position):
            position = found.end()
            if found[1]:  # of several parameters of one name, the first counts (section 3.3)
                parameters.setdefault(found[1].lower(), _unquoted(found[2] or ""))
        end = _END.match(value, position)
        if end is None:
            raise _malformed(value, position, "parameters are written as ;name=value")
        position = _skip_gap(value, end.end())
        relations = tuple(parameters.get("rel", "").lower().split())
        if relations and "anchor" not in parameters:
            links.append(WebLink(target[1].strip(), relations))
    return links


def parse_or_empty(header: str) -> list[WebLink]:
    """The links in the values of Link headers; an empty list if these are malformed."""
    try:
        return parse(header)
    except MalformedLink:
        return []


def targets(links: Iterable[WebLink], relation: str) -> list[str]:
    """The URLs of the links of a relation, each once, in their order."""
    return list(dict.fromkeys(link.target for link in links if relation in link.relations))


def encode(links: Iterable[tuple[str, str]]) -> str:
    """Write the value of a Link header.

    :param links: pairs of a URL and its relation.  Only characters that cannot be in a header are
        percent-encoded, since some subscribers compare these URLs byte for byte.
    """
    return ", ".join(
        f'<{quote(target, safe=_IN_HEADERS)}>; rel="{relation}"' for target, relation in links
    )


def hub_and_self(public_url: str, path: str) -> str:
    """The value of the Link header of a file that the broker serves and that is a topic.

    :param public_url: the URL of the broker, without a slash at the end.
    """
    return encode([(public_url + HUB_PATHS[0], "hub"), (public_url + path, "self")])


def is_absolute(url: str) -> bool:
    """Whether a text is an absolute http or https URL, with a host and without blanks."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname)
        return usable and parts.port != 0 and not re.search(r"[\s<>\"\x00-\x20\x7f-\x9f]", url)
    except ValueError:
        return False


def _skip_gap(value: str, position: int) -> int:
    """The position after blanks, and after the commas around empty elements."""
    gap = _GAP.match(value, position)
    return gap.end() if gap else position


def _unquoted(text: str) -> str:
    """The value of a parameter, without the quotes that it may have."""
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text.startswith('"') else text


def _malformed(value: str, position: int, rule: str) -> MalformedLink:
    """The error for what begins at a position, with the rule that it breaks."""
    return MalformedLink(
        f"the Link header cannot be read at {value[position : position + 20]!r}: {rule}; "
        'write <URL>; rel="RELATION", with commas between links'
    )
