"""A name server, in a thread, on loopback."""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping, Sequence

from twisted.names import dns


class NameServer:
    """Answers questions for addresses.

    Not made with the code that asks it: the messages are Twisted's.

    :param names: the addresses of each name, and of what ends in a dot and it; the server
        is silent where there are None.
    :param port: where it answers; by default where there is place.
    :ivar asked: the names that it was asked for, in lower case.
    :ivar place: its address and port.
    """

    def __init__(self, names: Mapping[str, Sequence[str] | None], port: int = 0) -> None:
        self.names = dict(names)
        self.asked: list[str] = []
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", port))
        self.port = self._socket.getsockname()[1]
        self.place = f"127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop; from then on anyone who asks finds nobody."""
        if not self._thread.is_alive():
            return
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while True:
            data, asker = self._socket.recvfrom(4096)
            if not data:
                return
            answer = self._answer(data)
            if answer:
                self._socket.sendto(answer, asker)

    def _answer(self, data: bytes) -> bytes:
        question = dns.Message()
        question.fromStr(data)
        query = question.queries[0]
        name = query.name.name.decode().lower()
        self.asked.append(name)
        answer = dns.Message(question.id, answer=1, recDes=1, recAv=1)
        answer.queries = [query]
        ends = (name[start:] for start in range(len(name)) if not start or name[start - 1] == ".")
        known = next((end for end in ends if end in self.names), None)
        addresses = self.names[known] if known else ()
        if addresses is None:
            return b""
        if known is None:
            answer.rCode = dns.ENAME
        for address in addresses:
            kind = dns.Record_AAAA if ":" in address else dns.Record_A
            record = kind(address, ttl=60)
            if query.type == record.TYPE:
                answer.answers.append(
                    dns.RRHeader(query.name.name, query.type, ttl=60, payload=record)
                )
        encoded: bytes = answer.toStr()
        return encoded
