"""The benchmark command: ``python -m benchmarks ROW... [--count N] [--rounds N]``."""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from http.client import HTTPException
from pathlib import Path

import click
from attrs import evolve

from benchmarks import (
    black_holes,
    change_list,
    cluster,
    couriers,
    events,
    hosting,
    notify,
    pings,
    planning,
    relay,
    rivers,
    simplefeed,
    start,
)
from benchmarks.processes import Failed, raise_file_limit
from benchmarks.report import Line, as_page, as_text, machine
from benchmarks.rows import Row, Settings

ROWS: dict[str, Row] = {
    "notify": notify.new_connections,
    "scaling": notify.scaling,
    "notify-large": notify.large,
    "notify-websub": notify.websub,
    "notify-tls": notify.tls,
    "notify-tls-busy": notify.tls_under_pressure,
    "notify-slow-host": notify.slow_host,
    "notify-one-host": notify.one_host,
    "notify-names": notify.names,
    "couriers": couriers.plain,
    "couriers-tls": couriers.tls,
    "couriers-websub": couriers.websub,
    "couriers-latency": couriers.latency,
    "couriers-model": couriers.model,
    "couriers-pings": couriers.pings,
    "xmlrpc-pings": pings.xmlrpc,
    "postgresql-notify": cluster.notify,
    "postgresql-pings": cluster.accept,
    "two-notify": cluster.notify_by_two,
    "two-pings": cluster.accept_by_two,
    "takeover": cluster.take_over,
    "cloud-pings": pings.cloud,
    "not-modified": pings.not_modified,
    "one-topic": pings.one_topic,
    "change-list": change_list.serving,
    "making-change-list": change_list.making,
    "feed": hosting.serving,
    "save-rss": hosting.saving,
    "black-holes": black_holes.latencies,
    "black-hole-names": black_holes.names,
    "relay": relay.relay,
    "rivers": rivers.rivers,
    "start": start.start,
    "planning": planning.planning,
    "append": simplefeed.appending,
    "events": events.appending,
    "events-documents": events.serving,
    "follow": simplefeed.catching_up,
}


@click.command(epilog="Rows: " + ", ".join(ROWS))
@click.argument(
    "rows", nargs=-1, required=True, type=click.Choice([*ROWS, "all"]), metavar="ROW..."
)
@click.option("--count", type=click.IntRange(1), help="A size instead of the row's own.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option(
    "--deadline", default=600.0, show_default=True, help="Seconds after which a row has failed."
)
@click.option(
    "--directory",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    help="The directory of the databases; it must be on a disk to be durable.  [default: that "
    "for temporary files]",
)
@click.option(
    "--write", type=click.Path(dir_okay=False, path_type=Path), help="An rST page to write."
)
def main(
    rows: tuple[str, ...],
    count: int | None,
    rounds: int,
    deadline: float,
    directory: Path | None,
    write: Path | None,
) -> None:
    """Measure how fast the broker is, beside floors measured in the same run.

    ROW is one of those below, or "all".  The exit status says whether all counts
    were right, and nothing about speed.
    """
    raise_file_limit()
    # At SIGTERM leave the "with" blocks, which end the processes.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    names = list(ROWS) if "all" in rows else list(dict.fromkeys(rows))
    lines: list[Line] = []
    failed = False
    with tempfile.TemporaryDirectory(prefix="benchmarks-", dir=directory) as temporary:
        settings = Settings(Path(temporary).resolve(), count, rounds, deadline)
        where = machine(settings.directory)
        for name in names:
            try:
                lines += _run(name, settings)
            except (Failed, OSError, HTTPException) as error:
                click.echo(f"{name}: {error or type(error).__name__}", err=True)
                failed = True
    click.echo(f"{where}\n\n{as_text(lines)}")
    if write is not None and not failed:
        write.write_text(as_page(lines, where), encoding="utf-8")
    if failed:
        raise SystemExit(1)


def _run(name: str, settings: Settings) -> list[Line]:
    click.echo(f"{name} ...", err=True)
    directory = settings.directory / name
    directory.mkdir()
    began = time.monotonic()
    lines = list(ROWS[name](evolve(settings, directory=directory)))
    click.echo(f"{as_text(lines)}\n({time.monotonic() - began:.0f} s)\n", err=True)
    return lines


if __name__ == "__main__":
    main()
