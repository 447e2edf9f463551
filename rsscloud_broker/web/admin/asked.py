"""What the operations of administrators take.

A ``title`` is the label of a field in the forms of the console.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec

#: The largest id that the databases can store.
MAX_ID: Final = 2**63 - 1


def _field_meta(description: str, title: str = "", **more: Any) -> msgspec.Meta:
    """What a field is; ``title`` is its label in the forms of the console."""
    return msgspec.Meta(description=description, title=title or None, **more)


Id = Annotated[int, _field_meta("The id.", ge=0, le=MAX_ID)]
After = Annotated[int, _field_meta("The `next` of the page before.", ge=0, le=MAX_ID)]
AfterText = Annotated[str, _field_meta("The `next` of the page before.", max_length=4096)]
Limit = Annotated[int, _field_meta("The most items of the page.", ge=1, le=500)]
Why = Annotated[str, _field_meta("For the event log.", "Why", max_length=500)]
PublicReason = Annotated[
    str, _field_meta("Those whom it concerns read it.", "Why", min_length=1, max_length=500)
]

# subscriptions and topics

Topic = Annotated[str, _field_meta("The URL of a topic.", max_length=2048)]
Host = Annotated[str, _field_meta("The host of the callbacks.", max_length=2048)]
Protocol = Annotated[str, _field_meta("A protocol, such as `websub`.", max_length=64)]
State = Annotated[
    Literal["", "active", "failing", "dropping", "waiting", "expired"], _field_meta("A state.")
]
Url = Annotated[
    str, _field_meta("The URL of the topic, also an earlier one.", min_length=1, max_length=2048)
]
NewUrl = Annotated[str, _field_meta("Its new URL.", "New address", min_length=1, max_length=2048)]

# hosts, blocks and announcements

HostName = Annotated[
    str, _field_meta("Its name, with or without a port.", "Host", min_length=1, max_length=2048)
]
Kind = Annotated[Literal["host", "topic", "source"], _field_meta("What is blocked.", "Kind")]
OnlyKind = Annotated[Literal["", "host", "topic", "source"], _field_meta("Only blocks of a kind.")]
Object = Annotated[
    str,
    _field_meta(
        "A host such as `spam.example` or `*.spam.example`, the URL of a topic or the beginning "
        "of URLs with a `*` at its end, or an address or a network such as `192.0.2.0/24`.",
        "What",
        min_length=1,
        max_length=2048,
    ),
]
Text = Annotated[str, _field_meta("Plain text.", "Text", min_length=1, max_length=1000)]
Since = Annotated[
    datetime | None,
    _field_meta("In UTC, such as `2026-11-22T10:30:00Z`; without it, it begins now.", "From"),
]
Until = Annotated[datetime | None, _field_meta("In UTC; without it, it has no end.", "Until")]

# accounts

Name = Annotated[str, _field_meta("The name of the account.", "Name", min_length=1, max_length=32)]
NewName = Annotated[
    str,
    _field_meta(
        "2 to 32 of the letters a to z, digits and hyphens.", "Name", min_length=1, max_length=32
    ),
]
Role = Annotated[Literal["member", "administrator"], _field_meta("What it may do.", "Role")]
Megabytes = Annotated[
    int,
    _field_meta(
        "The most that each application stores for it; 0 for what the configuration says.",
        "Megabytes",
        ge=0,
        le=1_000_000,
    ),
]
