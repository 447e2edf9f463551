"""Where the broker replaces a part of Twisted by its own, and the switch to plain Twisted.

Everything else in the broker uses Twisted as its manual says.  What is here depends on how Twisted
works inside, so a new release of Twisted may break it.  Each part has to earn its place: decision
0014 has the figures, and says how to measure them again.

===================  ===========================================================================
``tcp_client``       opens outgoing TCP connections at less cost than ``reactor.connectTCP``
``adopted_port``     listens on a UNIX socket that another program opened, and leaves it usable
===================  ===========================================================================

With ``RSSCLOUD_BROKER_PLAIN_TWISTED=1`` in its environment the broker uses Twisted's own parts
wherever there is one that does the same, only slower.  The tests of these parts run both ways.
"""

from __future__ import annotations

import os
from typing import Final

#: The environment variable that switches to plain Twisted, unless its value is empty.
PLAIN_TWISTED: Final = "RSSCLOUD_BROKER_PLAIN_TWISTED"


def is_plain() -> bool:
    """Whether the broker shall use plain Twisted."""
    return bool(os.environ.get(PLAIN_TWISTED))
