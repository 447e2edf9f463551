"""The ``rsscloud-broker`` command: to talk to a broker, and to look after one.

A thin layer: what the commands do is in ``client``, ``storage`` and
``discovery``.  An error is a line on stderr and exit status 1; what was asked
in a wrong way is 2.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import IO, Any

import click
from sqlalchemy import make_url
from treq.client import HTTPClient
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.internet.task import react

from rsscloud_broker import __version__, config, discovery, storage
from rsscloud_broker.client import feed_state, publisher, websub
from rsscloud_broker.client import resourcesync as resourcesync_client
from rsscloud_broker.client.callbacks import MAX_CONTENT_BYTES, HubCallbacks, own_address
from rsscloud_broker.client.listener import DEFAULT_PROCEDURE, MAX_BODY_BYTES, Listener, bind
from rsscloud_broker.client.subscriber import Callback, Subscriber, find_cloud
from rsscloud_broker.client.web import ClientError, Web, trusting
from rsscloud_broker.core.leases import IDLE_TOPIC_SECONDS
from rsscloud_broker.front_doors.limits import Limits, bounded_site
from rsscloud_broker.front_doors.listening import check_endpoints
from rsscloud_broker.model import Unavailable
from rsscloud_broker.timing import SystemClock
from rsscloud_broker.urls import normal_form
from rsscloud_broker.wire import cloud, text, topic_account
from rsscloud_broker.wire.links import HUB_PATHS

_EXPECTED = (
    ClientError,
    CannotListenError,
    cloud.InvalidCloud,
    config.ConfigError,
    discovery.PluginError,
    storage.InvalidDocument,
    storage.UnfitDatabase,
    Unavailable,
    OSError,
)

_config_option = click.option(
    "--config", "config_file", type=click.Path(), metavar="FILE", help="The configuration."
)
_CACERT = "rsscloud_broker.cacert"


def _remember_cacert(context: click.Context, _: click.Parameter, file: str | None) -> None:
    context.meta[_CACERT] = file


_cacert_option = click.option(
    "--cacert",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    callback=_remember_cacert,
    expose_value=False,
    help="Certificates in PEM to trust, instead of those of the system.",
)
_data_option = click.option("--data", metavar="DIR", help="The data directory of the broker.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="rsscloud-broker")
def main() -> None:
    """Talk to a broker, and look after one.

    The broker itself is started by: twistd -n rsscloud-broker
    """


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Say what went wrong without a traceback."""
    try:
        yield
    except BrokenPipeError:  # as of "head", which has had enough
        _write_no_more()
    except _EXPECTED as error:
        raise click.ClickException(str(error)) from error


