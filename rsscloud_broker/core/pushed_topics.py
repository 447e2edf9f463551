"""The topics whose content is pushed to the broker, and which the broker never fetches.

A publisher that pushes the content of a topic need not serve it.  At the topic's URL there may be
nothing, or a page for people; and what a stranger puts there is not what the publisher said.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import field, frozen

from rsscloud_broker.util.urls import normal_form


def _normal_forms(prefixes: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(normal_form, prefixes))


@frozen
class PushedTopics:
    """Says of a URL whether the content of the topic there is pushed.

    :ivar prefixes: how the URLs of the topics begin, in normal form.
    """

    prefixes: tuple[str, ...] = field(default=(), converter=_normal_forms)

    def __contains__(self, url: object) -> bool:
        return isinstance(url, str) and url.startswith(self.prefixes)
