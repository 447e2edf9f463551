"""Link headers (RFC 8288): what a resource says of its hub, of itself and of others.

One header may hold several links, and a message several headers; both mean the
same::

    Link: <http://hub.example/websub>; rel="hub", <http://site.example/feed>; rel="self"

The paths of the hub stand here too, since everything that the broker serves and
that can be subscribed to names it in such a header.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote, urlsplit

from attrs import frozen

#: Where the broker's hub answers, below its public URL; the first is the one to name.
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
# What stays as it is in a URL in a header: whatever cannot end the brackets or the line.
_IN_HEADERS: Final = "%!#$&'()*+,/:;=?@[]~^`{|}"


class MalformedLink(Exception):
    """A Link header cannot be read.  Its text says where, and how to write one."""


@frozen
class Link:
    """One link.

    :ivar target: the URL as it was written, perhaps relative.
    :ivar relations: the relation types, in lower case.
    """

    target: str
    relations: tuple[str, ...]


def parse(value: str) -> list[Link]:
    """The links of a header, or of several whose values were joined by commas.

    Links with an ``anchor`` are about another resource than the one that carries
    the header, and are left out (section 3.2); so are those without a relation.

    :raises MalformedLink: it is not a Link header.
    """
    if not _VISIBLE.fullmatch(value):
        raise MalformedLink("a Link header must be of visible ASCII characters")
    links: list[Link] = []
    position = _skip_gap(value, 0)
    while position < len(value):
        target = _TARGET.match(value, position)
        if target is None:
            raise _malformed(value, position, "a link begins with its URL in angle brackets")
        parameters: dict[str, str] = {}
        position = target.end()
        while found := _PARAMETER.match(value, position):
            position = found.end()
            if found[1]:  # of several with one name, the first counts (section 3.3)
                parameters.setdefault(found[1].lower(), _unquoted(found[2] or ""))
        end = _END.match(value, position)
        if end is None:
            raise _malformed(value, position, "parameters are written as ;name=value")
        position = _skip_gap(value, end.end())
        relations = tuple(parameters.get("rel", "").lower().split())
        if relations and "anchor" not in parameters:
            links.append(Link(target[1].strip(), relations))
    return links


def targets(links: Iterable[Link], relation: str) -> list[str]:
    """The URLs to which links of a relation lead, each once, in their order."""
    return list(dict.fromkeys(link.target for link in links if relation in link.relations))


def encode(links: Iterable[tuple[str, str]]) -> str:
    """The value of a Link header.

    :param links: URLs, each with its relation.  What cannot stand in a header is
        percent-encoded, and nothing else: some compare these URLs byte for byte.
    """
    return ", ".join(
        f'<{quote(target, safe=_IN_HEADERS)}>; rel="{relation}"' for target, relation in links
    )


def hub_and_self(public_url: str, path: str) -> str:
    """The Link header of something that the broker serves and that can be subscribed to.

    :param public_url: of the broker, without a slash at the end.
    :param path: where it is served.
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
    """Past blanks, and the commas around empty elements."""
    gap = _GAP.match(value, position)
    return gap.end() if gap else position


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text.startswith('"') else text


def _malformed(value: str, position: int, rule: str) -> MalformedLink:
    return MalformedLink(
        f"the Link header cannot be read at {value[position : position + 20]!r}: {rule}; "
        'write <URL>; rel="RELATION", with commas between links'
    )
