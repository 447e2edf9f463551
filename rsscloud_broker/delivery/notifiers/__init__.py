"""Notifiers call subscribers: one module for each protocol of notifications."""

from rsscloud_broker.delivery.notifiers.calling import RssCloudNotifierOptions
from rsscloud_broker.delivery.notifiers.http_post import HttpPostNotifier
from rsscloud_broker.delivery.notifiers.soap import SoapNotifier
from rsscloud_broker.delivery.notifiers.websub import WebSubNotifier, WebSubNotifierOptions
from rsscloud_broker.delivery.notifiers.xml_rpc import XMLRPCNotifier
from rsscloud_broker.interfaces import IDirectNotifier, IOutbound


def bundled(outbound: IOutbound) -> dict[str, IDirectNotifier]:
    """All notifiers, by protocol, for a courier; the broker puts options into each notification."""
    notifiers: tuple[IDirectNotifier, ...] = (
        HttpPostNotifier("http-post", outbound),
        HttpPostNotifier("https-post", outbound),
        XMLRPCNotifier(outbound),
        SoapNotifier(outbound),
        WebSubNotifier(outbound, WebSubNotifierOptions()),
    )
    return {notifier.protocol: notifier for notifier in notifiers}