def _run(work: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
    """Do something that needs the reactor, which is handed to it, and exit."""

    async def reported(reactor: Any) -> None:
        try:
            await work(reactor)
        except _EXPECTED as error:
            # Servers put into words what they like: it is shown as one line.
            click.ClickException(text.clean(str(error))).show()
            raise SystemExit(1) from error

    react(lambda reactor: Deferred.fromCoroutine(reported(reactor)))


def _web(reactor: Any) -> Web:
    file = click.get_current_context().meta.get(_CACERT)
    return Web(HTTPClient(trusting(reactor, file)), SystemClock(reactor))


# --- talking to a broker ----------------------------------------------------


@main.command()
@click.argument("feed_url", required=False)
@click.option("--name", help="The name of a site that changed, instead of FEED_URL.")
@click.option("--url", help="The home page of that site.")
@click.option("--rss", default="", help="The feed of that site.")
@click.option("--broker", default=publisher.DEFAULT_BROKER, show_default=True, metavar="URL")
@click.option(
    "--protocol",
    type=click.Choice(publisher.PROTOCOLS),
    default="rest",
    show_default=True,
    help="How the ping is sent.",
)
@_cacert_option
def ping(
    feed_url: str | None, name: str | None, url: str | None, rss: str, broker: str, protocol: str
) -> None:
    """Say that a feed or a site changed.

    With FEED_URL as rssCloud says it; with --name and --url as weblogs.com does.
    """

    async def work(reactor: Any) -> None:
        web = _web(reactor)
        if feed_url:
            said = await publisher.ping_feed(web, broker, feed_url, protocol)
        else:
            said = await publisher.ping_site(web, broker, name or "", url or "", rss, protocol)
        click.echo(text.clean(said))

    of_site = name or url or rss
    if bool(feed_url) == bool(of_site) or (of_site and not (name and url)):
        raise click.UsageError("give FEED_URL, or --name and --url (and --rss) of a site")
    _run(work)


@main.command()
@click.argument("urls", nargs=-1, required=True, metavar="URL...")
@click.option("--broker", default=publisher.DEFAULT_BROKER, show_default=True, metavar="URL")
@_cacert_option
def publish(urls: tuple[str, ...], broker: str) -> None:
    """Say that what is at URL changed, as WebSub says it."""

    async def work(reactor: Any) -> None:
        click.echo(await websub.publish(_web(reactor), websub.hub_of(broker), urls))

    _run(work)


@main.command()
@click.argument("feed_urls", nargs=-1, required=True, metavar="FEED_URL...")
@click.option(
    "--protocol",
    type=click.Choice(["http-post", "xml-rpc", "soap", "websub"]),
    default="http-post",
    show_default=True,
    help="How the notifications are to come.",
)
@click.option(
    "--broker", metavar="URL", help="Whom to ask, instead of the cloud or the hub of each feed."
)
@click.option("--secret", default="", help="With websub: what deliveries are to be signed with.")
@click.option("--host", default="", help="The address to listen on.  [default: all]")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="[default: any free one]")
@click.option("--domain", default="", help="The name by which we are called back.")
@_cacert_option
def listen(
    feed_urls: tuple[str, ...],
    protocol: str,
    broker: str | None,
    secret: str,
    host: str,
    port: int,
    domain: str,
) -> None:
    """Ask to be notified of feeds, and print a line for each notification."""
    if protocol == "websub":
        _run(lambda reactor: _be_subscriber(reactor, feed_urls, broker, secret, host, port, domain))
        return
    if secret:
        raise click.UsageError("--secret is for --protocol websub: nothing else is signed")
    procedure = "" if protocol == "http-post" else DEFAULT_PROCEDURE

    async def work(reactor: Any) -> None:
        web = _web(reactor)
        nobody_reads: Deferred[None] = Deferred()
        subscriber = Subscriber(web, reactor, _printer(nobody_reads), _tell)
        listener = Listener(subscriber.topics, subscriber.notified, DEFAULT_PROCEDURE)
        # Whoever finds the port can send us things.
        site = bounded_site(listener, Limits(config.Http(body_limit=MAX_BODY_BYTES), reactor))
        bound = bind(reactor, site, host, port)
        callback = Callback(protocol, bound, procedure=procedure, domain=domain)
        try:
            for feed_url in feed_urls:
                asked = _cloud_at(broker) if broker else await find_cloud(web, feed_url)
                said = await subscriber.subscribe(asked, feed_url, callback)
                _tell(f"{feed_url}: {said}")
            await nobody_reads
        finally:
            subscriber.stop()

    _run(work)


async def _be_subscriber(
    reactor: Any,
    topics: Iterable[str],
    broker: str | None,
    secret: str,
    host: str,
    port: int,
    domain: str,
) -> None:
    """Subscribe to topics at their hubs, until nobody reads what is printed."""
    web = _web(reactor)
    nobody_reads: Deferred[None] = Deferred()
    show = _printer(nobody_reads)

    def delivered(delivery: websub.Delivery) -> None:
        words = {True: ", signature OK", False: ", signature WRONG", None: ""}
        show(f"{delivery.topic} {len(delivery.body)} bytes{words[delivery.signed]}")

    subscriber = websub.HubSubscriber(web, reactor, delivered, _tell, secret)
    limits = Limits(config.Http(body_limit=MAX_CONTENT_BYTES), reactor)
    bound = bind(reactor, bounded_site(HubCallbacks(subscriber), limits), host, port)
    # While the hubs can still ask whether we mean it.
    reactor.addSystemEventTrigger(
        "before", "shutdown", lambda: Deferred.fromCoroutine(subscriber.leave())
    )
    for url in topics:
        hub, topic = (websub.hub_of(broker), url) if broker else await websub.find_hub(web, url)
        callbacks = f"http://{domain or own_address(hub)}:{bound}/"
        _tell(f"{topic}: {await subscriber.subscribe(hub, topic, callbacks)}")
    await nobody_reads


def _cloud_at(broker: str) -> cloud.Cloud:
    """The cloud of a broker of our kind."""
    return cloud.from_url(f"{broker.rstrip('/')}/rsscloud/pleaseNotify")


def _printer(nobody_reads: Deferred[None]) -> Callable[[str], None]:
    """What prints a notification at once; in a pipe, until its reader goes away."""

    def notified(topic: str) -> None:
        now = datetime.fromtimestamp(time.time(), UTC)
        try:
            click.echo(f"{now:%Y-%m-%dT%H:%M:%SZ} {topic}")
        except BrokenPipeError:
            _write_no_more()
            if not nobody_reads.called:
                nobody_reads.callback(None)

    return notified


