"""Which loopback address belongs to which subscriber, and which secret."""

from __future__ import annotations

_HOSTS, _NETS = 250, 250

#: How many subscribers there may be.
MOST = _HOSTS * _NETS * 100


def address(number: int) -> str:
    """An address of its own for each number, from 127.16.0.1 on."""
    net, host = divmod(number, _HOSTS)
    block, net = divmod(net, _NETS)
    return f"127.{16 + block}.{net}.{host + 1}"


def secret(number: int) -> str:
    """What the deliveries of a subscriber are signed with."""
    return f"the secret of number {number}"


def source(number: int) -> str:
    """An address from which one of many clients connects."""
    return f"127.2.{number // _HOSTS}.{number % _HOSTS + 1}"
