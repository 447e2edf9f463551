"""Shows people the request that a form has made, and its answer, as programs exchange them.

Anyone who writes a program that pings or subscribes learns from a form how: the page that answers
the form shows the request as the broker understood it, the answer that a program gets, and the
command that sends the same request with curl.  Secrets are never shown.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence, Set
from http import HTTPStatus
from typing import Final
from urllib.parse import quote, urlencode, urlsplit

from attrs import frozen

FORM: Final = "application/x-www-form-urlencoded"

#: Stands for a secret.
HIDDEN: Final = "NOT-SHOWN"

#: A longer value is cut to this many characters; no value that the broker accepts is longer.
MAX_VALUE: Final = 2048


@frozen
class ShownAnswer:
    """The answer that a program gets.

    :ivar headers: the headers that a program needs, as pairs of name and value.
    """

    status: int
    headers: Sequence[tuple[str, str]]
    body: str

    @property
    def text(self) -> str:
        """The answer as it goes over the wire."""
        phrase = HTTPStatus(self.status).phrase
        return message(f"HTTP/1.1 {self.status} {phrase}", self.headers, self.body)


def form_slots(
    public_url: str,
    path: str,
    fields: Sequence[tuple[str, str]],
    answer: ShownAnswer,
    secrets: Set[str] = frozenset(),
) -> dict[str, str]:
    """The slots of ``exchange.html`` for a request that sends a form.

    :param public_url: the URL of the broker, without a slash at the end.
    :param path: the path that the form was sent to.
    :param fields: the names and values that the broker understood; empty values are left out.
    :param secrets: the names of fields whose values are not shown.
    """
    # At most 20 fields are shown.
    shown = [
        (name, HIDDEN if name in secrets else value[:MAX_VALUE]) for name, value in fields if value
    ][:20]
    arguments = [_curl_argument(name, value) for name, value in shown]
    command = " \\\n     ".join([f"curl {shlex.quote(public_url + path)}", *arguments])
    return _slots(public_url, path, FORM, urlencode(shown), answer, command)


def document_slots(
    public_url: str, path: str, document: bytes, answer: ShownAnswer
) -> dict[str, str]:
    """The slots of ``exchange.html`` for a request that sends an XML document."""
    text = document.decode()
    command = (
        f"curl {shlex.quote(public_url + path)} -H 'Content-Type: text/xml' \\\n"
        f"     --data-binary {shlex.quote(text)}"
    )
    return _slots(public_url, path, "text/xml", text, answer, command)


def topic_link(url: str, running: Set[str]) -> str:
    """The address of the page about a topic; empty if that page is not served.

    :param running: the names of the front doors that run.
    """
    return f"/topic?url={quote(url, safe='')}" if url and "topic_page" in running else ""


def log_link(topic: str, running: Set[str]) -> str:
    """The address of what the event log says of subscriptions to a topic: there people see whether
    a callback has confirmed.  Empty if that page is not served.

    :param running: the names of the front doors that run.
    """
    if not topic or "event_log" not in running:
        return ""
    return f"/log?kind=subscription&topic={quote(topic, safe='')}"


def _slots(
    public_url: str, path: str, kind: str, body: str, answer: ShownAnswer, command: str
) -> dict[str, str]:
    """The slots of ``exchange.html``: the request, the answer and the command, as text."""
    headers = [("Host", urlsplit(public_url).netloc), ("Content-Type", kind)]
    request = message(f"POST {path} HTTP/1.1", headers, body)
    return {"raw_request": request, "raw_answer": answer.text, "curl": command}


def message(first: str, headers: Iterable[tuple[str, str]], body: str) -> str:
    """A request or an answer as text: its first line, its headers and its body."""
    lines = [first, *(f"{name}: {value}" for name, value in headers)]
    return "\n".join([*lines, "", body])


def _curl_argument(name: str, value: str) -> str:
    """The argument of curl for a field.  A value that could confuse a terminal is encoded."""
    if value.isprintable():
        return f"--data-urlencode {shlex.quote(f'{name}={value}')}"
    return f"--data {shlex.quote(urlencode([(name, value)]))}"