def _write_no_more() -> None:
    """Nobody reads what is printed.  Python would complain at exit, when it empties its buffer."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _tell(sentence: str) -> None:
    """Say something that is not a notification."""
    click.echo(text.clean(sentence), err=True)


@main.command("feed-state")
@click.argument("url")
@_cacert_option
def show_feed_state(url: str) -> None:
    """Fetch URL as a reader does, and explain what its feed says about its state."""

    async def work(reactor: Any) -> None:
        click.echo(feed_state.render(await feed_state.examine(_web(reactor), url)))

    _run(work)


@main.group()
def resourcesync() -> None:
    """Tell a hub what changed of a ResourceSync source."""


@resourcesync.command()
@click.argument("file", type=click.File("rb"))
@click.option("--topic", required=True, metavar="URL", help="The channel.")
@click.option("--hub", required=True, metavar="URL", help="The hub, such as BROKER/websub.")
@click.option(
    "--capability-list", default="", metavar="URL", help="If FILE names none as rs:ln rel=up."
)
@click.option(
    "--token",
    default="",
    envvar="RSSCLOUD_BROKER_TOKEN",
    show_envvar=True,
    help="What the hub knows the publisher by.",
)
@_cacert_option
def notify(file: IO[bytes], topic: str, hub: str, capability_list: str, token: str) -> None:
    """Send FILE, a framework or change notification, to a hub."""
    payload = file.read()

    async def work(reactor: Any) -> None:
        web = _web(reactor)
        said = await resourcesync_client.notify(web, payload, topic, hub, capability_list, token)
        click.echo(said)

    _run(work)


# --- looking after a broker -------------------------------------------------


@main.command()
@_config_option
@_plain_errors()
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
@_config_option
@_data_option
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), default="-")
@_plain_errors()
def export(config_file: str | None, data: str | None, file: str) -> None:
    """Write topics and subscriptions to FILE, as JSON."""
    with storage.open_database(_existing(config_file, data), writes=False) as connection:
        written = storage.export_text(connection, time.time())
        if file == "-":
            for piece in written:
                click.echo(piece, nl=False)
        else:
            storage.write_file(file, written)


@main.command("import")
@_config_option
@_data_option
@click.argument("file", type=click.File("rb"))
@_plain_errors()
def import_(config_file: str | None, data: str | None, file: IO[bytes]) -> None:
    """Take in what export wrote, or a data file of rsscloud-server.

    Subscriptions that are here already are replaced; nothing is removed.  If it
    is interrupted, import the same file again.
    """
    try:
        document = json.loads(file.read())
    except (ValueError, RecursionError) as error:
        raise click.ClickException(f"{file.name}: is not JSON: {error}") from error
    settings = _settings(config_file, data)
    protocols = discovery.protocols(settings.notifiers, config_file or "")
    hub = f"{settings.address}{HUB_PATHS[0]}"
    storage.migrate(settings.database_url)
    begin = partial(storage.open_database, settings.database_url)
    taken = storage.import_in_parts(begin, document, time.time(), hub=hub, protocols=protocols)
    click.echo("\n".join(taken.sentences(hub)))


@main.command()
@_config_option
@_data_option
@_plain_errors()
def sweep(config_file: str | None, data: str | None) -> None:
    """Drop what has ended, as the broker does at the top of the hour."""
    now = time.time()
    with storage.open_database(_existing(config_file, data)) as connection:
        swept = storage.sweep(connection, now, now - IDLE_TOPIC_SECONDS)
    click.echo(
        f"dropped subscriptions: {swept.expired} expired, {swept.marked} marked; "
        f"dropped topics: {swept.topics}"
    )


@main.command()
@_config_option
@_data_option
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
@click.option("--revive", is_flag=True, help="First take back that the topic has ended.")
@click.argument("url")
@_plain_errors()
def topic(config_file: str | None, data: str | None, as_json: bool, revive: bool, url: str) -> None:
    """Tell what is known of the topic at URL: what came last, and when it is polled."""
    url = normal_form(url)
    with storage.open_database(_existing(config_file, data), writes=revive) as connection:
        if revive and not storage.revive_topic(connection, url):
            raise click.ClickException(f"{url} has not ended, or nothing is known of it")
        (account,) = storage.accounts(connection, [url])
    if account is None:
        raise click.ClickException(f"nothing is known of {url}")
    if as_json:
        click.echo(json.dumps(topic_account.to_json(account), indent=2, ensure_ascii=False))
    else:
        click.echo(topic_account.to_text(account))


def _settings(config_file: str | None, data: str | None) -> config.Config:
    settings = config.load(config_file)
    return config.override(settings, "the command line", data=data) if data else settings


def _existing(config_file: str | None, data: str | None) -> str:
    """The URL of a database that must be there already, brought up to date."""
    url = _settings(config_file, data).database_url
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite" and not Path(parsed.database or "").is_file():
        raise click.ClickException(
            f"{parsed.database} does not exist; name the broker's data with --config or --data"
        )
    storage.migrate(url)
    return url
