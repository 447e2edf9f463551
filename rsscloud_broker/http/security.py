"""The HTTP headers on every answer that limit what a browser does with it."""

from __future__ import annotations

from typing import Final

#: A page may load only the broker's style sheets, scripts and icons, may not be put into a frame,
#: and may send forms and requests of scripts only to the broker.
SECURITY_HEADERS: Final = {
    b"content-security-policy": (
        b"default-src 'none'; style-src 'self'; img-src 'self'; script-src 'self'; "
        b"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    b"referrer-policy": b"no-referrer",
    b"x-content-type-options": b"nosniff",
}
