"""The navigation of the pages: links to what people can do at this broker.

A page is in the navigation if the front door that serves it runs.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from twisted.web.template import Tag, tags

#: The pages, in the order of the navigation: the path, the text of the link, and the name of the
#: front door that serves the page.
PLACES: Final = (
    ("/pingSiteForm", "Ping", "ping_sink"),
    ("/rssCloud", "rssCloud", "rsscloud"),
    ("/websub", "WebSub", "websub"),
    ("/topic", "Topics", "topic_page"),
    ("/changes", "Changes", "public_lists"),
    ("/log", "Log", "event_log"),
    ("/stats", "Statistics", "stats"),
    ("/doctor", "Doctor", "doctor"),
    ("/docs", "Help", "front_page"),
    ("/signin", "Sign in", "accounts"),
)


def navigation(running: Set[str], here: str = "") -> list[Tag]:
    """The items of the navigation, as ``li`` elements.

    :param running: the names of the front doors that run.
    :param here: the path of the page that the navigation is for; its link is marked as the
        current one for screen readers (``aria-current``).
    """
    return [_item(path, text, path == here) for path, text, door in PLACES if door in running]


def _item(path: str, text: str, is_here: bool) -> Tag:
    link = tags.a(text, href=path)
    return tags.li(link(**{"aria-current": "page"}) if is_here else link)
