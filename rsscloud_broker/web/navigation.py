"""The navigation of the pages: what people can do at this broker, under a few headings.

A page is in the navigation if there is a route to it.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from twisted.web.template import Tag, tags

#: The headings in their order, each with the paths of its pages and the texts of the links.  A
#: heading with one page is a link; the others are menus.
HEADINGS: Final = (
    ("Write", (("/write", "Write"),)),
    ("River", (("/river", "River"),)),
    (
        "Publish",
        (
            ("/pingSiteForm", "Ping"),
            ("/rssCloud", "rssCloud"),
            ("/websub", "WebSub"),
            ("/feeds", "Hosted feeds"),
            ("/test", "Test feed"),
            ("/doctor", "Check a feed"),
        ),
    ),
    (
        "Watch",
        (
            ("/changes", "Changes"),
            ("/topic", "Topics"),
            ("/log", "Log"),
            ("/stats", "Statistics"),
        ),
    ),
    ("People", (("/people", "People"),)),
    ("Help", (("/docs", "Help"),)),
    ("Sign in", (("/signin", "Sign in"),)),
)

#: The paths of all pages of the navigation.
PLACES: Final = tuple(path for _, places in HEADINGS for path, _ in places)

#: Those that only people who have signed in can use, and those that only others need.
FOR_MEMBERS: Final = frozenset({"/feeds", "/river", "/write"})
FOR_STRANGERS: Final = frozenset({"/signin"})


def navigation(paths: Set[str], here: str = "") -> list[Tag]:
    """The items of the navigation, as ``li`` elements.

    :param paths: the paths that the broker serves.
    :param here: the path of the page that the navigation is for; its link is marked as the
        current one for screen readers (``aria-current``), and its heading for all.
    """
    items = []
    for heading, places in HEADINGS:
        links = [
            tags.li(link(text, path, is_here=path == here))
            for path, text in places
            if path in paths
        ]
        if len(places) == 1:
            items += links
        elif links:
            is_here = any(path == here for path, _ in places)
            items.append(tags.li(menu(heading, links, is_here=is_here)))
    return items


def menu(heading: str, items: list[Tag], *, is_here: bool = False) -> Tag:
    """A list that opens below its heading, without a script."""
    marked = {"class": "here", "aria-current": "true"} if is_here else {}
    # Of all menus with one name, browsers keep one open.
    return tags.details(tags.summary(heading, **marked), tags.ul(*items), name="menu")


def link(text: str, path: str, *, is_here: bool) -> Tag:
    """A link, which says for screen readers whether it leads to the page that it is on."""
    return tags.a(text, href=path, **({"aria-current": "page"} if is_here else {}))
