"""Chooses the media type of an answer by the client's Accept header (RFC 9110, section 12.5.1)."""

from __future__ import annotations

from collections.abc import Sequence


def preferred(accept: str | None, offered: Sequence[str]) -> str | None:
    """The offered media type that a client prefers.

    Among types of equal quality, one that the client names wins over one that only a wildcard
    covers, and otherwise the one that is offered first.

    :param accept: the Accept header; without it the client accepts everything.
    :param offered: media types, the default first.
    :returns: None if the client accepts none of them.
    """
    if not accept or not accept.strip():
        return offered[0]
    ranges = [_read_range(part) for part in accept.split(",")]
    ranks = {kind: _rank_of(kind, ranges) for kind in offered}
    best = max(offered, key=lambda kind: ranks[kind])  # the first of several that are equal
    return best if ranks[best] > (0.0, 0) else None


def wants_page(accept: str | None, others: Sequence[str]) -> bool:
    """Whether the answer should be an HTML page, since a browser will show it to a person.

    A browser prefers ``text/html`` and also names ``application/xhtml+xml``.  The first alone is
    not enough: Java's HttpURLConnection sends an Accept header that prefers ``text/html`` for
    every program that sets none.  A client that accepts none of the other media types gets a
    page in any case.

    :param accept: the Accept header, if there is one.
    :param others: the media types of the answers that are not pages.
    """
    if not accept or "text/html" not in accept.lower():
        return False  # nearly all clients are programs, and need no closer look
    if preferred(accept, [*others, "text/html"]) != "text/html":
        return False
    return "application/xhtml+xml" in accept.lower() or preferred(accept, others) is None


def _read_range(part: str) -> tuple[str, float]:
    """A media range and its quality, from 0 to 1; 0 if the quality is not a number."""
    kind, *parameters = (piece.strip().lower() for piece in part.split(";"))
    quality = 1.0
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                quality = float(value)
            except ValueError:
                quality = 0.0
    return kind, quality if 0 <= quality <= 1 else 0.0


def _rank_of(kind: str, ranges: Sequence[tuple[str, float]]) -> tuple[float, int]:
    """The quality of a media type, and the specificity of the range that gives it.

    The most specific range that covers the media type gives its quality.
    """
    specificity, quality = max((_specificity(kind, range_), quality) for range_, quality in ranges)
    return (quality, specificity) if specificity and quality else (0.0, 0)


def _specificity(kind: str, range_: str) -> int:
    """How closely a media range covers a media type, from 1 to 3; 0 if it does not."""
    main = kind.partition("/")[0]
    return {kind: 3, f"{main}/*": 2, "*/*": 1}.get(range_, 0)
