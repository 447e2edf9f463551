"""Reads which part of a file a request asks for (RFC 9110, section 14)::

Range: bytes=100-199    100 bytes from the 101st on
Range: bytes=100-       all but the first 100 bytes
Range: bytes=-100       the last 100 bytes
"""

from __future__ import annotations

import re
from typing import Final

# Any other range is ignored, as the RFC allows.  Several ranges could ask for a large file many
# times over.
_RANGE: Final = re.compile(
    r"bytes=(?:(?P<first>[0-9]{1,15})-(?P<last>[0-9]{0,15})|-(?P<length>[0-9]{1,15}))",
    re.ASCII | re.IGNORECASE,
)


def asked_part(header: str, size: int) -> tuple[int, int] | None:
    """The part that a Range header asks for.

    :param header: the value of the header; empty if there is none.
    :param size: the size of the file in bytes.
    :returns: the place of the first byte, and the place after the last one.  Both are ``size`` if
        the part is beyond the end, which is answered with 416.  None for the whole file.
    """
    found = _RANGE.fullmatch(header)
    if found is None:
        return None
    if found["length"]:
        return max(0, size - int(found["length"])), size
    first, end = int(found["first"]), int(found["last"]) + 1 if found["last"] else size
    if found["last"] and end <= first:
        return None  # it ends before it begins, so it is invalid
    return min(first, size), min(end, size)
