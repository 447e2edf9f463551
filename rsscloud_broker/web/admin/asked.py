"""What the operations of administrators take.

A ``title`` is the label of a field in the forms of the console.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec

from rsscloud_broker.web.admin.api_operation import Asked

#: The largest id that the databases can store.
MAX_ID: Final = 2**63 - 1


def _field_meta(description: str, title: str = "", **more: Any) -> msgspec.Meta:
    """What a field is.

    :param title: its label in the forms of the console.
    """
    return msgspec.Meta(description=description, title=title or None, **more)


_Id = Annotated[int, _field_meta("The id.", ge=0, le=MAX_ID)]
_After = Annotated[int, _field_meta("The `next` of the page before.", ge=0, le=MAX_ID)]
_AfterText = Annotated[str, _field_meta("The `next` of the page before.", max_length=4096)]
_Limit = Annotated[int, _field_meta("The most items of the page.", ge=1, le=500)]
_Why = Annotated[str, _field_meta("For the event log.", "Why", max_length=500)]
_PublicReason = Annotated[
    str, _field_meta("Those whom it concerns read it.", "Why", min_length=1, max_length=500)
]
_Url = Annotated[
    str, _field_meta("The URL of the topic, also an earlier one.", min_length=1, max_length=2048)
]
_Kind = Annotated[Literal["host", "topic", "source"], _field_meta("What is blocked.", "Kind")]
_Object = Annotated[
    str,
    _field_meta(
        "A host such as `spam.example` or `*.spam.example`, the URL of a topic or the beginning "
        "of URLs with a `*` at its end, or an address or a network such as `192.0.2.0/24`.",
        "What",
        min_length=1,
        max_length=2048,
    ),
]


_Name = Annotated[str, _field_meta("The name of the account.", "Name", min_length=1, max_length=32)]


class Nothing(Asked, frozen=True):
    """Nothing."""


class ById(Asked, frozen=True):
    """An id."""

    id: _Id


class ByIdWithReason(ById, frozen=True):
    """An id, and why."""

    reason: _Why = ""


class Find(Asked, frozen=True):
    """A filter of subscriptions, and which page."""

    topic: Annotated[str, _field_meta("The URL of a topic.", max_length=2048)] = ""
    host: Annotated[str, _field_meta("The host of the callbacks.", max_length=2048)] = ""
    protocol: Annotated[str, _field_meta("A protocol, such as `websub`.", max_length=64)] = ""
    state: Annotated[
        Literal["", "active", "failing", "dropping", "waiting", "expired"], _field_meta("A state.")
    ] = ""
    after: _After = 0
    limit: _Limit = 50


class ByUrl(Asked, frozen=True):
    """A topic."""

    url: _Url


class ByUrlWithReason(ByUrl, frozen=True):
    """A topic, and why."""

    reason: _Why = ""


class End(ByUrl, frozen=True):
    """A topic, and the reason that its subscribers are sent."""

    reason: _PublicReason


class Move(Asked, frozen=True):
    """A topic, and where it moves to."""

    url: _Url
    to: Annotated[str, _field_meta("Its new URL.", "New address", min_length=1, max_length=2048)]
    reason: _Why = ""


class Page(Asked, frozen=True):
    """Which page of a list by id."""

    after: _After = 0
    limit: _Limit = 50


class PageByName(Asked, frozen=True):
    """Which page of a list by name."""

    after: _AfterText = ""
    limit: _Limit = 50


class CloseBreaker(Asked, frozen=True):
    """A host, and why."""

    host: Annotated[
        str, _field_meta("Its name, with or without a port.", "Host", min_length=1, max_length=2048)
    ]
    reason: _Why = ""


class BlockPage(Asked, frozen=True):
    """Which blocks, and which page."""

    kind: Annotated[
        Literal["", "host", "topic", "source"], _field_meta("Only blocks of a kind.")
    ] = ""
    after: _AfterText = ""
    limit: _Limit = 50


class NewBlock(Asked, frozen=True):
    """What to block, and why."""

    kind: _Kind
    object: _Object
    reason: _PublicReason


class LiftBlock(Asked, frozen=True):
    """Which block to lift, and why."""

    kind: _Kind
    object: _Object
    reason: _Why = ""


class Announce(Asked, frozen=True):
    """A text, and when it is shown."""

    text: Annotated[str, _field_meta("Plain text.", "Text", min_length=1, max_length=1000)]
    since: Annotated[
        datetime | None,
        _field_meta("In UTC, such as `2026-11-22T10:30:00Z`; without it, it begins now.", "From"),
    ] = None
    until: Annotated[
        datetime | None, _field_meta("In UTC; without it, it has no end.", "Until")
    ] = None


class ByName(Asked, frozen=True):
    """An account."""

    name: _Name


class ByNameWithReason(ByName, frozen=True):
    """An account, and why."""

    reason: _Why = ""


class Disable(ByName, frozen=True):
    """An account, and why its owner may not use it."""

    reason: _PublicReason


class Invite(Asked, frozen=True):
    """A new account."""

    name: Annotated[
        str,
        _field_meta(
            "2 to 32 of the letters a to z, digits and hyphens.",
            "Name",
            min_length=1,
            max_length=32,
        ),
    ]
    role: Annotated[Literal["member", "administrator"], _field_meta("What it may do.", "Role")] = (
        "member"
    )
    reason: _Why = ""


class Limit(ByName, frozen=True):
    """How much may be stored for an account."""

    megabytes: Annotated[
        int,
        _field_meta(
            "The most that each application stores for it; 0 for what the configuration says.",
            "Megabytes",
            ge=0,
            le=1_000_000,
        ),
    ]
    reason: _Why = ""
