"""The commands that talk to a broker: ping, publish, listen, feed-state, resourcesync.

They act as publishers and subscribers, and work with any broker of the same protocols.
``rsscloud_broker.client`` does the work.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import IO, Any
from urllib.parse import urlsplit

import click
from twisted.internet.defer import Deferred

from rsscloud_broker import config
from rsscloud_broker.client import feed_state, publisher, websub
from rsscloud_broker.client import resourcesync as resourcesync_client
from rsscloud_broker.client.feed_requests import make_ask
from rsscloud_broker.client.listener import DEFAULT_PROCEDURE, MAX_BODY_BYTES, Listener, bind
from rsscloud_broker.client.subscriber import RegisteredCallback, Subscriber, find_cloud
from rsscloud_broker.client.web import ClientError
from rsscloud_broker.commands import Group
from rsscloud_broker.commands.connected import cacert_option, outbound, run, web_client
from rsscloud_broker.commands.examples import epilog
from rsscloud_broker.commands.output import write_no_more
from rsscloud_broker.http.limits import HTTPLimits, bounded_site
from rsscloud_broker.util.clock import SystemClock
from rsscloud_broker.web.hub_calls import HubCallbacks
from rsscloud_broker.wire import cloud, text


@click.command()
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
    help="The protocol of the ping.",
)
@cacert_option
def ping(
    feed_url: str | None, name: str | None, url: str | None, rss: str, broker: str, protocol: str
) -> None:
    """Tell a broker that a feed or a site has changed.

    With FEED_URL, send a ping of rssCloud; with --name and --url, a ping of weblogs.com.
    """

    async def work(reactor: Any) -> None:
        web = web_client(reactor)
        if feed_url:
            answer = await publisher.ping_feed(web, broker, feed_url, protocol)
        else:
            answer = await publisher.ping_site(web, broker, name or "", url or "", rss, protocol)
        click.echo(text.clean(answer))

    is_site = bool(name or url or rss)
    if bool(feed_url) == is_site or (is_site and not (name and url)):
        raise click.UsageError("give FEED_URL, or --name and --url (and --rss) of a site")
    run(work)


@click.command()
@click.argument("urls", nargs=-1, required=True, metavar="URL...")
@click.option("--broker", default=publisher.DEFAULT_BROKER, show_default=True, metavar="URL")
@cacert_option
def publish(urls: tuple[str, ...], broker: str) -> None:
    """Tell a WebSub hub that the topic at each URL has changed."""

    async def work(reactor: Any) -> None:
        click.echo(await websub.publish(web_client(reactor), websub.hub_of(broker), urls))

    run(work)


@click.command()
@click.argument("feed_urls", nargs=-1, required=True, metavar="FEED_URL...")
@click.option(
    "--protocol",
    type=click.Choice(["http-post", "xml-rpc", "soap", "websub"]),
    default="http-post",
    show_default=True,
    help="The protocol of the notifications.",
)
@click.option(
    "--broker", metavar="URL", help="The broker to subscribe at, instead of each feed's own."
)
@click.option(
    "--secret",
    default="",
    help="With websub: the secret that signs notifications; others are not printed.",
)
@click.option("--host", default="", help="The address to listen on.  [default: all]")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="[default: any free one]")
@click.option("--domain", default="", help="The host name in the URL of the callback.")
@cacert_option
def listen(
    feed_urls: tuple[str, ...],
    protocol: str,
    broker: str | None,
    secret: str,
    host: str,
    port: int,
    domain: str,
) -> None:
    """Subscribe to feeds, and print a line for each notification."""
    if protocol == "websub":
        run(lambda reactor: _listen_at_hubs(reactor, feed_urls, broker, secret, host, port, domain))
        return
    if secret:
        raise click.UsageError("--secret needs --protocol websub: no other protocol has signatures")
    procedure = "" if protocol == "http-post" else DEFAULT_PROCEDURE

    async def work(reactor: Any) -> None:
        web = web_client(reactor)
        nobody_reads: Deferred[None] = Deferred()
        subscriber = Subscriber(web, reactor, _make_printer(nobody_reads), tell)
        listener = Listener(subscriber.topics, subscriber.notified, DEFAULT_PROCEDURE)
        # With limits, since anybody who finds the port can send requests.
        site = bounded_site(listener, HTTPLimits(config.Http(body_limit=MAX_BODY_BYTES), reactor))
        bound = bind(reactor, site, host, port)
        callback = RegisteredCallback(protocol, bound, procedure=procedure, domain=domain)
        try:
            for feed_url in feed_urls:
                if broker:
                    found = cloud.from_url(f"{broker.rstrip('/')}/rsscloud/pleaseNotify")
                else:
                    found = await find_cloud(web, feed_url)
                answer = await subscriber.subscribe(found, feed_url, callback)
                tell(f"{feed_url}: {answer}")
            await nobody_reads
        finally:
            subscriber.stop()

    run(work)


async def _listen_at_hubs(
    reactor: Any,
    topics: Iterable[str],
    broker: str | None,
    secret: str,
    host: str,
    port: int,
    domain: str,
) -> None:
    """Subscribe to topics at their hubs, until the reader of stdout closes the pipe."""
    web = web_client(reactor)
    nobody_reads: Deferred[None] = Deferred()
    show = _make_printer(nobody_reads)

    def show_content(content: websub.ReceivedContent) -> None:
        """Print a notification; or warn that its signature is wrong or missing."""
        what = f"{content.topic} {len(content.body)} bytes"
        if content.signed is False:  # nobody may act on it: WebSub, section 7.1
            tell(f"{what} were ignored: their signature is wrong or missing")
        else:
            show(f"{what}, signature OK" if content.signed else what)

    subscriber = websub.HubSubscriber(web, reactor, show_content, tell, secret)
    bound = listen_for_hubs(reactor, subscriber, host, port)
    for url in topics:
        hub, topic = (websub.hub_of(broker), url) if broker else await websub.find_hub(web, url)
        await subscribe_at_hub(subscriber, hub, topic, domain, bound)
    await nobody_reads


def listen_for_hubs(reactor: Any, subscriber: websub.HubSubscriber, host: str, port: int) -> int:
    """Listen for the calls of hubs; return the number of the port."""
    limits = HTTPLimits(config.Http(body_limit=websub.MAX_CONTENT_BYTES), reactor)
    bound = bind(reactor, bounded_site(HubCallbacks(subscriber), limits), host, port)
    # Unsubscribe while this process still listens, since the hubs verify that, too.
    reactor.addSystemEventTrigger(
        "before", "shutdown", lambda: Deferred.fromCoroutine(subscriber.unsubscribe())
    )
    return bound


async def subscribe_at_hub(
    subscriber: websub.HubSubscriber, hub: str, topic: str, domain: str, port: int
) -> None:
    """Subscribe to a topic, with callbacks at this machine, and write what the hub says."""
    callbacks = f"http://{domain or own_address(hub)}:{port}/"
    tell(f"{topic}: {await subscriber.subscribe(hub, topic, callbacks)}")


def own_address(hub: str) -> str:
    """The address of this machine as a hub probably sees it, in the form for a URL.

    It sends nothing to the hub, but looks up the hub's name and blocks meanwhile.

    :raises ClientError: the name of the hub's host cannot be resolved.
    """
    try:
        parts = urlsplit(hub)
        found = socket.getaddrinfo(parts.hostname, parts.port or 80, type=socket.SOCK_DGRAM)
        family, kind, _, _, address = found[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            host = str(probe.getsockname()[0]).partition("%")[0]
    except (OSError, ValueError) as error:
        raise ClientError(f"{hub}: {error}") from error
    return f"[{host}]" if ":" in host else host


def _make_printer(nobody_reads: Deferred[None]) -> Callable[[str], None]:
    """Make the function that prints each notification at once.

    :param nobody_reads: fired when the reader of stdout closes the pipe.
    """

    def print_line(topic: str) -> None:
        """Print a notification; if the reader of stdout is gone, fire ``nobody_reads``."""
        now = datetime.fromtimestamp(time.time(), UTC)
        try:
            click.echo(f"{now:%Y-%m-%dT%H:%M:%SZ} {topic}")
        except BrokenPipeError:
            write_no_more()
            if not nobody_reads.called:
                nobody_reads.callback(None)

    return print_line


def tell(sentence: str) -> None:
    """Write a sentence that is not a notification to stderr."""
    click.echo(text.clean(sentence), err=True)


@click.command("feed-state")
@click.argument("url")
@cacert_option
def show_feed_state(url: str) -> None:
    """Fetch the feed at URL as a feed reader does, and report what is good and bad about it."""

    async def work(reactor: Any) -> None:
        ask = make_ask(outbound(reactor), SystemClock(reactor))
        click.echo(feed_state.render(await feed_state.examine(ask, url)))

    run(work)


@click.group(cls=Group)
def resourcesync() -> None:
    """Tell a hub what has changed in a ResourceSync source."""


@resourcesync.command(epilog=epilog("resourcesync notify"))
@click.argument("file", type=click.File("rb"))
@click.option("--topic", required=True, metavar="URL", help="The topic: the source's channel.")
@click.option("--hub", required=True, metavar="URL", help="The hub, such as BROKER/websub.")
@click.option(
    "--capability-list",
    default="",
    metavar="URL",
    help="The capability list, if FILE names none as rs:ln rel=up.",
)
@click.option(
    "--token",
    default="",
    envvar="RSSCLOUD_BROKER_TOKEN",
    show_envvar=True,
    help="The publisher's token at the hub.",
)
@cacert_option
def notify(file: IO[bytes], topic: str, hub: str, capability_list: str, token: str) -> None:
    """Send FILE, a framework or change notification, to a hub."""
    payload = file.read()

    async def work(reactor: Any) -> None:
        web = web_client(reactor)
        answer = await resourcesync_client.notify(web, payload, topic, hub, capability_list, token)
        click.echo(answer)

    run(work)
