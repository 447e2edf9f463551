"""Cleans and decodes texts from strangers, for front doors and for the other codecs.

The result of :func:`clean` fits on one line of a change list, a log or a header, and is legal
in XML 1.0.  The ``to_...`` functions read the scalar values of XML-RPC and SOAP; each raises
``ValueError`` with the rule.
"""

from __future__ import annotations

import math
import re
from base64 import b64decode

_ILLEGAL_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_LINE_BREAKS_AND_TABS = re.compile("[\t\n\v\f\r\x85\u2028\u2029]+")
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f]")

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_DOUBLE = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
_CHARSET = re.compile(r";\s*charset\s*=\s*[\"']?([A-Za-z0-9._:+-]{1,40})", re.IGNORECASE)
_WHITE_SPACE = b" \t\n\v\f\r"
_BOOLEANS = {"1": True, "true": True, "0": False, "false": False}


def clean(text: str) -> str:
    """A text as one line, fit to be stored and shown.

    Tabs and line breaks become spaces.  Other control characters, lone surrogates, characters
    that XML cannot carry, and white space at both ends are removed.
    """
    if text.isascii() and text.isprintable():
        return text.strip()  # nothing to remove, as in most texts
    text = _LINE_BREAKS_AND_TABS.sub(" ", text)
    return _CONTROLS.sub("", legal(text)).strip()


def legal(text: str) -> str:
    """A text without the characters that XML 1.0 cannot carry (section 2.2)."""
    if text.isascii() and text.isprintable():
        return text  # nothing to remove, as in most texts
    return _ILLEGAL_IN_XML.sub("", text)


def sentence(clause: str) -> str:
    """A clause as a sentence: with a capital letter and a full stop.

    A first word that is no word of the language, such as a URL or a name in code, stays as it is.
    """
    first = clause.partition(" ")[0].rstrip(",.;:!?")
    if first.islower() and first.replace("-", "").replace("'", "").isalpha():
        clause = clause[0].upper() + clause[1:]
    return clause if clause.endswith((".", "!", "?")) else f"{clause}."


def parse_number(text: str) -> int | None:
    """The whole number in a text, such as the id of a message in a URL; None if the text is none.

    It has at most 18 digits: more do not surely fit into the 64 bits of a database's integers.
    """
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def charset_of(media_type: str) -> str | None:
    """The charset parameter of a media type, such as a Content-Type header; None if it has none."""
    found = _CHARSET.search(media_type)
    return found[1] if found else None


def decode(data: bytes) -> str:
    """Decode a field of a form or a query.  Never raises.

    Browsers send UTF-8; bytes that are not UTF-8 come from old tools and are read as windows-1252.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("windows-1252", "replace")


def decode_exactly(data: bytes) -> str:
    """Decode a field as UTF-8 without guessing another encoding.  Never raises.

    Bytes that are not UTF-8 become lone surrogates (PEP 383), by which the caller can recognize
    them.
    """
    return data.decode("utf-8", "surrogateescape")


def text_of(value: object) -> str | None:
    """The text that a client meant by a parameter of a call; None if it cannot be a text.

    Some clients choose the type of a text by its form: they send a text that is not ASCII as
    base64, and a text of digits as a number.  Bytes are read as fields of forms are.
    """
    match value:
        case str():
            return value
        case bytes():
            return decode(value)
        case bool():
            return None
        case int() | float():
            return str(value)
    return None


def to_integer(text: str) -> int:
    """Read an integer: decimal digits with an optional sign, of at most 64 bits."""
    text = text.strip()
    if not _INTEGER.fullmatch(text) or not -(2**63) <= int(text) < 2**63:
        raise ValueError("an integer must be decimal digits and fit into 64 bits")
    return int(text)


def to_boolean(text: str) -> bool:
    """Read a boolean: 1, 0, true or false."""
    try:
        return _BOOLEANS[text.strip().lower()]
    except KeyError:
        raise ValueError("a boolean must be 1, 0, true or false") from None


def to_double(text: str) -> float:
    """Read a finite decimal number, with or without an exponent."""
    text = text.strip()
    if not _DOUBLE.fullmatch(text) or not math.isfinite(float(text)):
        raise ValueError("a double must be a finite decimal number")
    return float(text)


def to_bytes(text: str) -> bytes:
    """Read base64, which may have white space anywhere."""
    try:
        return b64decode(text.encode("ascii").translate(None, _WHITE_SPACE), validate=True)
    except ValueError:
        raise ValueError("this is not base64") from None


def in_bytes(body: bytes) -> str:
    """The size of a body, for people: ``1 byte``, or ``12,345 bytes``."""
    return "1 byte" if len(body) == 1 else f"{len(body):,} bytes"
