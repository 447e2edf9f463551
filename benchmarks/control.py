"""How a helper process receives commands from the benchmark that started it, and answers them.

Commands come on stdin and answers go to stdout, both as JSON objects, one a line.  The member
``do`` of a command names it; each command gets one answer.  A helper ends when its stdin is closed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any, TypeAlias

#: A command or an answer.
Message: TypeAlias = dict[str, Any]


def arguments() -> Message:
    """The arguments that the process was started with."""
    return parse(sys.argv[1])


def parse(text: str | bytes) -> Message:
    """Parse a command."""
    given: Message = json.loads(text)
    return given


def answer(**values: object) -> None:
    """Write an answer."""
    print(json.dumps(values), flush=True)


def questions() -> Iterator[Message]:
    """The commands, one after the other, until stdin is closed."""
    for line in sys.stdin:
        yield parse(line)
