"""``[accounts]`` of the configuration: sessions, the hashing of passwords, attempts to sign in."""

from __future__ import annotations

from attrs import field, frozen
from attrs.validators import and_, ge, le

from rsscloud_broker.wire.units import DAY, YEAR

_rate = and_(ge(0.001), le(1000.0))


@frozen
class AccountsConfig:
    """``[accounts]``: how people sign in.

    The default for hashing is the second choice of RFC 9106, section 4, for machines that cannot
    spare 2 GiB.  A password is hashed again at the next sign-in after it changed.

    :ivar session_idle: seconds after which a session that is not used ends.
    :ivar session_life: seconds after which every session ends.
    :ivar min_password: how many characters a new password must have.
    :ivar hash_memory_kib: KiB of memory for hashing one password.
    :ivar attempts_per_source: attempts to sign in per second from one address.  The other limits on
        attempts follow from it.
    """

    session_idle: float = field(default=7.0 * DAY, validator=and_(ge(300), le(YEAR)))
    session_life: float = field(default=30.0 * DAY, validator=and_(ge(300), le(YEAR)))
    min_password: int = field(default=10, validator=and_(ge(8), le(64)))
    hash_memory_kib: int = field(default=65_536, validator=and_(ge(8192), le(4_194_304)))
    attempts_per_source: float = field(default=0.05, validator=_rate)

    @property
    def attempts_per_name(self) -> float:
        """Attempts per second to sign in to one account, from browsers in which nobody has signed
        in to it before: fewer, since they may come from many addresses.
        """
        return 0.4 * self.attempts_per_source

    @property
    def attempts_burst(self) -> int:
        """How many attempts may come at once after a quiet time: those of some three minutes."""
        return max(3, round(200 * self.attempts_per_source))
