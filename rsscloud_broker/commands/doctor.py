"""The command ``doctor``, which examines an installed broker, or a feed for its publisher.

``rsscloud_broker.commands.doctor_checks`` checks the broker, and ``client.feed_doctor`` the feed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from rsscloud_broker import config
from rsscloud_broker.client import feed_doctor
from rsscloud_broker.client.feed_push import OwnBroker
from rsscloud_broker.client.feed_requests import make_ask
from rsscloud_broker.commands.check_config import build_unstarted, configuration_of
from rsscloud_broker.commands.configured import config_option, data_option, plain_errors
from rsscloud_broker.commands.connected import cacert_option, outbound, run
from rsscloud_broker.commands.doctor_checks import checks, results
from rsscloud_broker.commands.doctor_checks.results import CheckContext, Result
from rsscloud_broker.delivery.notifiers.websub import PROTOCOL as WEBSUB
from rsscloud_broker.http.offers import FrontDoorsError
from rsscloud_broker.runtime import plugin_building, plugin_discovery
from rsscloud_broker.util.clock import SystemClock

#: The protocols of rssCloud notifications that a broker of this kind has by default.
_USUAL = frozenset({"http-post", "https-post", "xml-rpc", "soap"})


@click.command("doctor")
@click.argument("feed_url", required=False)
@config_option
@data_option
@click.option("--public-url", metavar="URL", help="The URL at which others reach the broker.")
@click.option("--listen", multiple=True, metavar="ENDPOINT", help="An endpoint to listen on.")
@click.option("--couriers", metavar="NUMBER|auto", help="How many processes call other servers.")
@click.option("--local", is_flag=True, help="The broker listens only to this machine.")
@click.option("--logfile", metavar="FILE", help="The log file, as given to twistd.")
@click.option("--time-url", default="", metavar="URL", help="A server whose clock to compare.")
@click.option("--broker", metavar="URL", help="With FEED_URL: the broker that the feed uses.")
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
@cacert_option
@plain_errors()
def examine(
    feed_url: str | None,
    config_file: str | None,
    public_url: str | None,
    logfile: str | None,
    time_url: str,
    broker: str | None,
    as_json: bool,
    **others: Any,
) -> None:
    """Check a broker on this machine, or the feed at FEED_URL.

    For a broker, give the options with which it is started, and run this as its user while it
    runs.  Each line says ok, warn or fail, what was found, and what to do.  The command changes
    nothing.  The exit status is 1 if anything fails.

    For a feed, the command says what its subscribers get, and whether the cloud and the hub that
    it names answer.  With --config or --broker it also says whether they are that broker.
    """
    if broker and not feed_url:
        raise click.UsageError("--broker needs FEED_URL")
    if feed_url:
        own = _named_broker(config_file, public_url, broker, **others)

        async def examine_feed(reactor: Any) -> None:
            clock = SystemClock(reactor)
            ask = make_ask(outbound(reactor), clock)
            _finish(results.of_feed(await feed_doctor.examine(ask, clock, feed_url, own)), as_json)

        run(examine_feed)
        return
    try:
        makers = plugin_discovery.discover()
        settings, service = build_unstarted(makers, config_file, public_url, **others)
    except (config.ConfigError, plugin_discovery.PluginError, FrontDoorsError) as error:
        lines = str(error).splitlines()
        _print_results([Result("fail", "configuration", line) for line in lines], as_json)
        raise SystemExit(1) from error
    chosen = plugin_discovery.select(makers.front_doors, settings.front_doors, "front_doors")
    doors = frozenset(maker.name for maker, _ in chosen)

    async def work(reactor: Any) -> None:
        clock = SystemClock(reactor)
        context = CheckContext(
            settings,
            service.descriptors,
            doors,
            reactor,
            clock,
            make_ask(outbound(reactor), clock),
            config_file,
            logfile,
            time_url,
            service.app_tables,
        )
        where = config_file or "the defaults"
        first = Result("ok", "configuration", f"{where}: it can be used")
        _finish([first, *await checks.examine(context)], as_json)

    run(work)


def _named_broker(
    config_file: str | None, public_url: str | None, url: str | None, **others: Any
) -> OwnBroker | None:
    """The broker that a feed should name; None if the command line names none."""
    if url or not config_file:
        url = url or public_url
        return OwnBroker(url.rstrip("/"), _USUAL, has_hub=True) if url else None
    makers = plugin_discovery.discover()
    settings = configuration_of(makers, config_file, public_url, **others)
    protocols = plugin_building.protocols(settings.notifiers, config_file)
    doors = plugin_discovery.select(
        makers.front_doors, settings.front_doors, "front_doors", config_file
    )
    has_hub = WEBSUB in protocols and "websub" in {maker.name for maker, _ in doors}
    return OwnBroker(settings.address, protocols - {WEBSUB}, has_hub)


def _print_results(found: Sequence[Result], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(results.as_json(found), indent=2, ensure_ascii=False))
    else:
        click.echo(results.as_text(found))


def _finish(found: Sequence[Result], as_json: bool) -> None:
    """Show the results, and end with status 1 if any has failed."""
    _print_results(found, as_json)
    if results.has_failed(found):
        raise SystemExit(1)
