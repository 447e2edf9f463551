"""The helper's side of the conversation with the process that started it.

Questions are objects of JSON, one a line, whose member ``do`` says what is to be
done; each gets one answer.  A helper ends when nobody can ask any more.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any, TypeAlias

#: A question or an answer.
Message: TypeAlias = dict[str, Any]


def arguments() -> Message:
    """What the process was started with."""
    return parse(sys.argv[1])


def parse(text: str | bytes) -> Message:
    """What a question says."""
    given: Message = json.loads(text)
    return given


def answer(**values: object) -> None:
    """Tell the process that asked."""
    print(json.dumps(values), flush=True)


def questions() -> Iterator[Message]:
    """What is asked, one after the other."""
    for line in sys.stdin:
        yield parse(line)
