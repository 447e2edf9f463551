"""Reads the arguments of calls by which editors write, and has the codes of the faults.

Editors send what they like: an int in place of a string, a string in place of a boolean.  What has
one meaning only is taken; for all else there is a fault that says what was wrong.

Faults have the codes of HTTP and of WordPress, by which editors know what to do: with 403 they ask
for the password again.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

from twisted.web.xmlrpc import Fault

from rsscloud_broker.wire.text import parse_number, text_of


class FaultCode:
    """The codes of faults.  No enumeration, since ``xmlrpc.client`` writes none."""

    BAD_REQUEST: Final = 400
    FORBIDDEN: Final = 401
    WRONG_PASSWORD: Final = 403
    NOT_FOUND: Final = 404
    NEEDS_TLS: Final = 426
    TOO_MANY: Final = 429


def no_such_post(number: Any) -> Fault:
    """The fault for a message that does not exist, or belongs to somebody else."""
    return Fault(FaultCode.NOT_FOUND, f"You have no message with the id {str(number)[:40]}.")


def text_in(value: Any, what: str) -> str:
    """The text that somebody sent as a string, or as base64 as some clients do.

    :param what: what it is, for the fault.
    """
    text = text_of(value)
    if text is None:
        raise Fault(FaultCode.BAD_REQUEST, f"The type of {what} must be string.")
    return text


def struct_in(value: Any, what: str) -> Mapping[str, Any]:
    """A struct that somebody sent; ``what`` names it in the fault."""
    if not isinstance(value, dict):
        raise Fault(FaultCode.BAD_REQUEST, f"The type of {what} must be struct.")
    return value


def texts_in(value: Any, what: str) -> list[str]:
    """The texts in an array that somebody sent; a single string is one."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise Fault(FaultCode.BAD_REQUEST, f"The type of {what} must be array.")
    return [text_in(each, what) for each in value]


def flag_in(value: Any) -> bool:
    """A boolean, which some clients send as an int or a string."""
    if isinstance(value, str):
        return value.strip().lower() in {"1", "true", "yes"}
    return value not in (0, None)


def count_in(value: Any, most: int) -> int:
    """How many messages somebody wants: at least one, and at most this many."""
    try:
        return min(max(int(value), 1), most)
    except (TypeError, ValueError):
        raise Fault(FaultCode.BAD_REQUEST, "The number of messages must be an int.") from None


def id_in(value: Any) -> int:
    """The id of a message, which some clients send as an int.  It may be one that never exists."""
    text = str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
    number = parse_number(text)
    if number is None:
        raise no_such_post(value)
    return number


def number_of(name: str) -> int:
    """A number for a category or a file, made of its name: editors want numbers as ids."""
    return int.from_bytes(sha256(name.encode("utf-8", "replace")).digest()[:4], "big") >> 1 or 1
