"""Chooses between the kinds of answer that a client accepts (RFC 9110, section 12.5.1)."""

from __future__ import annotations

from collections.abc import Sequence


def preferred(accept: str | None, offered: Sequence[str]) -> str | None:
    """The offered media type that a client likes best.

    Of several that it likes alike, one that it names goes before one that a
    wildcard covers.

    :param accept: the Accept header; where it is absent, anything will do.
    :param offered: media types, the one to give in doubt first.
    :returns: None if the client accepts none of them.
    """
    if not accept or not accept.strip():
        return offered[0]
    ranges = [_range(part) for part in accept.split(",")]
    likings = {kind: _liking(kind, ranges) for kind in offered}
    best = max(offered, key=lambda kind: likings[kind])  # the first of several that are equal
    return best if likings[best] > (0.0, 0) else None


def wants_page(accept: str | None, others: Sequence[str]) -> bool:
    """Whether a client is a browser that shows the answer to a person, as a page.

    It likes ``text/html`` best.  That is not enough: Java's HttpURLConnection likes it best on
    behalf of every program that says nothing, and means the other kinds by ``*/*``.  Browsers
    name ``application/xhtml+xml`` as well.  A client that accepts none of the other kinds gets
    a page in any case.

    :param accept: the Accept header, if there is one.
    :param others: the media types in which the answer can be given otherwise.
    """
    if not accept or "text/html" not in accept.lower():
        return False  # most are programs: no closer look is needed
    if preferred(accept, [*others, "text/html"]) != "text/html":
        return False
    return "application/xhtml+xml" in accept.lower() or preferred(accept, others) is None


def _range(part: str) -> tuple[str, float]:
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


def _liking(kind: str, ranges: Sequence[tuple[str, float]]) -> tuple[float, int]:
    """The quality that the most specific range covering a media type gives it,
    and how specific that is.
    """
    specificity, quality = max((_specificity(kind, range_), quality) for range_, quality in ranges)
    return (quality, specificity) if specificity and quality else (0.0, 0)


def _specificity(kind: str, range_: str) -> int:
    main = kind.partition("/")[0]
    return {kind: 3, f"{main}/*": 2, "*/*": 1}.get(range_, 0)
