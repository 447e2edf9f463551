"""As much of curl as the documentation uses, for machines without it."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import ProxyHandler, Request, build_opener


def main() -> None:
    """Make one request, as the arguments say, and print the answer."""
    parser = ArgumentParser("curl")
    parser.add_argument("url")
    parser.add_argument("-i", action="store_true")
    parser.add_argument("-d", "--data-binary", dest="data", action="append", default=[])
    parser.add_argument("--data-urlencode", dest="data", action="append", type=_quoted)
    parser.add_argument("-H", dest="headers", action="append", default=[])
    arguments = parser.parse_args()
    body = "&".join(arguments.data).encode() or None
    headers = dict(header.split(": ", 1) for header in arguments.headers)
    opener = build_opener(ProxyHandler({}))
    try:
        answer = opener.open(Request(arguments.url, body, headers))
    except HTTPError as error:
        answer = error
    with answer:
        if arguments.i:
            sys.stdout.write(f"HTTP/1.1 {answer.status} {answer.reason}\n{answer.headers}\n")
        sys.stdout.write(answer.read().decode())


def _quoted(field: str) -> str:
    name, _, value = field.partition("=")
    return f"{name}={quote(value)}"


if __name__ == "__main__":
    main()
