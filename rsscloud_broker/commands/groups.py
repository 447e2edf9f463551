"""A group of commands that suggests no other one than that which was asked for."""

from __future__ import annotations

import click


class Group(click.Group):
    """A group of commands.  Groups in it are of the same class."""

    group_class = type

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command.  No other one is suggested: it might be one that changes data."""
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            ctx.fail(f"There is no command {args[0]!r}.")
        return super().resolve_command(ctx, args)
