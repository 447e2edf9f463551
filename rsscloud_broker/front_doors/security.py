"""The headers that limit what a browser does with an answer."""

from __future__ import annotations

from typing import Final

#: On every answer that a door gives: a page may load nothing but its style sheet and its icons,
#: be framed nowhere and send its forms only here.
SECURITY_HEADERS: Final = {
    b"content-security-policy": (
        b"default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; "
        b"base-uri 'none'; frame-ancestors 'none'"
    ),
    b"referrer-policy": b"no-referrer",
    b"x-content-type-options": b"nosniff",
}
