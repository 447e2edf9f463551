"""Notifiers call subscribers: one module for each protocol of notifications."""

from rsscloud_broker.delivery.notifiers.http_post import HttpPostNotifier
from rsscloud_broker.delivery.notifiers.options import RssCloudNotifierOptions
from rsscloud_broker.delivery.notifiers.soap import SoapNotifier
from rsscloud_broker.delivery.notifiers.websub import WebSubNotifier, WebSubNotifierOptions
from rsscloud_broker.delivery.notifiers.xml_rpc import XMLRPCNotifier

__all__ = [
    "HttpPostNotifier",
    "RssCloudNotifierOptions",
    "SoapNotifier",
    "WebSubNotifier",
    "WebSubNotifierOptions",
    "XMLRPCNotifier",
]
