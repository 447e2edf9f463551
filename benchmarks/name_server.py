"""A name server for the hosts of the benchmarks.

``n7.well.test`` and ``n7.kept.test`` have the address of subscriber 7; queries for
``n7.silent.test`` are never answered.  The time to live of the first is 0, so that nobody keeps it;
that of the second is an hour.
"""

from __future__ import annotations

import select
import socket
import struct
import sys
import time
from collections import deque

from benchmarks import control
from benchmarks.addresses import address

#: Seconds for which answers may be kept, by zone.
_TIMES_TO_LIVE = {b"well": 0, b"kept": 3600}

_ANSWER = 0x8180
_A = b"\0\1"

#: Bytes of the receive buffer, for queries that come while other processes use the processors.
_BUFFER = 8 * 1024 * 1024


def name(number: int, zone: str = "well") -> str:
    """The name of a subscriber's host.

    :param zone: ``well``, ``kept`` or ``silent``.
    """
    return f"n{number}.{zone}.test"


def _answer(query: bytes) -> bytes:
    """The answer to a query; empty for no answer."""
    labels = []
    offset = 12
    while length := query[offset]:
        labels.append(query[offset + 1 : offset + 1 + length])
        offset += 1 + length
    end = offset + 5
    seconds = _TIMES_TO_LIVE.get(labels[1])
    if seconds is None:
        return b""
    found = query[offset + 1 : offset + 3] == _A
    head = query[:2] + struct.pack(">5H", _ANSWER, 1, int(found), 0, 0) + query[12:end]
    if not found:
        return head
    four = socket.inet_aton(address(int(labels[0][1:])))
    return head + struct.pack(">3HIH", 0xC00C, 1, 1, seconds, 4) + four


def main() -> None:
    """Answer queries until stdin is closed."""
    delay = float(control.arguments()["delay"])
    late: deque[tuple[float, bytes, tuple[str, int]]] = deque()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        sock.bind(("127.0.0.1", 0))
        sock.setblocking(False)
        control.answer(port=sock.getsockname()[1])
        while True:
            pause = max(0.0, late[0][0] - time.monotonic()) if late else None
            readable, _, _ = select.select([sock, sys.stdin], [], [], pause)
            if sys.stdin in readable:
                return
            while sock in readable:
                try:
                    query, asker = sock.recvfrom(2000)
                except BlockingIOError:
                    break
                if answer := _answer(query):
                    late.append((time.monotonic() + delay, answer, asker))
            while late and late[0][0] <= time.monotonic():
                _, answer, asker = late.popleft()
                sock.sendto(answer, asker)


if __name__ == "__main__":
    main()
