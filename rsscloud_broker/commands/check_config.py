"""The commands that examine a configuration before a broker runs: check-config and plugins."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click
from attrs import evolve

from rsscloud_broker import config, storage
from rsscloud_broker.commands.configured import config_option, data_option, plain_errors
from rsscloud_broker.commands.output import print_table
from rsscloud_broker.http.listening import SYSTEMD, check_endpoints
from rsscloud_broker.runtime import plugin_discovery, start_checks
from rsscloud_broker.runtime.command_line import Options
from rsscloud_broker.wire import text


@click.command()
@config_option
@data_option
@click.option("--public-url", metavar="URL", help="The URL at which others reach the broker.")
@click.option("--listen", multiple=True, metavar="ENDPOINT", help="An endpoint to listen on.")
@click.option("--couriers", metavar="NUMBER|auto", help="How many processes call other servers.")
@click.option("--local", is_flag=True, help="Listen only to this machine.")
@plain_errors()
def check_config(config_file: str | None, public_url: str | None, **others: Any) -> None:
    """Check whether a broker would start, and show what would run.

    Give the options with which the broker is started.  The command changes nothing and does not
    disturb a broker that runs.  The exit status is 0 only if the broker would start.
    """
    makers = plugin_discovery.discover()
    settings, service = build_unstarted(makers, config_file, public_url, **others)
    found = start_checks.examine(settings, service.app_tables)
    if settings.public_url is None:
        warning = start_checks.DERIVED_URL.format(url=settings.address)
        click.echo(f"Warning: {warning}", err=True)
    if found.faults:
        raise click.ClickException("\n".join(found.faults))
    lines = {
        "data": f"{settings.data} ({found.data})",
        "database": f"{storage.shown(settings.database_url)} ({found.database})",
        "listen": ", ".join(settings.listen),
        "metrics": _metrics_in_words(settings.metrics),
        "public_url": settings.public_url or f"{settings.address} (derived from listen)",
    }
    for kind in plugin_discovery.KINDS:
        chosen = plugin_discovery.select(makers.of_kind(kind), getattr(settings, kind), kind)
        lines[kind] = ", ".join(maker.name for maker, _ in chosen) or "(none)"
    for key, value in lines.items():
        click.echo(f"{key:<12} {value}")
    for note in found.notes:
        click.echo(f"note: {note}")


def build_unstarted(
    makers: plugin_discovery.Makers, config_file: str | None, public_url: str | None, **others: Any
) -> tuple[config.Config, Any]:
    """Build a broker as twistd would, without starting it.

    :param others: further options of twistd's command line, by name.
    :returns: the configuration, and the broker's service.
    :raises ConfigError: the configuration or an endpoint cannot be used.
    :raises PluginError, FrontDoorsError: the plugins cannot be used.
    """
    # Imported here, since most commands need neither.
    from twisted.internet import reactor  # noqa: PLC0415

    from rsscloud_broker.composition.server import Server  # noqa: PLC0415

    settings = configuration_of(makers, config_file, public_url, **others)
    try:
        check_endpoints(settings.all_listen, reactor)
    except config.ConfigError as error:
        where, text = "the command line", ""
        if config_file and not others["listen"]:
            where, text = config_file, Path(config_file).read_text(encoding="utf-8")
        faults = (f"{where}: {config.with_line(each, text)}" for each in str(error).splitlines())
        raise config.ConfigError("\n".join(faults)) from error
    return settings, Server(_without_systemd(settings), reactor, makers).service


def configuration_of(
    makers: plugin_discovery.Makers, config_file: str | None, public_url: str | None, **others: Any
) -> config.Config:
    """The configuration of a broker that twistd starts with these options of its command line."""
    options = Options()
    options.update({"config": config_file, "public-url": public_url, **others})
    return options.configuration(makers)


def _without_systemd(settings: config.Config) -> config.Config:
    """A configuration without the sockets that systemd passes only to the broker itself."""

    def others(endpoints: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(each for each in endpoints if not each.startswith(SYSTEMD))

    metrics = evolve(settings.metrics, listen=others(settings.metrics.listen))
    return evolve(
        settings,
        listen=others(settings.listen) or ("tcp:0",),
        metrics=metrics,
        public_url=settings.address,
    )


def _metrics_in_words(settings: config.Metrics) -> str:
    if not settings.enabled:
        return "(none)"
    where = ", ".join(settings.listen) or "as above"
    return f"{where} (with a token)" if settings.token else where


@click.command()
@config_option
@plain_errors()
def plugins(config_file: str | None) -> None:
    """List all installed plugins, and show which of them a configuration enables.

    Plugins that cannot be used are named after the list, and the exit status is 1.
    """
    makers, problems = plugin_discovery.survey()
    # If plugins cannot be used, their tables would be reported as faults, too.
    check = None if problems else partial(plugin_discovery.faults, makers)
    settings = config.load(config_file, check)
    rows = [("KIND", "NAME", "RUNS", "PACKAGE", "HELP")]
    for kind in plugin_discovery.KINDS:
        found = makers.of_kind(kind)
        tables = {
            name: table
            for name, table in getattr(settings, kind).items()
            if name in found or not problems
        }
        chosen = plugin_discovery.select(found, tables, kind, config_file or "")
        running = {maker.name for maker, _ in chosen}
        for name, maker in sorted(found.items()):
            runs = "yes" if name in running else "no"
            rows.append((kind, name, runs, makers.package_of(maker), text.clean(maker.help)))
    print_table(rows)
    if problems:
        raise click.ClickException(plugin_discovery.report(problems))
