"""The limits of a courier."""

from __future__ import annotations

from attrs import frozen

from rsscloud_broker.outbound.couriers.link import LONGEST


@frozen
class Limits:
    """When a courier is replaced.

    :ivar first_sign: seconds that a new process has until its first sign of life.  It loads the
        program first, which takes long while the machine is busy.
    :ivar silent: seconds for which it may give none after that.
    :ivar megabytes: how much memory it may use.
    :ivar answer: seconds that it has for the answer to a request.
    :ivar frame: how many bytes a frame that it sends may have.
    """

    first_sign: float = 60.0
    silent: float = 5.0
    megabytes: int = 512
    answer: float = 60.0
    frame: int = LONGEST
