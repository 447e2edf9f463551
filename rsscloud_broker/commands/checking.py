"""Commands that tell beforehand what a broker would do: check-config and plugins."""

from __future__ import annotations

from functools import partial

import click
from sqlalchemy import make_url

from rsscloud_broker import config, discovery
from rsscloud_broker.commands.shared import config_option, main, plain_errors
from rsscloud_broker.front_doors.listening import check_endpoints
from rsscloud_broker.wire import text


@main.command()
@config_option
@plain_errors()
def check_config(config_file: str | None) -> None:
    """Check a configuration, and say what runs with it."""
    from twisted.internet import reactor  # noqa: PLC0415 # most commands need none

    makers = discovery.discover()
    settings = config.load(config_file, partial(discovery.faults, makers))
    check_endpoints(settings.listen, config_file or "", reactor)
    url = make_url(settings.database_url).render_as_string(hide_password=True)
    lines = {
        "data": settings.data,
        "database": url,
        "listen": ", ".join(settings.listen),
        "public_url": settings.public_url or "(derived from listen)",
    }
    for kind in discovery.KINDS:
        chosen = discovery.select(
            makers.of_kind(kind), getattr(settings, kind), kind, config_file or ""
        )
        lines[kind] = ", ".join(maker.name for maker, _ in chosen) or "(none)"
    for key, value in lines.items():
        click.echo(f"{key:<12} {value}")


@main.command()
@config_option
@plain_errors()
def plugins(config_file: str | None) -> None:
    """List every plugin that is installed, and whether it runs with a configuration."""
    makers = discovery.discover()
    settings = config.load(config_file, partial(discovery.faults, makers))
    rows = [("KIND", "NAME", "RUNS", "PACKAGE", "HELP")]
    for kind in discovery.KINDS:
        found = makers.of_kind(kind)
        chosen = discovery.select(found, getattr(settings, kind), kind, config_file or "")
        running = {maker.name for maker, _ in chosen}
        rows.extend(
            (
                kind,
                name,
                "yes" if name in running else "no",
                makers.package_of(maker),
                text.clean(maker.help),
            )
            for name, maker in sorted(found.items())
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo(line.rstrip())
