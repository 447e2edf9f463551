"""The loopback address and the secret of each subscriber, by its number."""

from __future__ import annotations

_HOSTS, _NETS = 250, 250

#: The largest number of subscribers.
MOST = _HOSTS * _NETS * 100


def address(number: int) -> str:
    """The address of a subscriber; each has its own, from 127.16.0.1 on."""
    net, host = divmod(number, _HOSTS)
    block, net = divmod(net, _NETS)
    return f"127.{16 + block}.{net}.{host + 1}"


def secret(number: int) -> str:
    """The secret by which the notifications of a subscriber are signed."""
    return f"the secret of number {number}"


def source(number: int) -> str:
    """The address from which a client connects."""
    return f"127.2.{number // _HOSTS}.{number % _HOSTS + 1}"
