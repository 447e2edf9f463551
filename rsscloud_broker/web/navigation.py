"""The navigation of the pages: links to what people can do at this broker.

A page is in the navigation if there is a route to it.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from twisted.web.template import Tag, tags

#: The pages, in the order of the navigation: the path, and the text of the link.
PLACES: Final = (
    ("/write", "Write"),
    ("/people", "People"),
    ("/pingSiteForm", "Ping"),
    ("/rssCloud", "rssCloud"),
    ("/websub", "WebSub"),
    ("/topic", "Topics"),
    ("/changes", "Changes"),
    ("/log", "Log"),
    ("/stats", "Statistics"),
    ("/doctor", "Doctor"),
    ("/docs", "Help"),
    ("/signin", "Sign in"),
)

#: Those that only people who have signed in can use, and those that only others need.
FOR_MEMBERS: Final = frozenset({"/write"})
FOR_STRANGERS: Final = frozenset({"/signin"})


def navigation(paths: Set[str], here: str = "") -> list[Tag]:
    """The items of the navigation, as ``li`` elements.

    :param paths: the paths that the broker serves.
    :param here: the path of the page that the navigation is for; its link is marked as the
        current one for screen readers (``aria-current``).
    """
    return [_item(path, text, path == here) for path, text in PLACES if path in paths]


def _item(path: str, text: str, is_here: bool) -> Tag:
    link = tags.a(text, href=path)
    return tags.li(link(**{"aria-current": "page"}) if is_here else link)
