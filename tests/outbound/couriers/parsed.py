"""Functions that tests have called by parsers, and the program of such a parser."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path
from typing import Any, BinaryIO

from rsscloud_broker.apps.hosting.documents import check_document
from rsscloud_broker.apps.writing.model import NewPost
from rsscloud_broker.apps.writing.pictures import with_html
from rsscloud_broker.errors import DocumentFault
from rsscloud_broker.outbound.couriers import parser_process
from rsscloud_broker.outbound.couriers.parse_messages import FromParser, Parsed

_FIND = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[3])!r});"

#: The command line of what forks parsers that find these functions.
COMMAND = (
    sys.executable,
    "-c",
    f"{_FIND} from tests.outbound.couriers import parsed;"
    "from rsscloud_broker.composition import courier; courier.main()",
)

#: The same, but parsers outlive what forks them.
OUTLIVING = (
    *COMMAND[:2],
    "from rsscloud_broker.outbound.couriers import confinement;"
    f"confinement.end_with_parent = lambda parent: None; {COMMAND[2]}",
)


class Strange(DocumentFault):
    """A document is strange.

    :ivar number: how strange.
    """

    def __init__(self, text: str, number: int) -> None:
        super().__init__(text)
        self.number = number

    @property
    def parts(self) -> list[str | int]:
        return [self.reason, self.number]


def upper(text: str) -> str:
    return text.upper()


def anything(value: Any) -> bool:
    return bool(value)


def forged(encoded: bytes) -> str:
    """Answer with bytes that are not what this function can return."""
    send = parser_process._send

    def forge(output: BinaryIO, *messages: FromParser) -> None:
        send(output, Parsed(encoded))

    parser_process._send = forge
    return ""


def strange(text: str) -> str:
    raise Strange(text, len(text))


def mistaken(text: str) -> str:
    raise KeyError(text)


def endless(text: str) -> bool:
    """Look for something in C code that hears no signal before it has finished."""
    return bool(re.match("(a|a)*b", "a" * 200))


def large(size: int) -> int:
    return len(bytes(size))


def many(size: int) -> str:
    return "x" * size


def deadly(text: str) -> str:
    os.abort()


def process(text: str) -> int:
    """Which process this is."""
    return os.getpid()


def until_there(path: str) -> str:
    """Wait until there is a file, for a document that takes as long as a test wants."""
    while not os.path.exists(path):
        time.sleep(0.01)
    return path


def leaving(path: str) -> str:
    """What keeps so much memory that the process ends after it, with an answer of many reads."""
    until_there(path)
    _kept.append(b"x" * 2 * parser_process.KEPT)
    return "x" * 140_000


_kept: list[bytes] = []


def message(html: str) -> NewPost:
    return with_html(NewPost(""), html)


def is_topic(saved: tuple[str, bytes, str]) -> bool:
    return check_document(*saved)[2]
