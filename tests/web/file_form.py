"""Makes the bodies of requests as clients send them."""

from __future__ import annotations

from typing import TypeAlias

BOUNDARY = "----553d9cee2030456a81931fb708ece92c"

#: The Content-Type of the forms that `multipart` makes.
MULTIPART = f"multipart/form-data; boundary={BOUNDARY}"


#: The name of a field with its value, or with the name and the bytes of its file.
Part: TypeAlias = tuple[str, str | tuple[str, bytes]]


def multipart(*parts: Part) -> bytes:
    """A form with files: pairs of a name and a value, or of the name and bytes of a file."""
    lines: list[bytes] = []
    for name, value in parts:
        lines.append(f"--{BOUNDARY}".encode())
        about = f'Content-Disposition: form-data; name="{name}"'
        if isinstance(value, str):
            lines += [about.encode(), b"", value.encode()]
        else:
            filename, data = value
            lines += [f'{about}; filename="{filename}"'.encode()]
            lines += [b"Content-Type: application/octet-stream", b"", data]
    return b"\r\n".join([*lines, f"--{BOUNDARY}--".encode(), b""])
