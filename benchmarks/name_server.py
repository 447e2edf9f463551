"""A name server: every host of the benchmarks has a name, and some have no answer.

``n7.well.test`` has the address of number 7, and ``n7.silent.test`` is never answered for.
Answers are for once: nobody keeps them.
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

_ANSWER = 0x8180
_A = b"\0\1"

#: Room for what comes while the others have the processors.
_BUFFER = 8 * 1024 * 1024


def name(number: int, silent: bool = False) -> str:
    """The name of a host."""
    return f"n{number}.{'silent' if silent else 'well'}.test"


def _answer(query: bytes) -> bytes:
    """What a question is answered with; nothing where there is no answer."""
    labels = []
    place = 12
    while length := query[place]:
        labels.append(query[place + 1 : place + 1 + length])
        place += 1 + length
    end = place + 5
    if labels[1] == b"silent":
        return b""
    found = query[place + 1 : place + 3] == _A
    head = query[:2] + struct.pack(">5H", _ANSWER, 1, int(found), 0, 0) + query[12:end]
    if not found:
        return head
    four = socket.inet_aton(address(int(labels[0][1:])))
    return head + struct.pack(">3HIH", 0xC00C, 1, 1, 0, 4) + four


def main() -> None:
    """Answer until nobody can ask for anything any more."""
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
