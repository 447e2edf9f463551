"""What administrators may give as the reason of a change."""

from __future__ import annotations

from typing import Final

from rsscloud_broker.errors import Unadministrable
from rsscloud_broker.model.administration import Change
from rsscloud_broker.wire.text import clean

#: The longest reason, in characters.
MAX_REASON: Final = 500


def change_by(account: str, verb: str, what: object, reason: str, at: float) -> Change:
    """A change that an administrator makes.

    :raises Unadministrable: there is no account, or the reason is too long.
    """
    if not account:
        raise Unadministrable("a change needs the name of the account that makes it")
    reason = clean(reason)
    if len(reason) > MAX_REASON:
        raise Unadministrable(f"the reason must have {MAX_REASON} characters or fewer")
    return Change(account, verb, str(what), reason, at)


def needed(reason: str) -> str:
    """A reason that others read.

    :raises Unadministrable: it is empty.
    """
    if not reason.strip():
        raise Unadministrable("a reason is needed here: others read it")
    return reason
