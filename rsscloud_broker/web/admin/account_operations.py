"""The operations of administrators on accounts: see ``operations``."""

from __future__ import annotations

from functools import partial
from typing import Final

from rsscloud_broker.web.admin import asked, shapes
from rsscloud_broker.web.admin.api_operation import Administrator, OperationForm, operation
from rsscloud_broker.web.admin.shapes import shape_of
from rsscloud_broker.wire.text import clean

_on_page = partial(OperationForm, "/admin/account")

_MEGABYTE: Final = 1_000_000


@operation("/accounts", limit=10)
async def accounts(
    by: Administrator, after: asked.AfterText = "", limit: asked.Limit = 50
) -> shapes.Accounts:
    """List the accounts."""
    found = await by.verbs.accounts.accounts(clean(after), limit)
    following = found[-1].name if len(found) == limit else None
    return shapes.Accounts(items=[shape_of(shapes.Account, one) for one in found], next=following)


@operation("/account", name="anna")
async def account(by: Administrator, name: asked.Name) -> shapes.Account:
    """Show an account."""
    return shape_of(shapes.Account, await by.verbs.accounts.account(name))


@operation("/account/published", name="anna")
async def published(by: Administrator, name: asked.Name) -> shapes.Works:
    """List the newest that an account publishes, and what was taken down of it."""
    owner = await by.verbs.accounts.account(name)
    works = await by.verbs.published(owner.name)
    removed = await by.verbs.taken_down(owner.name, owner.created_at)
    return shapes.Works(
        items=[shape_of(shapes.Work, one) for one in works],
        taken_down=[shape_of(shapes.Change, one) for one in removed],
    )


@operation("/accounts", _on_page("Invite", "The account is made."), name="berta")
async def invite(
    by: Administrator, name: asked.NewName, role: asked.Role = "member", reason: asked.Why = ""
) -> shapes.Invitation:
    """Make an account, and a link by which its owner signs in once and chooses a password."""
    is_admin = role == "administrator"
    made = await by.verbs.accounts.invite(by.name, name, is_admin, reason)
    return shape_of(shapes.Invitation, made)


@operation(
    "/accounts/reset",
    _on_page(
        "Make a new link",
        "The link is made.",
        "The password is forgotten, all sessions end, and all API tokens are removed; by a new "
        "link the owner signs in and chooses another password.",
    ),
    name="anna",
    reason="the password is lost",
)
async def reset(by: Administrator, name: asked.Name, reason: asked.Why = "") -> shapes.Invitation:
    """Replace the password of an account by a new link to sign in."""
    return shape_of(shapes.Invitation, await by.verbs.accounts.reset(by.name, name, reason))


@operation(
    "/accounts/disable",
    _on_page(
        "Disable it",
        "The account is disabled: nobody can sign in to it, and its tokens do not work.",
    ),
    name="anna",
    reason="it sends spam",
)
async def disable(by: Administrator, name: asked.Name, reason: asked.PublicReason) -> None:
    """Keep everybody out of an account; what it has published stays."""
    await by.verbs.accounts.disable(by.name, name, reason)


@operation("/accounts/enable", _on_page("Enable it", "The account is enabled."), name="anna")
async def enable(by: Administrator, name: asked.Name, reason: asked.Why = "") -> None:
    """Let the owner of a disabled account in again."""
    await by.verbs.accounts.enable(by.name, name, reason)


@operation(
    "/accounts/promote",
    _on_page("Make it an administrator", "The account is an administrator's now."),
    name="anna",
)
async def promote(by: Administrator, name: asked.Name, reason: asked.Why = "") -> None:
    """Make an account an administrator's."""
    await by.verbs.accounts.set_role(by.name, name, is_admin=True, reason=reason)


@operation(
    "/accounts/demote",
    _on_page("Make it an ordinary account", "The account is an ordinary one now."),
    name="anna",
)
async def demote(by: Administrator, name: asked.Name, reason: asked.Why = "") -> None:
    """Make an administrator's account an ordinary one."""
    await by.verbs.accounts.set_role(by.name, name, is_admin=False, reason=reason)


@operation(
    "/accounts/limit",
    _on_page("Set the limit", "The limit is set."),
    name="anna",
    megabytes=500,
)
async def set_limit(
    by: Administrator, name: asked.Name, megabytes: asked.Megabytes, reason: asked.Why = ""
) -> None:
    """Set how much each application may store for an account."""
    max_bytes = megabytes * _MEGABYTE or None
    await by.verbs.accounts.set_limit(by.name, name, max_bytes, reason)


@operation(
    "/accounts/remove",
    OperationForm(
        "/admin/accounts",
        "Remove it",
        "The account is removed.",
        "The account is removed, with all that it has published.",
    ),
    name="anna",
    reason="its owner given for it",
)
async def remove_account(by: Administrator, name: asked.Name, reason: asked.Why = "") -> None:
    """Remove an account, with all that it has published."""
    await by.verbs.accounts.remove(by.name, name, reason)
