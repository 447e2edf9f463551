"""Topics whose contents are pushed, and which are not read for that reason.

Who pushes a content need not serve it: at the topic's URL there may be nothing, or a
page for people.  And what anybody could have the broker read there is not what the
publisher said.
"""

from __future__ import annotations

from attrs import define


@define
class PushedTopics:
    """The URLs of such topics.

    :ivar prefixes: how they begin.  The parts that push contents say so: when they
        have been made, all of that is known, and nothing was read before.
    """

    prefixes: tuple[str, ...] = ()

    def __contains__(self, url: object) -> bool:
        return isinstance(url, str) and url.startswith(self.prefixes)
